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

func retiredWith(uid string, namespaces ...any) *unstructured.Unstructured {
	return object(map[string]any{"uid": uid, "namespaces": namespaces})
}

// TestRetiredTenants checks that a RetiredTenant that would revoke the credentials of an existing
// tenant is denied, and that only the server changes the spec of a RetiredTenant.
func TestRetiredTenants(t *testing.T) {
	living := tenant.Lineage{UID: "live"}
	labelled := retiredWith("old", "shop")
	labelled.SetLabels(map[string]string{"a": "b"})
	for name, c := range map[string]struct {
		lineage tenant.Lineage
		early   bool
		was, is runtime.Object
		want    bool
	}{
		"of no Tenant":           {tenant.Lineage{}, false, nil, retiredWith("old"), true},
		"of an existing tenant":  {living, false, nil, retiredWith("never-was"), false},
		"of the existing Tenant": {living, false, nil, retiredWith("live"), false},
		"of a deleted Tenant":    {tenant.Lineage{UID: "live", Terminating: true}, false, nil, retiredWith("live"), true},
		"of a deletion that is canceled": {
			tenant.Lineage{UID: "live", Terminating: true}, false, nil, canceledDeletion("live"), false,
		},
		"of a deletion that was canceled": {tenant.Lineage{}, false, nil, canceledDeletion("old"), true},
		"of a replaced Tenant": {
			tenant.Lineage{UID: "live", Retired: []tenant.Retired{{UID: "old"}}}, false, nil, retiredWith("old"), true,
		},
		"of an unknown tenant": {tenant.Lineage{}, true, nil, retiredWith("old"), false},
		"unreadable":           {tenant.Lineage{}, false, nil, &unstructured.Unstructured{}, false},
		"labels changed":       {living, false, retiredWith("old", "shop"), labelled, true},
		"namespaces removed":   {tenant.Lineage{}, false, retiredWith("old", "shop"), retiredWith("old"), false},
		"UID changed":          {tenant.Lineage{}, false, retiredWith("old"), retiredWith("new"), false},
		"deleted":              {living, false, retiredWith("old"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []string{"root", "mallory", tenant.ManagerUser} {
				o := (&fakeCluster{lineage: c.lineage, early: c.early}).options(t)
				o.ReadRetired = func(obj runtime.Object) (lifecycle.Record, error) {
					u, ok := obj.(*unstructured.Unstructured)
					if !ok || u.GetName() == "" {
						return lifecycle.Record{}, errors.New("not read")
					}
					uid, _, _ := unstructured.NestedString(u.Object, "spec", "uid")
					_, takenBack, _ := unstructured.NestedString(u.Object, "spec", "takenBack")
					return lifecycle.Record{
						ID:               tenanttest.ID(t, u.GetName()),
						UID:              uid,
						DeletionCanceled: takenBack,
						Spec:             u.Object["spec"],
					}, nil
				}
				op := admission.Create
				switch {
				case c.is == nil:
					op = admission.Delete
				case c.was != nil:
					op = admission.Update
				}
				err := lifecycle.New(o).Validate(t.Context(), admission.NewAttributesRecord(c.is, c.was,
					schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: "RetiredTenant"}, "", "acme",
					schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "retiredtenants"}, "", op,
					nil, false, &user.DefaultInfo{Name: by}), nil)
				if want := c.want || by == tenant.ManagerUser; (err == nil) != want {
					t.Errorf("%s by %s: %v", name, by, err)
				}
			}
		})
	}
}

func canceledDeletion(uid string) *unstructured.Unstructured {
	u := retiredWith(uid)
	_ = unstructured.SetNestedField(u.Object, "Open", "spec", "takenBack")
	return u
}
