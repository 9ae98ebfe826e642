// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/tenant"
)

// suspended returns a Tenant. If suspension is nil, the field is missing.
func suspended(suspension any) *unstructured.Unstructured {
	spec := map[string]any{"deletionPolicy": "Orphan"}
	if suspension != nil {
		spec["suspension"] = suspension
	}
	return object(spec, tenant.Finalizer)
}

// TestSuspension checks that an update that omits the suspension does not resume a tenant, unless
// the server itself sends the update.
func TestSuspension(t *testing.T) {
	for name, c := range map[string]struct {
		by      string
		was, is any
		want    any
		refused bool // without Admit
	}{
		"omitted":                  {"root", "Closed", nil, "Closed", true},
		"omitted, read-only":       {"root", "ReadOnly", nil, "ReadOnly", true},
		"omitted by a tenant":      {"mallory", "Closed", nil, "Closed", true},
		"omitted by the manager":   {tenant.ManagerUser, "Closed", nil, nil, false},
		"empty":                    {"root", "Closed", "", "", false},
		"changed":                  {"root", "Closed", "ReadOnly", "ReadOnly", false},
		"the same":                 {"root", "Closed", "Closed", "Closed", false},
		"omitted after \"\"":       {"root", "", nil, nil, false},
		"omitted, never suspended": {"root", nil, nil, nil, false},
		"set":                      {"root", nil, "Closed", "Closed", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, is := lifecycle.New((&fakeCluster{}).options(t)), suspended(c.is)
			a := attributes(c.by, "", admission.Update, is, suspended(c.was))
			if err := p.Validate(t.Context(), a, nil); (err != nil) != c.refused {
				t.Errorf("%s, not mutated: %v", name, err)
			}
			if err := p.Admit(t.Context(), a, nil); err != nil {
				t.Errorf("%v", err)
			}
			if got := is.Object["spec"].(map[string]any)["suspension"]; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if err := p.Validate(t.Context(), a, nil); err != nil {
				t.Errorf("%s, mutated: %v", name, err)
			}
		})
	}
	p := lifecycle.New((&fakeCluster{}).options(t))
	is := suspended(nil)
	delete(is.Object, "spec")
	if err := p.Admit(t.Context(), attributes("root", "", admission.Update, is, suspended("Closed")), nil); err != nil {
		t.Errorf("no spec: %v", err)
	}
	if err := p.Validate(t.Context(), attributes("root", "", admission.Update, is, suspended("Closed")), nil); err == nil {
		t.Error("a Tenant without a spec resumes the tenant")
	}
}

// TestCancelDeletion checks that the annotation that cancels a deletion is removed from a Tenant
// that is not being deleted, and that no deletion begins while the annotation is set.
func TestCancelDeletion(t *testing.T) {
	with := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		u.SetAnnotations(map[string]string{tenant.TakeBackAnnotation: "true", "x": "y"})
		return u
	}
	for name, c := range map[string]struct {
		was, is *unstructured.Unstructured
		want    bool
	}{
		"created with it":       {nil, with(suspended(nil)), false},
		"added":                 {suspended(nil), with(suspended(nil)), false},
		"unchanged":             {with(suspended(nil)), with(suspended(nil)), false},
		"added during deletion": {withDeletionTimestamp(suspended(nil)), with(withDeletionTimestamp(suspended(nil))), true},
	} {
		t.Run(name, func(t *testing.T) {
			op, was := admission.Create, runtime.Object(nil)
			if c.was != nil {
				op, was = admission.Update, c.was
			}
			if err := lifecycle.New((&fakeCluster{}).options(t)).Admit(t.Context(),
				attributes("root", "", op, c.is, was), nil); err != nil {
				t.Errorf("%v", err)
			}
			if _, ok := c.is.GetAnnotations()[tenant.TakeBackAnnotation]; ok != c.want || c.is.GetAnnotations()["x"] != "y" {
				t.Errorf("%v", c.is.GetAnnotations())
			}
		})
	}
	for name, c := range map[string]struct {
		was  *unstructured.Unstructured
		want bool
	}{
		"without it":          {suspended(nil), true},
		"with it":             {with(suspended(nil)), false},
		"with it, deleted":    {with(withDeletionTimestamp(suspended(nil))), true},
		"without it, deleted": {withDeletionTimestamp(suspended(nil)), true},
		"with it, not \"true\"": {func() *unstructured.Unstructured {
			u := suspended(nil)
			u.SetAnnotations(map[string]string{tenant.TakeBackAnnotation: "false"})
			return u
		}(), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"root", tenant.ManagerUser} {
				err := lifecycle.New((&fakeCluster{}).options(t)).Validate(t.Context(),
					attributes(by, "", admission.Delete, nil, c.was), nil)
				if (err == nil) != c.want {
					t.Errorf("%s, deleted by %s: %v", name, by, err)
				}
			}
		})
	}
}
