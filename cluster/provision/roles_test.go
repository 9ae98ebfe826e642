// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// roleSpec returns a spec of acme's TenantMembers with the given Roles, each in the form "name:
// resources". Each Role allows get of its resources.
func roleSpec(roles ...string) string {
	var all []string
	for _, text := range roles {
		name, resources, _ := strings.Cut(text, ": ")
		all = append(all,
			`{ name: "`+name+`", rules: [ { verbs: [ get ], apiGroups: [ "" ], resources: [ `+resources+` ] } ] }`)
	}
	return `{ id: acme, roles: [ ` + strings.Join(all, ", ") + ` ] }`
}

// roles returns the Roles in a namespace in the form "name: resources".
func (w *fixture) roles(namespace string) (all []string) {
	w.t.Helper()
	list, err := w.kube.RbacV1().Roles(namespace).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for i := range list.Items {
		text := list.Items[i].Name + ":"
		for _, rule := range list.Items[i].Rules {
			text += " " + strings.Join(rule.Resources, " ")
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func (w *fixture) expectRoles(what, namespace string, want ...string) {
	w.t.Helper()
	if got := w.roles(namespace); !slices.Equal(got, want) {
		w.t.Errorf("%s: %s has the Roles %q, want %q", what, namespace, got, want)
	}
}

func nothing(*v1alpha1.TenantSpec) {}

// message returns the message of the condition Prepared of acme's Tenant.
func (w *fixture) message() string {
	w.t.Helper()
	u, err := w.dynamic.Resource(resource).Get(w.t.Context(), "acme", metav1.GetOptions{})
	w.must(err)
	t, err := typed.Decode[v1alpha1.Tenant](u)
	w.must(err)
	return meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPrepared).Message
}

// TestRoles checks that the Roles that TenantMembers define exist in each namespace of the
// tenant, even if the Tenant has no spec.memberRoles. They are updated and deleted with the
// TenantMembers.
func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.members(roleSpec("a: pods", "b: secrets"))
		w.expectRoles("no Tenant yet", "acme--web")
		w.tenant(nothing)
		w.expectRoles("at first", "acme--web", "a: pods", "b: secrets")
		w.expectRoles("another tenant", "globex--web")
		w.expectStatus("at first", "Prepared 1/1/0 of generation 1")
		w.namespace("acme--db", "acme", nil)
		w.settle()
		w.expectRoles("a later namespace", "acme--db", "a: pods", "b: secrets")
		role, err := w.kube.RbacV1().Roles("acme--db").Get(t.Context(), "a", metav1.GetOptions{})
		w.must(err)
		if role.Labels[tenant.ManagedLabel] != managed.SourceTenant || role.Labels[tenant.Label] != "acme" {
			t.Errorf("the labels are %v", role.Labels)
		}
		w.members(roleSpec("a: services", "c: pods"))
		for _, ns := range []string{"acme--web", "acme--db"} {
			w.expectRoles("changed", ns, "a: services", "c: pods")
		}
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.members(`{ id: globex, roles: [ { name: a, rules: [] } ] }`)
		w.expectRoles("TenantMembers of another tenant", "acme--web")
		w.members(roleSpec("a: pods"))
		w.stop()
		w.members("")
		w.expectRoles("without a leader", "acme--web", "a: pods")
		w.start()
		w.expectRoles("with the next leader", "acme--web")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("prepared without content: %s", got)
		}
		w.members(roleSpec("a: pods"))
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.expectRoles("without a Tenant", "acme--web")
	})
}

// TestRolesOfEarlierTenant checks that TenantMembers for an earlier Tenant with the same name,
// and TenantMembers that are being deleted, have no effect.
func TestRolesOfEarlierTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		retired := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       v1alpha1.KindRetiredTenant,
			"spec":       map[string]any{"id": "acme", "uid": "t0"},
		}}
		retired.SetName("acme-t0")
		_, err := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)).
			Create(t.Context(), retired, metav1.CreateOptions{})
		w.must(err)
		w.tenant(nothing)
		w.members(roleSpec("a: pods"))
		w.expectRoles("without a UID", "acme--web")
		all := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers))
		write := func(change func(*unstructured.Unstructured)) {
			u, err := all.Get(t.Context(), "acme", metav1.GetOptions{})
			w.must(err)
			change(u)
			_, err = all.Update(t.Context(), u, metav1.UpdateOptions{})
			w.must(err)
			w.settle()
		}
		for uid, want := range map[string][]string{"t0": nil, "t1": {"a: pods"}} {
			write(func(u *unstructured.Unstructured) {
				u.SetAnnotations(map[string]string{tenant.TenantUIDAnnotation: uid})
			})
			w.expectRoles("for "+uid, "acme--web", want...)
		}
		write(func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{tenant.TenantUIDAnnotation: "t1"})
			u.SetDeletionTimestamp(new(metav1.Now()))
			u.SetFinalizers([]string{"example.com/mine"})
		})
		w.expectRoles("being deleted", "acme--web")
	})
}

