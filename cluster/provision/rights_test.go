// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/provision"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func admins(all ...v1alpha1.Subject) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) { s.Admins = all }
}

func (w *fixture) clusterRoles() string {
	w.t.Helper()
	list, err := w.kube.RbacV1().ClusterRoles().List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (w *fixture) clusterRoleBindings() string {
	w.t.Helper()
	list, err := w.kube.RbacV1().ClusterRoleBindings().List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestDerivedRights checks that, if the server derives rights, the engine creates the
// ClusterRoles of these rights once, and no ClusterRoleBinding.
func TestDerivedRights(t *testing.T) {
	const both = v1alpha1.NamespacesRole + " " + v1alpha1.MemberRole
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.tenant(admins(peter, mary))
		w.namespace("acme--web", "acme", nil)
		time.Sleep(time.Minute)
		if got := w.clusterRoles(); got != "" {
			t.Errorf("ClusterRoles %q although the server does not derive rights", got)
		}
		w.derives.Store(true)
		time.Sleep(10 * time.Second)
		if got := w.clusterRoles(); got != both {
			t.Errorf("ClusterRoles %q, want %q", got, both)
		}
		w.must(w.kube.RbacV1().ClusterRoles().Delete(t.Context(), v1alpha1.NamespacesRole, metav1.DeleteOptions{}))
		time.Sleep(time.Hour)
		if got := w.clusterRoles(); got != v1alpha1.MemberRole {
			t.Errorf("ClusterRoles %q: a role that was deleted is created again", got)
		}
		if got := w.clusterRoleBindings(); got != "" {
			t.Errorf("ClusterRoleBindings %q", got)
		}
	})
}

// TestDerivedRolesAreRetried checks that an existing ClusterRole is not changed, and that a
// failed creation is retried.
func TestDerivedRolesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		_, err := w.kube.RbacV1().ClusterRoles().Create(t.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespacesRole}}, metav1.CreateOptions{})
		w.must(err)
		var fails atomic.Bool
		fails.Store(true)
		prepend(&w.kube.Fake, "create", "clusterroles", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, errors.New("unavailable")
		})
		w.derives.Store(true)
		time.Sleep(time.Minute)
		fails.Store(false)
		time.Sleep(10 * time.Second)
		role, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), v1alpha1.NamespacesRole, metav1.GetOptions{})
		if err != nil || len(role.Rules) > 0 {
			t.Errorf("the existing role was changed: %v, %v", role, err)
		}
		if _, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), v1alpha1.MemberRole, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestEarlierRoles checks that WriteRole updates an existing role only if its rules are exactly
// those that an earlier release created.
func TestEarlierRoles(t *testing.T) {
	shared := []schema.GroupResource{{Group: "storage.k8s.io", Resource: "storageclasses"}}
	for _, current := range []*rbacv1.ClusterRole{provision.NamespacesRole(), provision.MemberRole(shared)} {
		earlier := current.DeepCopy()
		earlier.Rules = earlier.Rules[:2]
		earlier.Rules[1].Verbs = slices.DeleteFunc(earlier.Rules[1].Verbs, func(v string) bool { return v == "watch" })
		less, more, aggregated := earlier.DeepCopy(), earlier.DeepCopy(), earlier.DeepCopy()
		previous, before, done := current.DeepCopy(), current.DeepCopy(), ""
		if n := len(current.Rules); current.Name == v1alpha1.MemberRole { // the last rules are for usage and fair use
			previous.Rules, done = slices.Delete(previous.Rules, n-2, n-1), "updated"
			before.Rules = before.Rules[:n-2]
		}
		less.Rules = less.Rules[:1]
		more.Rules[1].Verbs = append(more.Rules[1].Verbs, "deletecollection")
		aggregated.AggregationRule = &rbacv1.AggregationRule{}
		for name, c := range map[string]struct {
			stored *rbacv1.ClusterRole
			done   string
		}{
			"missing":    {nil, "created"},
			"earlier":    {earlier, "updated"},
			"previous":   {previous, done},
			"before":     {before, done},
			"current":    {current, ""},
			"less":       {less, ""},
			"more":       {more, ""},
			"aggregated": {aggregated, ""},
		} {
			t.Run(name, func(t *testing.T) {
				client := fake.NewClientset()
				if c.stored != nil {
					client = fake.NewClientset(c.stored.DeepCopy())
				}
				roles := client.RbacV1().ClusterRoles()
				done, err := provision.WriteRole(t.Context(), roles, current.DeepCopy(), metav1.CreateOptions{})
				if done != c.done || err != nil {
					t.Errorf("%s, %s: %q, %v; want %q", current.Name, name, done, err, c.done)
				}
				want := current
				if c.done == "" {
					want = c.stored
				}
				got, err := roles.Get(t.Context(), current.Name, metav1.GetOptions{})
				if err != nil || !equality.Semantic.DeepEqual(got.Rules, want.Rules) {
					t.Errorf("%s, %s: rules %v, %v; want %v", current.Name, name, got, err, want.Rules)
				}
			})
		}
	}
}

