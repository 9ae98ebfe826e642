// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

type fakeCluster struct {
	lineage           tenant.Lineage
	owned, references []string
	err               error
	unknown, early    bool
}

func (w *fakeCluster) options(t *testing.T) lifecycle.Options {
	o := lifecycle.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if u.GetName() == "mallory" {
				return tenanttest.ID(t, "a"), nil
			}
			return tenant.System(), nil
		},
		Read: func(obj runtime.Object) (*lifecycle.TenantSpec, error) {
			u, is := obj.(*unstructured.Unstructured)
			if !is || u.GetName() == "" {
				return nil, errors.New("not read")
			}
			replaces, _, _ := unstructured.NestedString(u.Object, "spec", "replaces")
			policy, _, _ := unstructured.NestedString(u.Object, "spec", "deletionPolicy")
			return &lifecycle.TenantSpec{
				ID:        tenanttest.ID(t, u.GetName()),
				Replaces:  replaces,
				Protected: policy == "",
			}, nil
		},
		RequiredRights: func(was, is runtime.Object) ([]lifecycle.Right, error) { return rightsOf(was, is) },
		Authorizer: authorizer.AuthorizerFunc(func(
			_ context.Context, a authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			right := a.GetVerb() + " " + a.GetAPIGroup() + "/" + a.GetResource()
			switch {
			case !a.IsResourceRequest() || a.GetNamespace() != "" || a.GetSubresource() != "":
				return authorizer.DecisionDeny, "", errors.New("another request")
			case a.GetUser().GetName() == "unsure":
				return authorizer.DecisionNoOpinion, "", errors.New("away")
			case a.GetUser().GetName() == "restricted" && a.GetName() == "": // a rule for the name "" only
				return authorizer.DecisionAllow, "", nil
			case a.GetUser().GetName() == "root" || a.GetUser().GetName() == "half" && right == "delete /namespaces":
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
		Lineage: func(tenant.ID) (tenant.Lineage, bool) { return w.lineage, !w.early },
		Now:     func() time.Time { return now },
	}
	if !w.unknown {
		o.OwnedNamespaces = func(tenant.ID) ([]string, error) { return w.owned, w.err }
		o.References = func(_ context.Context, _ tenant.ID, namespaces []string) ([]string, error) {
			return append(namespaces, w.references...), w.err
		}
	}
	return o
}

func object(spec map[string]any, finalizers ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetName("acme")
	u.SetFinalizers(finalizers)
	return u
}

func withDeletionTimestamp(u *unstructured.Unstructured) *unstructured.Unstructured {
	at := metav1.NewTime(now)
	u.SetDeletionTimestamp(&at)
	return u
}

func attributes(by, sub string, op admission.Operation, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old,
		schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: "Tenant"}, "", "acme",
		schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "tenants"}, sub, op, nil, false,
		&user.DefaultInfo{Name: by})
}

