// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

func membersWith(uid string, bindings ...any) *unstructured.Unstructured {
	u := object(map[string]any{"bindings": bindings})
	if uid != "" {
		u.SetAnnotations(map[string]string{tenant.TenantUIDAnnotation: uid})
	}
	return u
}

func membersWrite(by string, op admission.Operation, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old,
		schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: "TenantMembers"}, "", "acme",
		schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "tenantmembers"}, "", op, nil,
		false, &user.DefaultInfo{Name: by})
}

// TestMembersHaveTheTenantUID checks that TenantMembers get the UID of the Tenant that exists when
// their spec is written, and that no other UID is allowed.
func TestMembersHaveTheTenantUID(t *testing.T) {
	const live = "uid-of-acme"
	for name, c := range map[string]struct {
		was, is *unstructured.Unstructured
		none    bool // no Tenant object exists
		want    string
		refused bool // without Admit
	}{
		"created":                  {is: membersWith("", "a"), want: live},
		"created with another UID": {is: membersWith("forged", "a"), want: live, refused: true},
		"created without a Tenant": {is: membersWith("forged", "a"), none: true, refused: true},
		"the spec changes": {
			was:     membersWith("old", "a"),
			is:      membersWith("old", "b"),
			want:    live,
			refused: true,
		},
		"the spec changes, forged": {
			was:     membersWith(live, "a"),
			is:      membersWith("forged", "b"),
			want:    live,
			refused: true,
		},
		"the spec stays": {was: membersWith("old", "a"), is: membersWith("old", "a"), want: "old"},
		"the spec stays, forged": {
			was:     membersWith("old", "a"),
			is:      membersWith(live, "a"),
			want:    "old",
			refused: true,
		},
		"the spec stays, omitted": {
			was:     membersWith("old", "a"),
			is:      membersWith("", "a"),
			want:    "old",
			refused: true,
		},
		"the spec stays, added": {was: membersWith("", "a"), is: membersWith(live, "a"), refused: true},
		"the old object is unreadable": {
			was:     &unstructured.Unstructured{},
			is:      membersWith("old", "a"),
			want:    live,
			refused: true,
		},
		"without a Tenant, it changes": {
			was:     membersWith("old", "a"),
			is:      membersWith("old", "b"),
			none:    true,
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"mallory", "root", tenant.ManagerUser} {
				w := &fakeCluster{lineage: tenant.Lineage{UID: live}}
				if c.none {
					w.lineage.UID = ""
				}
				o := w.options(t)
				o.ReadMembers = readMembers(t)
				op, was := admission.Create, runtime.Object(nil)
				if c.was != nil {
					op, was = admission.Update, c.was
				}
				p, is := lifecycle.New(o), c.is.DeepCopy()
				if err := p.Validate(t.Context(), membersWrite(by, op, is, was), nil); (err != nil) != c.refused {
					t.Errorf("%s by %s, not mutated: %v", name, by, err)
				}
				if err := p.Admit(t.Context(), membersWrite(by, op, is, was), nil); err != nil {
					t.Errorf("%s by %s: %v", name, by, err)
				}
				if got := is.GetAnnotations()[tenant.TenantUIDAnnotation]; got != c.want {
					t.Errorf("%s by %s: %q, want %q", name, by, got, c.want)
				}
				if err := p.Validate(t.Context(), membersWrite(by, op, is, was), nil); err != nil {
					t.Errorf("%s by %s, mutated: %v", name, by, err)
				}
			}
		})
	}
}

// TestMembersOfUnknownTenantAreDenied checks that writes of TenantMembers are denied while it is
// not known which Tenant exists. Deletions are allowed.
func TestMembersOfUnknownTenantAreDenied(t *testing.T) {
	o := (&fakeCluster{early: true}).options(t)
	o.ReadMembers = readMembers(t)
	p := lifecycle.New(o)
	for name, a := range map[string]admission.Attributes{
		"created":    membersWrite("root", admission.Create, membersWith("", "a"), nil),
		"changed":    membersWrite("root", admission.Update, membersWith("", "a"), membersWith("", "b")),
		"unreadable": membersWrite("root", admission.Create, &unstructured.Unstructured{}, nil),
		"no object":  membersWrite("root", admission.Create, nil, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Admit(t.Context(), a, nil); err == nil {
				t.Error("admitted")
			}
			if err := p.Validate(t.Context(), a, nil); err == nil {
				t.Error("valid")
			}
		})
	}
	deletes := membersWrite("root", admission.Delete, nil, membersWith("", "a"))
	if err := errors.Join(p.Admit(t.Context(), deletes, nil), p.Validate(t.Context(), deletes, nil)); err != nil {
		t.Error(err)
	}
}

func readMembers(t *testing.T) func(runtime.Object) (tenant.ID, any, error) {
	return func(obj runtime.Object) (tenant.ID, any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok || u.GetName() == "" {
			return tenant.ID{}, nil, errors.New("not read")
		}
		return tenanttest.ID(t, u.GetName()), u.Object["spec"], nil
	}
}