// TestMemberRole checks that MemberRole allows reads of all resources that the configuration
// shares by default. The ClusterRole in the example manifest must allow all requests to resources
// that MemberRole and NamespacesRole allow.
func TestMemberRole(t *testing.T) {
	settings := &configv1alpha1.Settings{}
	configv1alpha1.Default(settings)
	var shared []schema.GroupResource
	for _, r := range settings.Authorization.SharedClusterResources {
		shared = append(shared, schema.GroupResource{Group: r.Group, Resource: r.Resource})
	}
	text, err := os.ReadFile("../../examples/manifests/tenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), example); err != nil {
		t.Fatal(err)
	}
	allows := func(rules []rbacv1.PolicyRule, group, resource, verb string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
				slices.Contains(r.Verbs, verb)
		})
	}
	role := provision.MemberRole(shared)
	for _, r := range shared {
		for _, verb := range []string{"get", "list", "watch"} {
			if !allows(role.Rules, r.Group, r.Resource, verb) {
				t.Errorf("%s does not allow %s of %v", role.Name, verb, r)
			}
		}
	}
	for _, rule := range append(role.Rules, provision.NamespacesRole().Rules...) {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				if !allows(example.Rules, rule.APIGroups[0], resource, verb) {
					t.Errorf("the example does not allow %s of %s", verb, resource)
				}
			}
		}
	}
}

// TestBindingsOfEarlierRelease checks that the ClusterRoleBindings of an earlier release are
// deleted, even if a first attempt fails, and whether or not the server derives rights. Other
// bindings remain.
func TestBindingsOfEarlierRelease(t *testing.T) {
	for _, webhook := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			w.stop()
			create := func(name, of string, isManaged bool) {
				b := &rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.OfTenantLabel: of}},
				}
				if isManaged {
					b.Labels[tenant.ManagedLabel] = managed.SourceTenant
				}
				_, err := w.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), b, metav1.CreateOptions{})
				w.must(err)
			}
			create("kubetenant:admins:acme", "acme", true)
			create("kubetenant:admins:gone", "gone", true) // its Tenant was deleted
			create("kubetenant:admins:own", "own", false)
			create("kubetenant:admins:other", "acme", true)
			create("kubetenant:tenant-member:acme", "acme", false)
			var fails atomic.Bool
			fails.Store(true)
			prepend(&w.kube.Fake, "delete", "clusterrolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails.Load(), nil, errors.New("unavailable")
			})
			w.webhook = webhook
			w.start()
			time.Sleep(time.Minute)
			fails.Store(false)
			time.Sleep(10 * time.Second)
			const want = "kubetenant:admins:other kubetenant:admins:own kubetenant:tenant-member:acme"
			if got := w.clusterRoleBindings(); got != want {
				t.Errorf("ClusterRoleBindings %q, want %q", got, want)
			}
			create("kubetenant:admins:acme", "acme", true) // by a server of the earlier release
			time.Sleep(11 * time.Minute)
			if got := w.clusterRoleBindings(); got != want {
				t.Errorf("later: ClusterRoleBindings %q, want %q", got, want)
			}
		})
	}
}

// TestBindingsWithoutTenant checks that a managed binding in a namespace without a tenant is
// deleted. Other bindings remain, including those of a tenant whose Tenant is unknown.
func TestBindingsWithoutTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("released", "", nil)
		w.namespace("other--web", "other", nil)
		create := func(namespace, name string, labels map[string]string) {
			_, err := w.kube.RbacV1().RoleBindings(namespace).Create(t.Context(),
				&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
			w.must(err)
		}
		ours := map[string]string{tenant.ManagedLabel: managed.SourceTenant}
		create("released", "kubetenant:admins", ours)
		create("released", "own", nil)
		w.undefined.Store(true) // no Tenant is known
		create("other--web", "kubetenant:admins", ours)
		time.Sleep(11 * time.Minute)
		list, err := w.kube.RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
		w.must(err)
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		slices.Sort(got)
		if want := []string{"other--web/kubetenant:admins", "released/own"}; !slices.Equal(got, want) {
			t.Errorf("RoleBindings %q, want %q", got, want)
		}
	})
}
