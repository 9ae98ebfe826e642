// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestSystemCallersMayCopyTheOwnerTemplate checks that a caller of the system tenant may copy the
// template of an existing owner, even if the caller is not a configured controller. Restamp makes
// no difference to a copy with the owner's user.
func TestSystemCallersMayCopyTheOwnerTemplate(t *testing.T) {
	const mine = `{"user":"system:platform:rollouts"}`
	rollouts := caller("system:platform:rollouts", "system")
	stamped := func(value string, uid types.UID, namespace string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: namespace, UID: uid}}
		if value != "" {
			d.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: value}
		}
		return d
	}
	for name, c := range map[string]struct {
		owner    runtime.Object
		by       user.Info
		supplied string
		want     string // with Restamp
		refused  bool   // without Restamp
	}{
		"the owner's user":        {stamped(bobUser, "uid-of-owner", "a--web"), rollouts, bobUser, bobUser, false},
		"a controller with it":    {stamped(bobUser, "uid-of-owner", "a--web"), controller, bobUser, bobUser, false},
		"no user in both":         {stamped("", "uid-of-owner", "a--web"), rollouts, "", "", false},
		"no user":                 {stamped(bobUser, "uid-of-owner", "a--web"), rollouts, "", mine, false},
		"another user":            {stamped(bobUser, "uid-of-owner", "a--web"), rollouts, `{"user":"eve"}`, mine, true},
		"an owner without a user": {stamped("", "uid-of-owner", "a--web"), rollouts, bobUser, mine, true},
		"another UID":             {stamped(bobUser, "another", "a--web"), rollouts, bobUser, mine, true},
		"another namespace":       {stamped(bobUser, "uid-of-owner", "b--web"), rollouts, bobUser, mine, true},
		"a missing owner":         {nil, rollouts, bobUser, mine, true},
		"no user, missing owner":  {nil, rollouts, "", mine, false},
		"a tenant's caller": {
			stamped(bobUser, "uid-of-owner", "a--web"), alice, bobUser, `{"user":"alice","groups":["dev","tenant:a"]}`, true,
		},
		"a tenant's caller without a user": {
			stamped("", "uid-of-owner", "a--web"), alice, "", `{"user":"alice","groups":["dev","tenant:a"]}`, false,
		},
		"a caller without a tenant": {
			stamped(bobUser, "uid-of-owner", "a--web"), &user.DefaultInfo{Name: "x"}, bobUser, `{"user":"x"}`, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restamp := range []bool{true, false} {
				w := &fakeCluster{objects: map[string]runtime.Object{}, options: attribution.WorkloadUser{Restamp: restamp}}
				if c.owner != nil {
					w.objects["Deployment/a--web/d"] = c.owner
				}
				rs := &appsv1.ReplicaSet{ObjectMeta: ownedBy("Deployment", "d")}
				if c.supplied != "" {
					rs.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: c.supplied}
				}
				err := w.admit(t, create(rs, c.by))
				if refused := c.refused && !restamp; refused != (err != nil) {
					t.Errorf("%s, restamp %t: %v, want refused %t", name, restamp, err, refused)
					continue
				}
				if got := rs.Spec.Template.Annotations[tenant.WorkloadUserAnnotation]; err == nil && got != c.want {
					t.Errorf("%s, restamp %t: %s, want %s", name, restamp, got, c.want)
				}
			}
		})
	}
}

// TestOnlyControllersInheritThePodUser checks that a caller of the system tenant that is not a
// configured controller may not supply the user of a Pod, even if it is the owner's user.
func TestOnlyControllersInheritThePodUser(t *testing.T) {
	w := &fakeCluster{objects: map[string]runtime.Object{"ReplicaSet/a--web/rs": replicaSet(bobUser)}}
	pod := &corev1.Pod{ObjectMeta: ownedBy("ReplicaSet", "rs")}
	pod.Annotations = map[string]string{tenant.WorkloadUserAnnotation: bobUser}
	if err := w.admit(t, create(pod, caller("root", "system"))); err == nil {
		t.Error("a caller of the system tenant supplied a user")
	}
}
