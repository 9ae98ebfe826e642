// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// attempts returns the number of attempts to create an object since the last call of
// [fixture.writes].
func (w *fixture) attempts(resource, namespace string) (n int) {
	for _, actions := range [][]clienttesting.Action{w.kube.Actions(), w.dynamic.Actions()} {
		for _, a := range actions {
			if a.Matches("create", resource) && a.GetNamespace() == namespace {
				n++
			}
		}
	}
	return n
}

// TestTakenNames checks that a tenant's own object with the name of a managed object remains. The
// status reports the object and does not count the namespace as prepared. The engine retries
// rarely.
func TestTakenNames(t *testing.T) {
	for name, c := range map[string]struct {
		resource string
		// take creates the object, and free deletes it.
		take, free func(w *fixture) error
		// give defines the managed object.
		give func(w *fixture)
		// status returns a status. reports and settled are its values with and without the
		// tenant's object.
		status           func(w *fixture) string
		reports, settled string
		// most is the maximum number of attempts in one hour.
		most int
	}{
		"a Role": {
			resource: "roles",
			take: func(w *fixture) error {
				_, err := w.kube.RbacV1().Roles("acme--web").Create(w.t.Context(),
					&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
				return err
			},
			free: func(w *fixture) error {
				return w.kube.RbacV1().Roles("acme--web").Delete(w.t.Context(), "a", metav1.DeleteOptions{})
			},
			give:    func(w *fixture) { w.members(roleSpec("a: pods")) },
			status:  (*fixture).status,
			reports: "Failed 2/1/1 of generation 1",
			settled: "Prepared 2/2/0 of generation 1",
			most:    7,
		},
		"a RoleBinding": {
			resource: "rolebindings",
			take: func(w *fixture) error {
				_, err := w.kube.RbacV1().RoleBindings("acme--web").Create(w.t.Context(),
					&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubetenant:admins"}}, metav1.CreateOptions{})
				return err
			},
			free: func(w *fixture) error {
				return w.kube.RbacV1().RoleBindings("acme--web").Delete(w.t.Context(), "kubetenant:admins",
					metav1.DeleteOptions{})
			},
			give: func(w *fixture) {
				w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
			},
			status:  (*fixture).status,
			reports: "Failed 2/1/1 of generation 2",
			settled: "Prepared 2/2/0 of generation 2",
			most:    7,
		},
		"an object of a template": {
			resource: "configmaps",
			take:     takeConfigMap,
			free:     freeConfigMap,
			give: func(w *fixture) {
				w.template("std", authority)
				w.setTemplates("std")
			},
			status:  (*fixture).status,
			reports: "Failed 2/1/1 of generation 2",
			settled: "Prepared 2/2/0 of generation 2",
			most:    7,
		},
		"a copy of a Publication": {
			resource: "configmaps",
			take:     takeConfigMap,
			free:     freeConfigMap,
			give: func(w *fixture) {
				w.source(authority)
				w.publish(unchanged)
			},
			status:  (*fixture).published,
			reports: "Conflict 2/1/0/1 acme--web",
			settled: "Published 2/2/0/0",
			most:    70, // once a minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.define()
				w.addSharedNamespace()
				w.namespace("acme--web", "acme", nil)
				w.namespace("acme--db", "acme", nil)
				w.tenant(nothing)
				w.must(c.take(w))
				c.give(w)
				time.Sleep(10 * time.Minute)
				if got := c.status(w); got != c.reports {
					t.Errorf("with the object of the tenant: %q, want %q", got, c.reports)
				}
				w.writes()
				time.Sleep(time.Hour)
				if n := w.attempts(c.resource, "acme--web"); n > c.most {
					t.Errorf("%d attempts in one hour, want at most %d", n, c.most)
				}
				w.must(c.free(w)) // fails if the engine deleted it
				time.Sleep(11 * time.Minute)
				if got := c.status(w); got != c.settled {
					t.Errorf("without the object of the tenant: %q, want %q", got, c.settled)
				}
			})
		})
	}
}

// takeConfigMap creates the tenant's own ConfigMap ca.
func takeConfigMap(w *fixture) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.Replace(authority, "first", "the tenant's", 1)), &u.Object); err != nil {
		return err
	}
	u.SetUID("own")
	_, err := w.dynamic.Resource(configMaps).Namespace("acme--web").Create(w.t.Context(), u, metav1.CreateOptions{})
	return err
}

func freeConfigMap(w *fixture) error {
	all := w.dynamic.Resource(configMaps).Namespace("acme--web")
	u, err := all.Get(w.t.Context(), "ca", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if u.GetUID() != "own" || u.GetLabels()[tenant.ManagedLabel] != "" {
		w.t.Errorf("the object of the tenant is now %v", u.Object)
	}
	return all.Delete(w.t.Context(), "ca", metav1.DeleteOptions{})
}
