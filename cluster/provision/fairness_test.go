// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// specs writes the Tenants of several tenants.
type specs struct {
	*fixture
	generation int64
}

func (w *specs) write(id string, spec v1alpha1.TenantSpec) {
	w.t.Helper()
	w.generation++
	spec.ID = id
	t := &v1alpha1.Tenant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenant},
		ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID("uid-" + id), Generation: w.generation},
		Spec:       spec,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	w.must(err)
	objects := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants))
	u := &unstructured.Unstructured{Object: content}
	if _, err = objects.Update(w.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		_, err = objects.Create(w.t.Context(), u, metav1.CreateOptions{})
	}
	w.must(err)
}

// until returns the time until a condition is true, but at most one minute.
func until(is func() bool) time.Duration {
	start := time.Now()
	for !is() && time.Since(start) < time.Minute {
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(start)
}

// bindTo returns bindings of the given number of roles to one user.
func bindTo(user string, roles int) (all []v1alpha1.TenantBinding) {
	for i := range roles {
		all = append(all, v1alpha1.TenantBinding{
			ClusterRole: fmt.Sprintf("role-%02d", i),
			Subjects:    []v1alpha1.Subject{{Kind: "User", Name: user}},
		})
	}
	return all
}

// TestOneTenantDoesNotDelayAnother checks that changes of a Tenant take effect quickly even while
// another tenant causes more writes than the engine can send in several seconds.
func TestOneTenantDoesNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, roles = 48, 20 // 960 writes, of which the engine sends 200 per second
		w := &specs{fixture: newFixture(t)}
		for i := range namespaces {
			w.namespace(fmt.Sprintf("acme--%02d", i), "acme", nil)
		}
		w.namespace("globex--web", "globex", nil)
		w.write("globex", v1alpha1.TenantSpec{
			Admins: []v1alpha1.Subject{peter, mary},
			Quota:  corev1.ResourceList{"pods": apiresource.MustParse("9")},
		})
		w.settle()
		w.expect("before", "globex--web", "kubetenant:admins admin: peter mary")
		w.write("acme", v1alpha1.TenantSpec{Bindings: bindTo("paul", roles)})
		time.Sleep(500 * time.Millisecond)
		admins := func(namespace string, want ...string) func() bool {
			return func() bool { return slices.Equal(w.bindings(namespace), want) }
		}
		limit := func() bool {
			q, err := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
				Get(t.Context(), "globex", metav1.GetOptions{})
			if err != nil {
				return false
			}
			pods, _, _ := unstructured.NestedString(q.Object, "spec", "hard", "pods")
			return pods == "1"
		}
		for _, c := range []struct {
			what string
			do   func()
			is   func() bool
			most time.Duration
		}{
			{
				"remove an admin and lower the quota", func() {
					w.write("globex", v1alpha1.TenantSpec{
						Admins: []v1alpha1.Subject{mary},
						Quota:  corev1.ResourceList{"pods": apiresource.MustParse("1")},
					})
				}, admins("globex--web", "kubetenant:admins admin: mary"), time.Second,
			},
			{"the lower quota", func() {}, limit, 2 * time.Second},
			{
				"prepare a new namespace", func() { w.namespace("globex--new", "globex", nil) },
				admins("globex--new", "kubetenant:admins admin: mary"), time.Second,
			},
			{
				"add an admin", func() {
					w.write("globex", v1alpha1.TenantSpec{Admins: []v1alpha1.Subject{mary, peter}})
				}, admins("globex--web", "kubetenant:admins admin: mary peter"), time.Second,
			},
		} {
			c.do()
			if took := until(c.is); took > c.most {
				t.Errorf("%s: it took %v, at most %v are allowed", c.what, took, c.most)
			}
		}
		if len(w.bindings(fmt.Sprintf("acme--%02d", namespaces-1))) == roles {
			t.Error("the other tenant changes too little for this test")
		}
		time.Sleep(20 * time.Second)
		for i := range namespaces {
			if got := w.bindings(fmt.Sprintf("acme--%02d", i)); len(got) != roles ||
				w.prepared(fmt.Sprintf("acme--%02d", i)) == "" {
				t.Fatalf("namespace %d of the other tenant has %d bindings, want %d", i, len(got), roles)
			}
		}
	})
}

// TestRevocationsGoFirst checks that, after a change of a Tenant with many namespaces, rights are
// removed in all namespaces before most new rights are added.
func TestRevocationsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, roles = 40, 5
		w := &specs{fixture: newFixture(t)}
		for i := range namespaces {
			w.namespace(fmt.Sprintf("acme--%02d", i), "acme", nil)
		}
		bound := []v1alpha1.TenantBinding{{ClusterRole: "secret-reader", Subjects: []v1alpha1.Subject{mary}}}
		w.write("acme", v1alpha1.TenantSpec{Admins: []v1alpha1.Subject{peter, mary}, Bindings: bound})
		w.settle()
		w.expect("before", "acme--39", "kubetenant:admins admin: peter mary",
			"kubetenant:binding:secret-reader secret-reader: mary")
		w.kube.ClearActions()
		w.write("acme", v1alpha1.TenantSpec{Admins: []v1alpha1.Subject{peter}, Bindings: bindTo("paul", roles)})
		time.Sleep(20 * time.Second)
		var revoked, given, before int // before: additions before the last revocation
		for _, a := range w.kube.Actions() {
			if a.GetResource().Resource != "rolebindings" {
				continue
			}
			switch a.GetVerb() {
			case "delete", "update":
				revoked, before = revoked+1, given
			case "create":
				given++
			}
		}
		if revoked != 2*namespaces || given != roles*namespaces {
			t.Errorf("%d rights were removed and %d given, want %d and %d", revoked, given, 2*namespaces, roles*namespaces)
		}
		if before >= given/2 {
			t.Errorf("%d of %d rights were given before the last one was removed", before, given)
		}
		list, err := w.kube.RbacV1().RoleBindings(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		if slices.ContainsFunc(list.Items, func(b rbacv1.RoleBinding) bool {
			return strings.Contains(fmt.Sprint(b.Subjects), "mary")
		}) {
			t.Error("a right remains")
		}
	})
}
