// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func object(t testing.TB, name, id string, isDefault bool, used string) *unstructured.Unstructured {
	t.Helper()
	q := &v1alpha1.TenantQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenantQuota},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", UID: "1"},
		Spec: v1alpha1.TenantQuotaSpec{
			Tenant: id,
			Hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")},
		},
	}
	if used != "" {
		q.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(used)}
	}
	if isDefault {
		q.Labels = map[string]string{v1alpha1.DefaultQuotaLabel: "true"}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(q)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// store runs a store of quotas until the test ends.
func store(t *testing.T, objects ...runtime.Object) (*tenantquota.Store, *fake.FakeDynamicClient) {
	t.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
		{Version: "v1", Resource: "pods"}:                                       "PodList",
		{Version: "v1", Resource: "secrets"}:                                    "SecretList",
	}, objects...)
	// The server increments the resource version.
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if u, is := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured); is {
			version, err := strconv.Atoi(u.GetResourceVersion())
			if err != nil {
				return true, nil, err
			}
			u.SetResourceVersion(strconv.Itoa(version + 1))
		}
		return false, nil, nil
	})
	quotas, err := tenantquota.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Until the quotas are known, no tenant is unlimited.
	if _, err := quotas.States(t.Context(), tenanttest.ID(t, "a")); !errors.Is(err, quota.ErrUnknown) {
		t.Errorf("States before the quotas are known: %v", err)
	}
	if _, err := quotas.HasQuota(t.Context(), tenanttest.ID(t, "a")); !errors.Is(err, quota.ErrUnknown) {
		t.Errorf("HasQuota before the quotas are known: %v", err)
	}
	if quotas.BelongsTo("a", tenanttest.ID(t, "a")) {
		t.Error("BelongsTo before the quotas are known: true")
	}
	running(t, quotas.Run)
	time.Sleep(time.Second) // in the fake time of synctest
	synctest.Wait()
	return quotas, client
}

func names(t *testing.T, quotas *tenantquota.Store, id string) []string {
	t.Helper()
	states, err := quotas.States(t.Context(), tenanttest.ID(t, id))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range states {
		all = append(all, s.Name)
	}
	return all
}

// TestWhichQuotasApply checks that all quotas of a tenant apply, except a default quota if the
// tenant has another quota.
func TestWhichQuotasApply(t *testing.T) {
	// inStore runs a check in a store of quotas.
	inStore := func(t *testing.T, check func(*testing.T, *tenantquota.Store)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			quotas, _ := store(t, object(t, "own", "a", false, ""), object(t, "a", "a", true, ""),
				object(t, "b", "b", true, ""), object(t, "c-2", "c", false, ""),
				object(t, "c-1", "c", false, ""), object(t, "bad", "A B", false, ""))
			check(t, quotas)
		})
	}
	for name, c := range map[string]struct {
		id     string
		quotas []string
		own    bool
	}{
		"a default quota and another": {"a", []string{"own"}, true},
		"a default quota only":        {"b", []string{"b"}, false},
		"two quotas":                  {"c", []string{"c-1", "c-2"}, true},
		"no quota":                    {"d", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(t *testing.T, quotas *tenantquota.Store) {
				if got := names(t, quotas, c.id); !slices.Equal(got, c.quotas) {
					t.Errorf("quotas %v, want %v", got, c.quotas)
				}
				if own, err := quotas.HasQuota(t.Context(), tenanttest.ID(t, c.id)); own != c.own || err != nil {
					t.Errorf("has its own quota: %t, %v", own, err)
				}
			})
		})
	}
	for name, want := range map[string]string{
		"own": "a",
		"a":   "a",
		"b":   "b",
		"c-1": "c",
		"c-2": "c",
		"bad": "",
		"e":   "e",
		"f-1": "",
	} {
		t.Run("quota "+name, func(t *testing.T) {
			inStore(t, func(t *testing.T, quotas *tenantquota.Store) {
				for _, id := range []string{"a", "b", "c", "e", "own", "bad"} {
					if got := quotas.BelongsTo(name, tenanttest.ID(t, id)); got != (id == want) {
						t.Errorf("belongs to %s: %t, want %t", id, got, id == want)
					}
				}
			})
		})
	}
}

func singleState(t *testing.T, quotas *tenantquota.Store, id tenant.ID) *quota.State {
	t.Helper()
	states, err := quotas.States(t.Context(), id)
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	return states[0]
}

// TestCharge checks that charged usage applies immediately, before the informer observes the
// write. A charge that is based on an older state fails with a conflict.
func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := tenanttest.ID(t, "a")
		quotas, client := store(t, object(t, "a", "a", false, "1"))
		was := singleState(t, quotas, a)
		is := *was
		is.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
		is.Reserved = []quota.Reservation{{
			UID:     "u",
			Key:     "pods/a--web/p",
			Expires: time.Now().Add(time.Minute),
			Usage:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")},
		}}
		if err := quotas.Charge(t.Context(), was, &is); err != nil {
			t.Fatal(err)
		}
		if now := singleState(t, quotas, a); now.Used.Pods().Value() != 2 || len(now.Reserved) != 1 {
			t.Errorf("after the charge: %+v", now)
		}
		synctest.Wait()
		stale := *was
		stale.Version = "0"
		if err := quotas.Charge(t.Context(), &stale, &is); !errors.Is(err, quota.ErrConflict) {
			t.Errorf("charge of an older state: %v", err)
		}
		gone := *was
		gone.Name = "none"
		if err := quotas.Charge(t.Context(), &gone, &is); !errors.Is(err, quota.ErrConflict) {
			t.Errorf("charge of a missing quota: %v", err)
		}
		stored, err := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
			Get(t.Context(),
				"a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if used, _, _ := unstructured.NestedString(stored.Object, "status", "used", "pods"); used != "2" {
			t.Errorf("stored: %v", stored.Object["status"])
		}
	})
}

// TestUndefined checks that the quotas are unknown while their definition is missing, so that no
// tenant is unlimited. The quotas are known again after the definition is created.
func TestUndefined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, known := true, true
		_, client := store(t, object(t, "a", "a", false, "1"))
		quotas, err := tenantquota.New(client, func(r schema.GroupResource) (bool, bool) {
			return is && r == v1alpha1.SchemeGroupVersion.WithResource("tenantquotas").GroupResource(), known
		})
		if err != nil {
			t.Fatal(err)
		}
		running(t, quotas.Run)
		synctest.Wait()
		for _, c := range []struct{ is, known, unknown bool }{
			{true, true, false}, {false, true, true}, {false, false, false}, {true, true, false},
		} {
			is, known = c.is, c.known
			states, err := quotas.States(t.Context(), tenanttest.ID(t, "a"))
			if errors.Is(err, quota.ErrUnknown) != c.unknown || (len(states) == 1) == c.unknown {
				t.Errorf("defined %t, known %t: %v, %v", c.is, c.known, states, err)
			}
		}
	})
}