// TestRolesDrift checks that each kind of change of a Role is reverted, and that a tenant's own
// Roles remain.
func TestRolesDrift(t *testing.T) {
	ours := map[string]string{tenant.ManagedLabel: managed.SourceTenant}
	write := func(w *fixture, change func(*rbacv1.Role)) {
		roles := w.kube.RbacV1().Roles("acme--web")
		r, err := roles.Get(w.t.Context(), "a", metav1.GetOptions{})
		w.must(err)
		change(r)
		_, err = roles.Update(w.t.Context(), r, metav1.UpdateOptions{})
		w.must(err)
	}
	create := func(w *fixture, namespace, name string, labels map[string]string) {
		_, err := w.kube.RbacV1().Roles(namespace).Create(w.t.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		w.must(err)
	}
	for name, change := range map[string]func(*fixture){
		"more rules": func(w *fixture) {
			write(w, func(r *rbacv1.Role) {
				r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}, Resources: []string{"*"}})
			})
		},
		"no rules": func(w *fixture) { write(w, func(r *rbacv1.Role) { r.Rules = nil }) },
		"another tenant": func(w *fixture) {
			write(w, func(r *rbacv1.Role) { r.Labels[tenant.Label] = "globex" })
		},
		"owner reference": func(w *fixture) {
			write(w, func(r *rbacv1.Role) { r.OwnerReferences = []metav1.OwnerReference{{Name: "x", UID: "1"}} })
		},
		"deleted": func(w *fixture) {
			w.must(w.kube.RbacV1().Roles("acme--web").Delete(w.t.Context(), "a", metav1.DeleteOptions{}))
		},
		"additional Role":                      func(w *fixture) { create(w, "acme--web", "b", ours) },
		"Role in a namespace without a tenant": func(w *fixture) { create(w, "released", "a", ours) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", nil)
				w.namespace("released", "", nil)
				w.tenant(nothing)
				w.members(roleSpec("a: pods"))
				create(w, "acme--web", "own", nil)
				create(w, "acme--web", "published", map[string]string{tenant.ManagedLabel: "publication"})
				create(w, "released", "own", nil)
				change(w)
				time.Sleep(11 * time.Minute)
				w.expectRoles("restored", "acme--web", "a: pods", "own:", "published:")
				w.expectRoles("restored", "released", "own:")
				r, err := w.kube.RbacV1().Roles("acme--web").Get(t.Context(), "a", metav1.GetOptions{})
				w.must(err)
				if len(r.OwnerReferences) > 0 || r.Labels[tenant.Label] != "acme" {
					t.Errorf("the metadata is %v", r.ObjectMeta)
				}
			})
		})
	}
}

// TestRoleNameTaken checks that an existing Role with the name of a managed Role remains, and
// that the status of the Tenant reports it.
func TestRoleNameTaken(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"Role of the tenant": nil, "published Role": {tenant.ManagedLabel: "publication"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", nil)
				w.namespace("acme--db", "acme", nil)
				_, err := w.kube.RbacV1().Roles("acme--web").Create(t.Context(), &rbacv1.Role{
					ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels},
					Rules:      []rbacv1.PolicyRule{{Resources: []string{"services"}}},
				}, metav1.CreateOptions{})
				w.must(err)
				w.tenant(nothing)
				w.members(roleSpec("a: pods", "b: pods"))
				time.Sleep(time.Minute)
				w.expectRoles("with a conflict", "acme--web", "a: services", "b: pods")
				w.expectRoles("another namespace", "acme--db", "a: pods", "b: pods")
				w.expectStatus("with a conflict", "Failed 2/1/1 of generation 1")
				if got := w.message(); !strings.Contains(got, "acme--web: Role a: an object with this name exists") {
					t.Errorf("the condition: %s", got)
				}
				w.must(w.kube.RbacV1().Roles("acme--web").Delete(t.Context(), "a", metav1.DeleteOptions{}))
				time.Sleep(11 * time.Minute) // until the next drift check
				w.expectRoles("without the conflict", "acme--web", "a: pods", "b: pods")
				w.expectStatus("without the conflict", "Prepared 2/2/0 of generation 1")
			})
		})
	}
}

