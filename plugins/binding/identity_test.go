// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package binding_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/tenant"
)

type warnings []string

func (s *warnings) AddWarning(_, text string) { *s = append(*s, text) }

// TestIdentityOfNewObjects checks that a new object retains the identity of another user only if
// the caller may impersonate that user. Otherwise, it gets the identity that the server records,
// with a warning.
func TestIdentityOfNewObjects(t *testing.T) {
	const (
		bobs   = `{"user":"bob","tenant":"a"}`
		carols = `{"user":"carol","tenant":"b"}`
		a      = `{"tenant":"a"}`
		alices = `{"user":"alice","tenant":"a"}`
	)
	for name, c := range map[string]struct {
		by, namespace, identity, want, kubeVela string
		told                                    int
	}{
		"may impersonate":           {"root", "a--web", bobs, bobs, "", 0},
		"may not impersonate":       {"poor", "a--web", bobs, a, "", 1},
		"a tenant's caller":         {"lead", "a--web", bobs, bobs, "", 0},
		"own identity":              {"alice", "a--web", alices, alices, "", 0},
		"a tenant's caller may not": {"alice", "a--web", bobs, alices, "", 1},
		"user of another tenant":    {"root", "a--web", carols, a, "", 1},
		"identity without a user":   {"root", "a--web", a, a, "", 0},
		"no user, tenant's caller":  {"alice", "a--web", a, alices, "", 1},
		"not JSON":                  {"root", "a--web", "bob", a, "", 1},
		"another field order":       {"root", "a--web", `{"tenant":"a","user":"bob"}`, a, "", 1},
		"no namespace":              {"root", "", bobs, `{"user":"root","tenant":"system"}`, "", 1},
		"another user of KubeVela":  {"root", "a--web", bobs, bobs, "eve", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := binding.New(binding.Options{
				Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
					if u.GetName() == "root" || u.GetName() == "poor" {
						return tenant.System(), nil
					}
					return tenant.Parse("a")
				},
				Owner: func(context.Context, string) (tenant.ID, error) { return tenant.Parse("a") },
				Authorizer: authorizer.AuthorizerFunc(func(
					_ context.Context, a authorizer.Attributes,
				) (authorizer.Decision, string, error) {
					if name := a.GetUser().GetName(); a.GetVerb() == "impersonate" && (name == "root" || name == "lead") {
						return authorizer.DecisionAllow, "", nil
					}
					return authorizer.DecisionNoOpinion, "", nil
				}),
				Kinds: map[schema.GroupKind]bool{{Group: "example.com", Kind: "Farm"}: true},
			})
			annotations := keys{tenant.IdentityAnnotation: c.identity}
			if c.kubeVela != "" {
				annotations[binding.KubeVelaUser] = c.kubeVela
			}
			obj := farm(annotations, nil)
			obj.SetNamespace(c.namespace)
			var told warnings
			record := admission.NewAttributesRecord(obj, nil, obj.GroupVersionKind(), c.namespace, "f",
				schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farms"}, "", admission.Create, nil,
				false, &user.DefaultInfo{Name: c.by})
			err := p.Admit(warning.WithWarningRecorder(t.Context(), &told), record, nil)
			if err == nil {
				err = p.Validate(t.Context(), record, nil)
			}
			if got := obj.GetAnnotations()[tenant.IdentityAnnotation]; err != nil || got != c.want || len(told) != c.told {
				t.Errorf("%s, %v, warnings %q; want %s", got, err, told, c.want)
			}
			if got := obj.GetAnnotations()[binding.KubeVelaUser]; got == "eve" {
				t.Errorf("KubeVela's user is %q", got)
			}
		})
	}
}
