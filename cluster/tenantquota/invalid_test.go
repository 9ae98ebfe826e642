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
		"text for the limits":    {"x", []string{"spec", "hard"}},
		"a limit is no quantity": {"x", []string{"spec", "hard", "secrets"}},
		"a limit is a boolean":   {true, []string{"spec", "hard", "secrets"}},
		"the usage is text":      {"x", []string{"status", "used"}},
		"a reservation is text":  {[]any{"x"}, []string{"status", "reserved"}},
	} {
		u := object(t, "invalid", "b", isDefault, "1")
		if err := unstructured.SetNestedField(u.Object, c.value, c.path...); err != nil {
			t.Fatal(err)
		}
		all[name] = u
	}
	return all
}

// TestInvalidQuota checks that a quota that does not decode still limits its tenant, and no other
// tenant.
func TestInvalidQuota(t *testing.T) {
	for name, u := range invalidQuotas(t, false) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quotas, client := store(t, u, object(t, "b", "b", true, "1"), object(t, "a", "a", false, "1"))
				a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
				if states, err := quotas.States(t.Context(), b); err == nil {
					t.Errorf("the tenant is limited by %v only", states)
				}
				if taken, err := quotas.HasQuota(t.Context(), b); !taken || err != nil {
					t.Errorf("Taken() = %t, %v", taken, err)
				}
				if !quotas.BelongsTo("invalid", b) || quotas.BelongsTo("invalid", tenanttest.ID(t, "invalid")) {
					t.Error("the quota belongs to another tenant than the one that it names")
				}
				was := singleState(t, quotas, a)
				if err := quotas.Charge(t.Context(), was, was); err != nil {
					t.Errorf("the quota of another tenant is not charged: %v", err)
				}
				was.Name = "invalid"
				if err := quotas.Charge(t.Context(), was, was); err == nil {
					t.Error("it is charged")
				}
				// The counter does not write its usage, and deletes the default quota.
				client.ClearActions()
				counting(t, quotas, &mapper{})
				time.Sleep(time.Minute) // in the time of the synctest bubble
				synctest.Wait()
				if all := written(client); slices.Contains(all, "update invalid") || !slices.Contains(all, "delete b") {
					t.Errorf("the counter wrote %v", all)
				}
			})
		})
	}
}

// TestQuotaBecomesInvalid checks that the limits of a quota that becomes invalid remain, and that a
// fix takes effect.
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

// TestInvalidDefault checks that an invalid default quota is deleted if there should be no default
// quota. Otherwise, it still limits its tenant.
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
						t.Errorf("Of() = %v", err)
					}
				})
			})
		}
	}
}
