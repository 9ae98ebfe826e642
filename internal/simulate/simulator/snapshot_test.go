// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestEmptyIsNotAbsent checks that a namespace with an empty tenant label is unowned, and that a
// binding with an empty scope applies in no namespace, as on a server.
func TestEmptyIsNotAbsent(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}}
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		caller              string
		want                authorizer.Decision
	}{
		"own namespace": {map[string]string{tenant.Label: "acme"}, nil, "acme", authorizer.DecisionAllow},
		"limited to the tenant": {
			map[string]string{tenant.Label: "acme"},
			map[string]string{tenant.ScopeAnnotation: "acme"},
			"acme",
			authorizer.DecisionAllow,
		},
		"limited to nothing": {
			map[string]string{tenant.Label: "acme"},
			map[string]string{tenant.ScopeAnnotation: ""},
			"acme",
			authorizer.DecisionNoOpinion,
		},
		"system namespace": {nil, nil, "acme", authorizer.DecisionDeny},
		"unowned":          {map[string]string{tenant.Label: ""}, nil, "acme", authorizer.DecisionDeny},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot, err := simulator.NewSnapshot().With(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: c.labels}},
				&rbacv1.ClusterRole{
					ObjectMeta: metav1.ObjectMeta{Name: "r"},
					Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
				},
				&rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: c.annotations},
					Subjects:   subjects,
					RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
				})
			if err != nil {
				t.Fatal(err)
			}
			if name == "unowned" && !snapshot.Owner("web").IsZero() {
				t.Errorf("owned by %s", snapshot.Owner("web"))
			}
			config, err := (&configv1alpha1.Settings{}).Complete()
			if err != nil {
				t.Fatal(err)
			}
			stack, err := simulator.New(ctx, config, snapshot, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			decision, reason, err := stack.Authorizer.Authorize(ctx, &authorizer.AttributesRecord{
				Verb:            "get",
				APIVersion:      "v1",
				Resource:        "pods",
				Namespace:       "web",
				Name:            "p",
				ResourceRequest: true,
				User: &user.DefaultInfo{
					Name:   "alice",
					Groups: []string{user.AllAuthenticated, tenant.GroupPrefix + c.caller},
					Extra:  map[string][]string{tenant.ExtraKey: {c.caller}},
				},
			})
			if decision != c.want || err != nil {
				t.Errorf("%v, %q, %v; want %v", decision, reason, err, c.want)
			}
		})
	}
}
