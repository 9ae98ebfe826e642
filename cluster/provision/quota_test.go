// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// quota creates a TenantQuota that does not belong to the Tenant.
func (w *fixture) quota(name, of, label string) {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenantQuota,
		"spec":       map[string]any{"tenant": of, "hard": map[string]any{"pods": "1"}},
	}}
	u.SetName(name)
	if label != "" {
		u.SetLabels(map[string]string{label: "true"})
	}
	_, err := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
		Create(w.t.Context(),
			u, metav1.CreateOptions{})
	w.must(err)
}

// quotas returns the name, tenant, limits and labels of all quotas, and the quota that the status
// of acme's Tenant names.
func (w *fixture) quotas() string {
	w.t.Helper()
	list, err := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
		List(w.t.Context(),
			metav1.ListOptions{})
	w.must(err)
	var all []string
	for _, u := range list.Items {
		hard, _, _ := unstructured.NestedMap(u.Object, "spec", "hard")
		of, _, _ := unstructured.NestedString(u.Object, "spec", "tenant")
		all = append(all, fmt.Sprintf("%s of %s %v %v", u.GetName(), of, hard, u.GetLabels()))
	}
	slices.Sort(all)
	u, err := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).Get(w.t.Context(),
		"acme", metav1.GetOptions{})
	w.must(err)
	said, _, _ := unstructured.NestedString(u.Object, "status", "quota")
	return strings.Join(all, "; ") + " | " + said
}

func pods(n int64) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) {
		s.Quota = corev1.ResourceList{"pods": *apiresource.NewQuantity(n, apiresource.DecimalSI)}
	}
}

func none(s *v1alpha1.TenantSpec) { s.Quota = nil }

// TestQuota checks that the quota of a tenant is created, updated and deleted as its Tenant
// specifies. A quota that another caller created remains and is reported.
func TestQuota(t *testing.T) {
	own, byDefault := "map["+tenant.ManagedLabel+":tenant]", v1alpha1.DefaultQuotaLabel
	distinct := tenanttest.ID(t, "acme").DistinctObjectName()
	for name, c := range map[string]struct {
		before         func(*fixture)
		first, changed string
		after          string
		says           string
	}{
		"no quota": {
			func(*fixture) {},
			"acme of acme map[pods:5] " + own + " | acme",
			"acme of acme map[pods:7] " + own + " | acme",
			" | ",
			"Prepared",
		},
		"default quota": {
			func(w *fixture) { w.quota("some", "acme", byDefault) },
			"some of acme map[pods:5] " + own + " | some",
			"some of acme map[pods:7] " + own + " | some",
			" | ",
			"Prepared",
		},
		"quota of another caller": {
			func(w *fixture) { w.quota("some", "acme", "") },
			"some of acme map[pods:1] map[] | ",
			"some of acme map[pods:1] map[] | ",
			"some of acme map[pods:1] map[] | ",
			"QuotaTaken",
		},
		"quota of another tenant with the same name": {
			func(w *fixture) { w.quota("acme", "globex", "") },
			distinct + " of acme map[pods:5] " + own + "; acme of globex map[pods:1] map[] | " + distinct,
			distinct + " of acme map[pods:7] " + own + "; acme of globex map[pods:1] map[] | " +
				distinct,
			"acme of globex map[pods:1] map[] | ",
			"Prepared",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				c.before(w)
				for i, step := range []struct {
					change func(*v1alpha1.TenantSpec)
					want   string
				}{{pods(5), c.first}, {pods(7), c.changed}, {none, c.after}} {
					w.tenant(step.change)
					sorted := strings.Split(step.want, " | ")
					parts := strings.Split(sorted[0], "; ")
					slices.Sort(parts)
					if want := strings.Join(parts, "; ") + " | " + sorted[1]; w.quotas() != want {
						t.Errorf("%s, step %d: %s; want %s", name, i, w.quotas(), want)
					}
					if says := w.status(); i < 2 && !strings.HasPrefix(says, c.says+" ") {
						t.Errorf("%s, step %d: the status is %s", name, i, says)
					}
				}
			})
		})
	}
}