// TestReuseOfTenantNames checks that the ID of a deleted tenant can be reused only if nothing of
// that tenant is left and the new Tenant names the old one in spec.replaces.
func TestReuseOfTenantNames(t *testing.T) {
	before := []tenant.Retired{
		{UID: "older", DeletionEnded: now.Add(-time.Hour)},
		{UID: "old", DeletionEnded: now.Add(-10 * time.Minute)},
	}
	replaces := func(uid string) map[string]any { return map[string]any{"replaces": uid} }
	for name, c := range map[string]struct {
		spec map[string]any
		fakeCluster
		want string
	}{
		"unused ID": {nil, fakeCluster{}, ""},
		"unused ID, objects exist": {
			nil, fakeCluster{owned: []string{"acme--web"}, references: []string{"x"}, err: errors.New("away")}, "",
		},
		"no deleted Tenant": {replaces("old"), fakeCluster{}, "no Tenant with this ID was deleted"},
		"replaces is missing": {
			nil,
			fakeCluster{lineage: tenant.Lineage{Retired: before}},
			"replaces: must be old to reuse the ID of a deleted tenant (see kubectl tenant retired)",
		},
		"replaces an older Tenant": {
			replaces("older"),
			fakeCluster{lineage: tenant.Lineage{Retired: before}},
			"replaces: must be old",
		},
		"replaces the last": {replaces("old"), fakeCluster{lineage: tenant.Lineage{Retired: before}}, ""},
		"deletion is not complete": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{UID: "old", Terminating: true, Retired: []tenant.Retired{{UID: "old"}}}},
			"is not complete",
		},
		"deletion unrecorded": {nil, fakeCluster{lineage: tenant.Lineage{UID: "old", Terminating: true}}, "is not complete"},
		"deleted without the finalizer": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: []tenant.Retired{{UID: "old", DeletionBegan: now.Add(-time.Minute)}}}},
			"after 2026-11-24T12:09:00Z",
		},
		"deleted without the finalizer, long ago": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: []tenant.Retired{{UID: "old", DeletionBegan: now.Add(-time.Hour)}}}},
			"",
		},
		"Tenant exists": {
			nil, fakeCluster{lineage: tenant.Lineage{UID: "new", Retired: before}, owned: []string{"acme--web"}}, "",
		},
		"deleted a moment ago": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{
				Retired: []tenant.Retired{{UID: "old", DeletionEnded: now.Add(-10*time.Minute + time.Second)}},
			}},
			"after 2026-11-24T12:00:01Z",
		},
		"namespace is left": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: before}, owned: []string{"acme--web"}},
			"still exist: acme--web",
		},
		"binding is left": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: before}, references: []string{"ClusterRoleBinding x"}},
			"would apply to the new tenant: ClusterRoleBinding x",
		},
		"former namespaces": {
			replaces("old"),
			fakeCluster{
				lineage: tenant.Lineage{
					Retired: []tenant.Retired{{UID: "old", DeletionEnded: now.Add(-time.Hour), Namespaces: []string{"shop"}}},
				},
			},
			"to the new tenant: shop",
		},
		"failed lookups": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: before}, err: errors.New("away")},
			"cannot check what is left of the deleted tenant that had this ID: away",
		},
		"unknown lineage": {nil, fakeCluster{early: true}, "cannot check yet"},
		"no lookups": {
			replaces("old"),
			fakeCluster{lineage: tenant.Lineage{Retired: before}, unknown: true},
			"cannot check what is left of the deleted tenant that had this ID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := lifecycle.New(c.options(t))
			err := p.Validate(t.Context(), attributes("root", "", admission.Create, object(c.spec), nil), nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	o := (&fakeCluster{}).options(t)
	o.Lineage = nil
	if err := lifecycle.New(o).Validate(t.Context(), attributes("root", "", admission.Create, object(nil), nil),
		nil); err != nil {
		t.Errorf("without Lineage: %v", err)
	}
	if err := lifecycle.New(o).Validate(t.Context(),
		attributes("root", "", admission.Create, &unstructured.Unstructured{}, nil), nil); err == nil {
		t.Error("an unreadable Tenant was admitted")
	}
}

// rightsOf returns two rights if a write sets the deletion policy to Delete.
func rightsOf(oldObj, newObj runtime.Object) ([]lifecycle.Right, error) {
	policy := func(obj runtime.Object) string {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return ""
		}
		policy, _, _ := unstructured.NestedString(u.Object, "spec", "deletionPolicy")
		return policy
	}
	switch {
	case policy(newObj) == "unknown":
		return nil, errors.New("cannot tell")
	case policy(newObj) != "Delete" || policy(oldObj) == "Delete":
		return nil, nil
	}
	const field = "spec.deletionPolicy"
	return []lifecycle.Right{
		{Field: field, Verb: "delete", GroupResource: schema.GroupResource{Resource: "namespaces"}},
		{Field: field, Verb: "delete", GroupResource: schema.GroupResource{Group: "a.example", Resource: "others"}},
	}, nil
}

