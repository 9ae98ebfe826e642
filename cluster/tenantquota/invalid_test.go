// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// invalidQuotas returns quotas of tenant b that do not decode.
func invalidQuotas(t *testing.T, isDefault bool) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for name, c := range map[string]struct {
		value any
		path  []string
	}{
		"the limits are text":       {"x", []string{"spec", "hard"}},
		"a limit is not a quantity": {"x", []string{"spec", "hard", "secrets"}},
		"a limit is a boolean":      {true, []string{"spec", "hard", "secrets"}},
		"the usage is text":         {"x", []string{"status", "used"}},
		"a reservation is text":     {[]any{"x"}, []string{"status", "reserved"}},
	} {
		u := object(t, "invalid", "b", isDefault, "1")
		if err := unstructured.SetNestedField(u.Object, c.value, c.path...); err != nil {
			t.Fatal(err)
		}
		all[name] = u
	}
	return all
}

// TestInvalidQuota checks that a tenant cannot create limited objects while one of its quotas
// does not decode. Other tenants are not affected.
func TestInvalidQuota(t *testing.T) {
	for name, u := range invalidQuotas(t, false) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quotas, client := store(t, u, object(t, "b", "b", true, "1"), object(t, "a", "a", false, "1"))
				a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
				if states, err := quotas.States(t.Context(), b); err == nil {
					t.Errorf("only %v limit the tenant", states)
				}
				if taken, err := quotas.HasQuota(t.Context(), b); !taken || err != nil {
					t.Errorf("HasQuota() = %t, %v", taken, err)
				}
				if !quotas.BelongsTo("invalid", b) || quotas.BelongsTo("invalid", tenanttest.ID(t, "invalid")) {
					t.Error("the quota does not belong to the tenant that it names")
				}
				was := singleState(t, quotas, a)
				if err := quotas.Charge(t.Context(), was, was); err != nil {
					t.Errorf("the quota of another tenant is not charged: %v", err)
				}
				was.Name = "invalid"
				if err := quotas.Charge(t.Context(), was, was); err == nil {
					t.Error("the invalid quota is charged")
				}
				// The counter does not write its usage, and deletes the default quota.
				client.ClearActions()
				counting(t, quotas, &mapper{})
				time.Sleep(time.Minute) // in the fake time of synctest
				synctest.Wait()
				if all := written(client); slices.Contains(all, "update invalid") || !slices.Contains(all, "delete b") {
					t.Errorf("the counter wrote %v", all)
				}
			})
		})
	}
}

// TestQuotaBecomesInvalid checks that States fails after a quota becomes invalid, so that its
// tenant is not unlimited, and that a fix of the quota takes effect.
func TestQuotaBecomesInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t, object(t, "a", "a", false, "1"))
		a := tenanttest.ID(t, "a")
		was := singleState(t, quotas, a)
		if err := quotas.Charge(t.Context(), was, was); err != nil {
			t.Fatal(err)
		}
		of := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas))
		limit := func(pods string) {
			t.Helper()
			u, err := of.Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedField(u.Object, pods, "spec", "hard", "pods"); err != nil {
				t.Fatal(err)
			}
			if _, err := of.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		limit("many")
		if states, err := quotas.States(t.Context(), a); err == nil {
			t.Errorf("the tenant is limited by %v", states)
		}
		limit("7")
		if got := singleState(t, quotas, a).Hard.Pods().Value(); got != 7 {
			t.Errorf("the limit is %d", got)
		}
	})
}

// TestInvalidDefault checks that an invalid default quota is deleted if the configuration has no
// default limits. Otherwise, its tenant still cannot create limited objects.
func TestInvalidDefault(t *testing.T) {
	for pods, want := range map[string][]string{"": {"delete invalid"}, "5": nil} {
		for name, u := range invalidQuotas(t, true) {
			t.Run(fmt.Sprintf("default %q, %s", pods, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					quotas, client := store(t, u)
					client.ClearActions()
					ensured(t, quotas, namespaces(t, map[string]string{"b--web": "b"}), pods)
					if got := written(client); !slices.Equal(slices.Compact(got), want) {
						t.Errorf("wrote %v, want %v", got, want)
					}
					if _, err := quotas.States(t.Context(), tenanttest.ID(t, "b")); (err == nil) != (pods == "") {
						t.Errorf("States() = %v", err)
					}
				})
			})
		}
	}
}