// condition returns the status and reason of a condition of acme's Tenant.
func (w *fixture) condition(kind string) string {
	w.t.Helper()
	u, err := w.dynamic.Resource(resource).Get(w.t.Context(), "acme", metav1.GetOptions{})
	w.must(err)
	t, err := typed.Decode[v1alpha1.Tenant](u)
	w.must(err)
	c := meta.FindStatusCondition(t.Status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

// TestMax checks that spec.namespaces.max becomes an additional limit of the quota, and that the
// condition Ready reports that the tenant exceeds the limit.
func TestMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("acme--db", "acme", nil)
		most := func(n int32) func(*v1alpha1.TenantSpec) {
			return func(s *v1alpha1.TenantSpec) { s.Namespaces.Max = &n }
		}
		own := "map[" + tenant.ManagedLabel + ":tenant]"
		for _, step := range []struct {
			change       func(*v1alpha1.TenantSpec)
			quota, ready string
		}{
			{func(*v1alpha1.TenantSpec) {}, " | ", "True Ready"},
			{most(2), "acme of acme map[count/namespaces:2] " + own + " | acme", "True Ready"},
			{pods(5), "acme of acme map[count/namespaces:2 pods:5] " + own + " | acme", "True Ready"},
			{most(1), "acme of acme map[count/namespaces:1 pods:5] " + own + " | acme", "False TooManyNamespaces"},
			{most(0), "acme of acme map[count/namespaces:0 pods:5] " + own + " | acme", "False TooManyNamespaces"},
			{
				func(s *v1alpha1.TenantSpec) { s.Namespaces.Max = nil },
				"acme of acme map[pods:5] " + own + " | acme",
				"True Ready",
			},
			{none, " | ", "True Ready"},
		} {
			w.tenant(step.change)
			if w.quotas() != step.quota || w.condition(v1alpha1.ConditionReady) != step.ready {
				t.Errorf("%s, %s; want %s, %s", w.quotas(), w.condition(v1alpha1.ConditionReady), step.quota, step.ready)
			}
		}
	})
}

// TestSuspended checks that the reason of the condition Suspended is the stricter of spec.access
// and spec.suspension.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		for _, c := range []struct {
			access, suspension v1alpha1.TenantAccess
			want               string
		}{
			{"", "", "False Open"},
			{"ReadOnly", "", "True ReadOnly"},
			{"ReadOnly", "Closed", "True Closed"},
			{"Closed", "ReadOnly", "True Closed"},
			{"Open", "ReadOnly", "True ReadOnly"},
			{"Open", "", "False Open"},
		} {
			w.tenant(func(s *v1alpha1.TenantSpec) { s.Access, s.Suspension = c.access, c.suspension })
			if got := w.condition(v1alpha1.ConditionSuspended); got != c.want {
				t.Errorf("%s and %s: %s, want %s", c.access, c.suspension, got, c.want)
			}
		}
	})
}

// TestQuotaWithoutChanges checks that a new leader writes nothing if the quota has the limits
// that the Tenant specifies.
func TestQuotaWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.tenant(pods(5))
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
	})
}