// TestRights checks that the author of a Tenant must have every right that the change needs.
func TestRights(t *testing.T) {
	deletes, orphans := map[string]any{"deletionPolicy": "Delete"}, map[string]any{"deletionPolicy": "Orphan"}
	for name, c := range map[string]struct {
		by      string
		was, is map[string]any
		want    string
	}{
		"with all rights":     {"root", orphans, deletes, ""},
		"without rights":      {"ops", orphans, deletes, "spec.deletionPolicy: the caller may not delete namespaces in the"},
		"with empty names":    {"restricted", orphans, deletes, "the caller may not delete"},
		"with some rights":    {"half", orphans, deletes, "spec.deletionPolicy: the caller may not delete others.a.example"},
		"with a failed check": {"unsure", orphans, deletes, "spec.deletionPolicy: cannot check now whether the caller may"},
		"if nothing changes":  {"ops", deletes, deletes, ""},
		"if no right is used": {"ops", deletes, orphans, ""},
		"with unknown rights": {"root", deletes, map[string]any{"deletionPolicy": "unknown"}, "cannot tell"},
		"with all, created":   {"root", nil, deletes, ""},
		"without, created":    {"ops", nil, deletes, "spec.deletionPolicy: the caller may not delete namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			p := lifecycle.New((&fakeCluster{}).options(t))
			op, was := admission.Create, runtime.Object(nil)
			if c.was != nil {
				op, was = admission.Update, object(c.was, tenant.Finalizer)
			}
			err := p.Validate(t.Context(), attributes(c.by, "", op, object(c.is, tenant.Finalizer), was), nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestProtectedTenantsAreNotDeleted checks that neither root nor the server itself can delete a
// protected Tenant.
func TestProtectedTenantsAreNotDeleted(t *testing.T) {
	deletes := map[string]any{"deletionPolicy": "Delete"}
	for name, c := range map[string]struct {
		was  runtime.Object
		want string
	}{
		"protected":                {object(nil), "spec.deletionPolicy is Protect"},
		"not protected":            {object(deletes), ""},
		"protected, being deleted": {withDeletionTimestamp(object(nil)), ""},
		"no object":                {nil, "no object"},
		"unreadable":               {&unstructured.Unstructured{}, "not read"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"root", tenant.ManagerUser} {
				err := lifecycle.New((&fakeCluster{}).options(t)).Validate(t.Context(),
					attributes(by, "", admission.Delete, nil, c.was), nil)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s by %s: %v; want %q", name, by, err, c.want)
				}
			}
		})
	}
}

// TestFinalizer checks that a Tenant gets the finalizer unless it is being deleted, and that an
// update does not remove the finalizer. Only [tenant.ManagerUser] can remove it.
func TestFinalizer(t *testing.T) {
	const f = tenant.Finalizer
	for name, c := range map[string]struct {
		by      string
		was, is *unstructured.Unstructured
		want    []string
		unasked bool // Validate runs without Admit
		refused bool
	}{
		"created":         {by: "root", is: object(nil), want: []string{f}},
		"created with it": {by: "root", is: object(nil, f, "x"), want: []string{f, "x"}},
		"missing before": {
			by:   "root",
			was:  object(nil, "x"),
			is:   object(nil, "x"),
			want: []string{"x", f},
		},
		"omitted": {
			by:   "root",
			was:  object(nil, f),
			is:   object(nil),
			want: []string{f},
		},
		"omitted by a tenant's caller": {
			by:   "mallory",
			was:  object(nil, f),
			is:   object(nil),
			want: []string{f},
		},
		"omitted during deletion": {
			by:   "root",
			was:  withDeletionTimestamp(object(nil, f)),
			is:   withDeletionTimestamp(object(nil)),
			want: []string{f},
		},
		"none during deletion": {
			by:   "root",
			was:  withDeletionTimestamp(object(nil, "x")),
			is:   withDeletionTimestamp(object(nil, "x")),
			want: []string{"x"},
		},
		"removed by the manager": {
			by:   tenant.ManagerUser,
			was:  withDeletionTimestamp(object(nil, f)),
			is:   withDeletionTimestamp(object(nil)),
			want: nil,
		},
		"removed after Admit": {
			by:      "root",
			was:     object(nil, f),
			is:      object(nil),
			want:    nil,
			unasked: true,
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := admission.Create
			var was runtime.Object
			if c.was != nil {
				op, was = admission.Update, c.was
			}
			p, a := lifecycle.New((&fakeCluster{}).options(t)), attributes(c.by, "", op, c.is, was)
			if !c.unasked {
				if err := p.Admit(t.Context(), a, nil); err != nil {
					t.Errorf("%v", err)
				}
			}
			if got := c.is.GetFinalizers(); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if err := p.Validate(t.Context(), a, nil); (err != nil) != c.refused {
				t.Errorf("%v", err)
			}
		})
	}
	p := lifecycle.New((&fakeCluster{}).options(t))
	status := object(nil)
	if err := p.Admit(t.Context(), attributes("root", "status", admission.Update, status, object(nil, f)),
		nil); err != nil || len(status.GetFinalizers()) > 0 {
		t.Errorf("status subresource: %v, %v", err, status.GetFinalizers())
	}
	if err := p.Admit(t.Context(), attributes("root", "", admission.Create, nil, nil), nil); err == nil {
		t.Error("a write without an object was admitted")
	}
	if err := p.Admit(t.Context(), attributes("root", "", admission.Delete, nil, nil), nil); err != nil {
		t.Errorf("deletion: %v", err)
	}
}
