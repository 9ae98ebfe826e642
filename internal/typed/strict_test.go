// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestStrict checks that an unknown field makes an object invalid, and that
// [typed.NewStrictInformer] stores the same result.
func TestStrict(t *testing.T) {
	from := map[string]any{"tenant": "globex"}
	for name, c := range map[string]struct {
		spec  map[string]any
		valid bool
	}{
		"known fields":   {map[string]any{"from": from}, true},
		"unknown field":  {map[string]any{"from": from, "onlyAtNight": true}, false},
		"invalid field":  {map[string]any{"from": "globex"}, false},
		"unknown nested": {map[string]any{"from": map[string]any{"tenant": "globex", "zone": "eu"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			informer, err := typed.NewStrictInformer[v1alpha1.AccessGrant](client(grant("g", c.spec)), grants())
			if err != nil {
				t.Fatal(err)
			}
			go informer.RunWithContext(t.Context())
			if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
				t.Fatal("the informer has not synced")
			}
			stored, _, _ := informer.GetStore().GetByKey("acme-web/g")
			for _, obj := range []any{typed.Strict[v1alpha1.AccessGrant](grant("g", c.spec)), stored} {
				if g, err := typed.FromInformer[v1alpha1.AccessGrant](obj); (err == nil) != c.valid {
					t.Errorf("%v, %v", g, err)
				}
			}
		})
	}
}

// TestStrictStatus checks that a status field of a later release does not make an object invalid.
func TestStrictStatus(t *testing.T) {
	u := grant("g", map[string]any{"from": map[string]any{"tenant": "globex"}})
	u.Object["status"] = map[string]any{"usedBy": "later release"}
	if _, err := typed.FromInformer[v1alpha1.AccessGrant](typed.Strict[v1alpha1.AccessGrant](u)); err != nil {
		t.Error(err)
	}
	if u.Object["status"] == nil {
		t.Error("Strict changed the object")
	}
	u.Object["status"] = "x"
	if _, err := typed.FromInformer[v1alpha1.AccessGrant](typed.Strict[v1alpha1.AccessGrant](u)); err == nil {
		t.Error("a status that does not decode is valid")
	}
}

// TestErrorsContainNoValues checks that errors of the decoder contain no values, because errors are
// logged.
func TestErrorsContainNoValues(t *testing.T) {
	for name, spec := range map[string]any{
		"text for an object": "SECRET",
		"invalid time":       map[string]any{"expires": `SE"CRET`},
		"text for a list":    map[string]any{"to": "SECRET"},
		"invalid quantity":   map[string]any{"hard": map[string]any{"pods": "SECRET"}},
		"invalid duration":   map[string]any{"deletionDelay": "SECRET"},
		"unknown field":      map[string]any{"onlyFor": "SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			u := grant("g", spec)
			_, grantErr := typed.Decode[v1alpha1.AccessGrant](u)
			_, quotaErr := typed.Decode[v1alpha1.TenantQuota](u)
			_, tenantErr := typed.Decode[v1alpha1.Tenant](u)
			_, strictErr := typed.FromInformer[v1alpha1.AccessGrant](typed.Strict[v1alpha1.AccessGrant](u))
			if strictErr == nil {
				t.Error("the grant is valid")
			}
			for _, err := range []error{grantErr, quotaErr, tenantErr, strictErr} {
				if err != nil && (strings.Contains(err.Error(), "SE") || strings.Contains(err.Error(), "CRET")) {
					t.Errorf("the error contains the value: %v", err)
				}
			}
		})
	}
}

// TestInvalidTenant checks that an [typed.Invalid] names the tenant of the object.
func TestInvalidTenant(t *testing.T) {
	for name, c := range map[string]struct {
		spec map[string]any
		want string
	}{
		"tenant":   {map[string]any{"tenant": "acme"}, "acme"},
		"ID":       {map[string]any{"id": "acme"}, "acme"},
		"number":   {map[string]any{"tenant": int64(1)}, ""},
		"no field": {map[string]any{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec["hard"] = "x"
			u := grant("g", c.spec)
			invalid, ok := typed.Strict[v1alpha1.TenantQuota](u).(*typed.Invalid)
			if !ok || invalid.Tenant != c.want {
				t.Errorf("the quota is %+v", invalid)
			}
		})
	}
}