// TestQuotaFails checks that errors are reported and retried until the quota is written or deleted.
func TestQuotaFails(t *testing.T) {
	for verb, to := range map[string]func(*v1alpha1.TenantSpec){"create": pods(5), "patch": pods(7), "delete": none} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				if verb != "create" {
					w.tenant(pods(5))
				}
				var failing atomic.Bool
				failing.Store(true)
				prepend(&w.dynamic.Fake, verb, "tenantquotas", func(clienttesting.Action) (bool, runtime.Object, error) {
					return failing.Load(), nil, errors.New("away")
				})
				w.tenant(to)
				if says := w.status(); !strings.HasPrefix(says, v1alpha1.ReasonFailed+" ") {
					t.Errorf("the status is %s", says)
				}
				if has := w.quotas(); verb != "create" && !strings.HasSuffix(has, "| acme") {
					t.Errorf("the status does not name the remaining quota: %s", has)
				}
				failing.Store(false)
				time.Sleep(2 * time.Minute)
				w.settle()
				if says := w.status(); !strings.HasPrefix(says, v1alpha1.ReasonPrepared+" ") {
					t.Errorf("afterwards, the status is %s", says)
				}
				if has := w.quotas(); strings.Contains(has, "pods:5") != (verb == "create") ||
					strings.Contains(has, "pods:7") != (verb == "patch") {
					t.Errorf("afterwards, the quotas are %s", has)
				}
			})
		})
	}
}

// TestQuotaDrift checks that a quota that was changed or deleted without admission is restored.
func TestQuotaDrift(t *testing.T) {
	quotas := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
	for name, change := range map[string]func(*fixture) error{
		"deleted": func(w *fixture) error { return w.dynamic.Tracker().Delete(quotas, "", "acme") },
		"changed": func(w *fixture) error {
			u, err := w.dynamic.Resource(quotas).Get(w.t.Context(), "acme", metav1.GetOptions{})
			if err == nil {
				u.Object["spec"].(map[string]any)["hard"] = map[string]any{"pods": "100"}
				err = w.dynamic.Tracker().Update(quotas, u, "")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", nil)
				w.tenant(pods(5))
				w.must(change(w))
				time.Sleep(11 * time.Minute)
				w.settle()
				if has := w.quotas(); !strings.Contains(has, "map[pods:5]") {
					t.Errorf("%s", has)
				}
			})
		})
	}
}

// TestQuotaMissingInStatus checks that a managed quota is deleted even if the status does not
// name it, because the leader stopped before it wrote the status.
func TestQuotaMissingInStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var dead atomic.Bool
		dead.Store(true)
		prepend(&w.dynamic.Fake, "patch", "tenants", func(clienttesting.Action) (bool, runtime.Object, error) {
			return dead.Load(), nil, errors.New("away")
		})
		w.tenant(pods(5))
		w.stop()
		w.tenant(none)
		dead.Store(false)
		w.start()
		time.Sleep(11 * time.Minute)
		w.settle()
		if has := w.quotas(); has != " | " {
			t.Errorf("the quota remains: %s", has)
		}
	})
}

// TestInvalidTenantKeepsObjects checks that the existing content remains while a Tenant does not
// decode. A namespace that is created during this time gets no content.
func TestInvalidTenantKeepsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = []v1alpha1.Subject{{Kind: "User", Name: "alice"}}
			pods(5)(s)
		})
		before := fmt.Sprint(w.bindings("acme--web"), w.quotas())
		u, err := w.dynamic.Resource(resource).Get(t.Context(), "acme", metav1.GetOptions{})
		w.must(err)
		u.Object["spec"].(map[string]any)["memberRoles"] = "x"
		u.Object["spec"].(map[string]any)["quota"] = map[string]any{"pods": "9"}
		u.SetGeneration(u.GetGeneration() + 1)
		_, err = w.dynamic.Resource(resource).Update(t.Context(), u, metav1.UpdateOptions{})
		w.must(err)
		synctest.Wait() // the engine observes the Tenant before the namespace
		w.namespace("acme--new", "acme", nil)
		time.Sleep(time.Hour)
		if got := fmt.Sprint(w.bindings("acme--web"), w.quotas()); got != before || len(w.bindings("acme--web")) == 0 {
			t.Errorf("the content is %s, before %s", got, before)
		}
		if got := w.bindings("acme--new"); len(got) > 0 {
			t.Errorf("the new namespace has %v", got)
		}
	})
}