// TestRoleForms checks that a Role that admission would refuse is not created, even if the schema
// in the definition allows it.
func TestRoleForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(nothing)
		const rule = `verbs: [ get ], apiGroups: [ "" ], resources: [ pods ]`
		w.members(`{ id: acme, roles: [ { name: "kubetenant:admins", rules: [ { ` + rule + ` } ] }, ` +
			`{ name: urls, rules: [ { ` + rule + `, nonResourceURLs: [ "/metrics" ] } ] }, ` +
			`{ name: none, rules: [ { verbs: [ get ] } ] }, { name: good, rules: [ { ` + rule + ` } ] }, { name: empty } ] }`)
		w.expectRoles("refused Roles", "acme--web", "empty:", "good: pods")
		w.expectStatus("refused Roles", "SubjectRefused 1/1/0 of generation 1")
	})
}

// TestRoleRevocationsGoFirst checks that rules are removed in all namespaces before most new rules
// are added, and that a failed removal is retried.
func TestRoleRevocationsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, roles, failures = 40, 5, 7
		w := newFixture(t)
		for i := range namespaces {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.tenant(nothing)
		w.members(roleSpec("a: pods, secrets", "b: pods"))
		w.expectRoles("before", "acme--39", "a: pods secrets", "b: pods")
		var fails atomic.Int32
		fails.Store(failures)
		prepend(&w.kube.Fake, "update", "roles", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Add(-1) >= 0, nil, apierrors.NewInternalError(errors.New("unavailable"))
		})
		w.kube.ClearActions()
		next := []string{"a: pods"}
		for i := range roles {
			next = append(next, fmt.Sprintf("c%d: services", i))
		}
		w.members(roleSpec(next...))
		time.Sleep(time.Minute)
		var revoked, given, before int // before: additions before the last revocation in time
		for _, a := range w.kube.Actions() {
			if a.GetResource().Resource != "roles" {
				continue
			}
			switch a.GetVerb() {
			case "delete", "update":
				if revoked++; revoked == 2*namespaces {
					before = given
				}
			case "create":
				given++
			}
		}
		if revoked != 2*namespaces+failures || given != roles*namespaces {
			t.Errorf("%d removals and %d creations, want %d and %d", revoked, given, 2*namespaces+failures, roles*namespaces)
		}
		if before >= given/2 {
			t.Errorf("%d of %d Roles were created before the first attempts of all removals", before, given)
		}
		for i := range namespaces {
			w.expectRoles("afterwards", fmt.Sprint("acme--", i), next...)
		}
	})
}

// TestRolesBetweenSteps checks that a Role is deleted even if the leader stopped after it wrote
// the Role and before it marked the namespace as prepared.
func TestRolesBetweenSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(nothing)
		prepend(&w.kube.Fake, "patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, context.Canceled
		})
		w.members(roleSpec("a: pods"))
		w.expectRoles("written, but not marked as prepared", "acme--web", "a: pods")
		if got := w.prepared("acme--web"); got != "" {
			t.Fatalf("marked as prepared: %s", got)
		}
		w.stop()
		w.members("")
		w.start()
		w.settle()
		w.expectRoles("with the next leader", "acme--web")
	})
}

// TestRolesWhileMembersAreUnknown checks that Roles remain while TenantMembers cannot be read.
// Even a Tenant without spec.memberRoles then reports the cause.
func TestRolesWhileMembersAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(nothing)
		w.members(roleSpec("a: pods"))
		w.stop()
		var refused atomic.Bool
		refused.Store(true)
		prepend(&w.dynamic.Fake, "list", v1alpha1.ResourceTenantMembers,
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return refused.Load(), nil, apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceTenantMembers), "")
			})
		w.start()
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		time.Sleep(11 * time.Minute)
		w.expectRoles("while they are unknown", "acme--web", "a: pods")
		w.missing.set(v1alpha1.ResourceTenantMembers)
		w.settle()
		if got, want := w.reasons(), "Ready=False/DefinitionMissing Prepared=False/DefinitionMissing"; got != want {
			t.Errorf("while they are unknown: %q, want %q", got, want)
		}
		refused.Store(false)
		w.missing.set()
		time.Sleep(time.Minute)
		w.expectRoles("afterwards", "acme--web", "a: pods")
		w.expect("afterwards", "acme--web", "kubetenant:admins admin: peter")
	})
}
