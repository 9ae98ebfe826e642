// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// authorizeVelero allows impersonation by velero only.
func authorizeVelero(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "impersonate" && a.GetUser().GetName() == "velero" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func impersonationPlugin(w *fakeCluster, refuse bool) admission.Interface {
	return attribution.New(attribution.Options{
		Subject:      func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:        func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") },
		Authorizer:   authorizer.AuthorizerFunc(authorizeVelero),
		Kinds:        workload.New(nil),
		Metadata:     w.find,
		Objects:      w.find,
		Creator:      true,
		WorkloadUser: attribution.WorkloadUser{Restamp: !refuse},
	})
}

// TestImpersonatedCreatorOfNewObjects checks that annotations that name another user are either
// retained without a warning, or rewritten with one warning for each annotation. The warnings
// contain no values.
func TestImpersonatedCreatorOfNewObjects(t *testing.T) {
	const alices = `{"user":"alice","tenant":"a"}`
	for name, c := range map[string]struct {
		by          user.Info
		annotations map[string]string
		refuse      bool
		warned      []string // the keys
		denied      bool
		kept        bool
	}{
		"no annotations": {by: caller("root", "system")},
		"kept": {
			by: caller("velero", "system"),
			annotations: map[string]string{
				tenant.CreatorAnnotation:      alices,
				tenant.OnBehalfOfAnnotation:   alices,
				tenant.WorkloadUserAnnotation: bobUser,
			},
			refuse: true,
			kept:   true,
		},
		"rewritten": {
			by: caller("root", "system"),
			annotations: map[string]string{
				tenant.CreatorAnnotation:      alices,
				tenant.OnBehalfOfAnnotation:   alices,
				tenant.WorkloadUserAnnotation: bobUser,
			},
			warned: []string{tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation, tenant.WorkloadUserAnnotation},
		},
		"the caller": {
			by: caller("root", "system"),
			annotations: map[string]string{
				tenant.CreatorAnnotation:      `{"user":"root","tenant":"system"}`,
				tenant.WorkloadUserAnnotation: `{"user":"root"}`,
			},
			kept: true,
		},
		"denied": {
			by:          caller("root", "system"),
			annotations: map[string]string{tenant.WorkloadUserAnnotation: bobUser},
			refuse:      true,
			denied:      true,
		},
		"a user of another tenant": {
			by:          caller("velero", "system"),
			annotations: map[string]string{tenant.CreatorAnnotation: `{"user":"carol","tenant":"b"}`},
			warned:      []string{tenant.CreatorAnnotation},
		},
		"a user of the system tenant": {
			by:          caller("velero", "system"),
			annotations: map[string]string{tenant.CreatorAnnotation: `{"user":"root","tenant":"system"}`},
			warned:      []string{tenant.CreatorAnnotation},
		},
		"too long": {
			by: caller("velero", "system"),
			annotations: map[string]string{
				tenant.CreatorAnnotation: `{"user":"` + strings.Repeat("x", attribution.MaxCreatorBytes) + `","tenant":"a"}`,
			},
			warned: []string{tenant.CreatorAnnotation},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told warnings
			ctx := warning.WithWarningRecorder(t.Context(), &told)
			p := impersonationPlugin(&fakeCluster{}, c.refuse)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a--web", Annotations: c.annotations}}
			a := create(pod, c.by)
			err := p.(admission.MutationInterface).Admit(ctx, a, nil)
			if err == nil {
				err = p.(admission.ValidationInterface).Validate(ctx, a, nil)
			}
			if (err != nil) != c.denied {
				t.Errorf("%v, want denied %t", err, c.denied)
				return
			}
			for key, value := range c.annotations {
				if got := pod.Annotations[key]; !c.denied && (got == value) != c.kept {
					t.Errorf("%s is %q, want kept %t", key, got, c.kept)
				}
			}
			if len(told) != len(c.warned) {
				t.Errorf("warnings %q, want one for each of %q", told, c.warned)
			}
			for _, key := range c.warned {
				if !strings.Contains(strings.Join(told, "\n"), "the annotation "+key+" ") {
					t.Errorf("warnings %q, want a warning about %s", told, key)
				}
			}
			for _, text := range told {
				if strings.Contains(text, "alice") || strings.Contains(text, "bob") {
					t.Errorf("the warning %q repeats a value", text)
				}
			}
		})
	}
}

// TestCopiedCreatorDoesNotWarn checks that a controller that copies the creator of its owner gets
// no warning.
func TestCopiedCreatorDoesNotWarn(t *testing.T) {
	const alices = `{"user":"alice","tenant":"a"}`
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:        "d",
		Namespace:   "a--web",
		UID:         "uid-of-owner",
		Annotations: map[string]string{tenant.CreatorAnnotation: alices},
	}}
	deployment.Spec.Template.Annotations = map[string]string{tenant.WorkloadUserAnnotation: bobUser}
	rs := replicaSet(bobUser)
	rs.ObjectMeta = ownedBy("Deployment", "d")
	rs.Annotations = map[string]string{tenant.CreatorAnnotation: alices}
	w := &fakeCluster{objects: map[string]runtime.Object{"Deployment/a--web/d": deployment}}
	var told warnings
	ctx := warning.WithWarningRecorder(t.Context(), &told)
	p := impersonationPlugin(w, false)
	if err := p.(admission.MutationInterface).Admit(ctx, create(rs, controller), nil); err != nil || len(told) > 0 {
		t.Errorf("%v, warnings %q", err, told)
	}
	if rs.Annotations[tenant.CreatorAnnotation] != alices || rs.Annotations[tenant.OnBehalfOfAnnotation] != alices {
		t.Errorf("annotations %v", rs.Annotations)
	}
}
