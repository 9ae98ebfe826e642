// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// tenantCluster is a cluster whose discovery returns the resources that the tests need.
type tenantCluster struct{ kubernetes.Interface }

func (c tenantCluster) Discovery() discovery.DiscoveryInterfaces {
	return tenantDiscovery{c.Interface.Discovery()}
}

type tenantDiscovery struct{ discovery.DiscoveryInterfaces }

func (tenantDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	list := metav1.Verbs{"list"}
	return []*metav1.APIResourceList{
		{
			GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "configmaps", Namespaced: true, Verbs: list},
				{Name: "serviceaccounts", Namespaced: true, Verbs: list},
				{Name: "events", Namespaced: true, Verbs: list},
				{Name: "bindings", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			},
		},
		{
			GroupVersion: "events.k8s.io/v1",
			APIResources: []metav1.APIResource{{Name: "events", Namespaced: true, Verbs: list}},
		},
		{
			GroupVersion: "rbac.authorization.k8s.io/v1",
			APIResources: []metav1.APIResource{{Name: "rolebindings", Namespaced: true, Verbs: list}},
		},
		{
			GroupVersion: "networking.k8s.io/v1",
			APIResources: []metav1.APIResource{{Name: "networkpolicies", Namespaced: true, Verbs: list}},
		},
	}, nil
}

func object(apiVersion, kind, namespace, name, by string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	u.SetNamespace(namespace)
	u.SetName(name)
	if by != "" {
		u.SetLabels(map[string]string{tenant.Domain + "/made-by": by})
	}
	return u
}

func quota(name, owner string) *unstructured.Unstructured {
	u := object(tenant.Domain+"/v1alpha1", "TenantQuota", "", name, "")
	u.Object["spec"] = map[string]any{"tenant": owner, "hard": map[string]any{"pods": "10", "services": "5"}}
	u.Object["status"] = map[string]any{"used": map[string]any{"pods": "3"}}
	return u
}

// objects returns a dynamic client with the given objects.
func objects(all ...runtime.Object) *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{}
	for _, r := range []struct{ group, version, resource, kind string }{
		{"", "v1", "configmaps", "ConfigMapList"},
		{"", "v1", "serviceaccounts", "ServiceAccountList"},
		{"", "v1", "events", "EventList"},
		{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBindingList"},
		{"rbac.authorization.k8s.io", "v1", "roles", "RoleList"},
		{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicyList"},
		{tenant.Domain, "v1alpha1", "tenantquotas", "TenantQuotaList"},
		{tenant.Domain, "v1alpha1", "tenants", "TenantList"},
		{tenant.Domain, "v1alpha1", "retiredtenants", "RetiredTenantList"},
	} {
		kinds[schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.resource}] = r.kind
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, all...)
}

// everywhere returns the objects that controllers and kubectl tenant create in each namespace, and
// two quotas.
func everywhere() []runtime.Object {
	given := object("rbac.authorization.k8s.io/v1", "RoleBinding", "acme--web", "kubetenant:admins", "")
	given.SetLabels(map[string]string{tenant.ManagedLabel: "tenant"})
	return []runtime.Object{
		given, object("v1", "ConfigMap", "acme--web", "kube-root-ca.crt", ""),
		object("v1", "ServiceAccount", "acme--web", "default", ""),
		object("v1", "Event", "acme--web", "x", ""),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", "acme--web", "admin", "kubectl-tenant"),
		quota("acme", "acme"), quota("globex", "globex"),
	}
}

func ofAcme() *fake.Clientset {
	of := map[string]string{tenant.Domain + "/of-tenant": "acme"}
	return fake.NewClientset(namespace("acme--web", "acme"), namespace("globex--shop", "globex"),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "members", Labels: of}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "others"}})
}

// deleted returns the requested deletions as text, each with its dry run option and its UID.
func deleted(actions ...clienttesting.Action) (all []string) {
	for _, a := range actions {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			text := strings.Join(append(d.DeleteOptions.DryRun, d.Resource.Resource, d.Name), " ")
			if p := d.DeleteOptions.Preconditions; p != nil && p.UID != nil {
				text += " " + string(*p.UID)
			}
			all = append(all, text)
		}
	}
	return all
}

// TestDelete checks that only the namespaces, bindings and quotas of an empty tenant are deleted.
// If the tenant has a Tenant object, only this object is deleted. In a server dry run, all
// requests are dry runs. In a client dry run, no write is sent.
func TestDelete(t *testing.T) {
	want := []string{"namespaces acme--web 1", "clusterrolebindings members ", "tenantquotas acme"}
	wantPrinted := []string{
		`namespace "acme--web" deleted`, `clusterrolebinding.rbac.authorization.k8s.io "members" deleted`,
		`tenantquota.kubetenant.dev "acme" deleted`,
	}
	ends := []string{
		"the server deletes the namespaces of tenant acme (namespaces: 1), its bindings and its quotas, and reserves its " +
			"name",
		`tenant.kubetenant.dev "acme" deleted`,
	}
	dry := tenancy.Writing{DryRun: []string{"All"}}
	for name, c := range map[string]struct {
		how           tenancy.Deletion
		object        bool
		want, patched []string
		said          []string
	}{
		"no dry run":     {tenancy.Deletion{}, false, want, nil, wantPrinted},
		"client dry run": {tenancy.Deletion{ClientDryRun: true}, false, nil, nil, wantPrinted},
		"server dry run": {
			tenancy.Deletion{Writing: dry},
			false,
			[]string{"All " + want[0], "All " + want[1], "All " + want[2]},
			nil,
			wantPrinted,
		},
		"Tenant, no dry run": {
			tenancy.Deletion{},
			true,
			[]string{"tenants acme uid-acme"},
			[]string{`{"metadata":{"uid":"uid-acme"},"spec":{"deletionPolicy":"Delete"}}`},
			ends,
		},
		"Tenant, client dry run": {tenancy.Deletion{ClientDryRun: true}, true, nil, nil, ends},
		"Tenant, server dry run": {
			tenancy.Deletion{Writing: dry}, true, nil, []string{`All {"spec":{"deletionPolicy":"Delete"}}`}, ends,
		},
		"Tenant, wait": {
			tenancy.Deletion{Wait: time.Minute},
			true,
			[]string{"tenants acme uid-acme"},
			[]string{`{"metadata":{"uid":"uid-acme"},"spec":{"deletionPolicy":"Delete"}}`},
			ends,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := object("networking.k8s.io/v1", "NetworkPolicy", "acme--web", "kubetenant-own-tenant", "kubectl-tenant")
			k, d := ofAcme(), objects(append(everywhere(), own)...)
			if c.object {
				addTenant(t, d)
			}
			var printed []string
			c.how.Changes, c.how.Printf = newWriting(&printed).Changes, appendTo(&printed)
			if err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), c.how); err != nil {
				t.Errorf("%v", err)
			}
			var patched []string
			for _, a := range d.Actions() {
				if p, ok := a.(clienttesting.PatchActionImpl); ok {
					patched = append(patched, strings.TrimSpace(strings.Join(p.PatchOptions.DryRun, " ")+" "+string(p.Patch)))
				}
			}
			same(t, name, c.want, deleted(append(k.Actions(), d.Actions()...)...))
			same(t, name+": patched", c.patched, patched)
			same(t, name+": said", c.said, printed)
		})
	}
}

// addTenant adds the Tenant acme.
func addTenant(t *testing.T, d *dynamicfake.FakeDynamicClient) {
	t.Helper()
	u := tenancy.Object(tenanttest.ID(t, "acme"))
	u.SetUID("uid-acme")
	if err := d.Tracker().Create(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants), u, ""); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteIsConfirmed checks that nothing is deleted if Confirm returns an error. Confirm is not
// called in a dry run.
func TestDeleteIsConfirmed(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		how   tenancy.Deletion
		asked bool
	}{
		"no dry run":     {tenancy.Deletion{}, true},
		"client dry run": {tenancy.Deletion{ClientDryRun: true}, false},
		"server dry run": {tenancy.Deletion{Writing: tenancy.Writing{DryRun: []string{"All"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k, d := ofAcme(), objects(everywhere()...)
			var confirmed []string
			c.how.Printf = func(string, ...any) {}
			c.how.Confirm = func(namespaces []string) error {
				confirmed = namespaces
				return no
			}
			err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), c.how)
			if errors.Is(err, no) != c.asked || (len(confirmed) > 0) != c.asked ||
				c.asked && len(deleted(append(k.Actions(), d.Actions()...)...)) > 0 {
				t.Errorf("Confirm called with %v, %v", confirmed, err)
			}
		})
	}
}

// TestDeleteWaits checks that Delete waits until the Tenant is deleted or replaced, and reports the
// server's messages.
func TestDeleteWaits(t *testing.T) {
	for name, c := range map[string]struct {
		conditions []any
		after      func(*dynamicfake.FakeDynamicClient) error
		waited     string
		err        error
	}{
		"deletion not started": {nil, nil, "waiting for the server to start the deletion", tenancy.ErrDeletionPending},
		"held": {
			[]any{
				map[string]any{"type": "DeletionHeld", "status": "True", "message": "too many"},
				map[string]any{"type": "Deleting", "status": "True", "message": "2 namespaces are left"},
			},
			nil,
			"too many",
			tenancy.ErrDeletionPending,
		},
		"in progress": {
			[]any{
				map[string]any{"type": "DeletionHeld", "status": "False", "message": "too many"},
				map[string]any{"type": "Deleting", "status": "True", "message": "2 namespaces are left"},
			},
			nil,
			"2 namespaces are left",
			tenancy.ErrDeletionPending,
		},
		"deleted": {nil, func(d *dynamicfake.FakeDynamicClient) error {
			return d.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants), "", "acme")
		}, "waiting for the server to start the deletion", nil},
		"replaced": {nil, func(d *dynamicfake.FakeDynamicClient) error {
			u := tenancy.Object(tenanttest.ID(t, "acme"))
			u.SetUID("another")
			return d.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants), u, "")
		}, "waiting for the server to start the deletion", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, d := ofAcme(), objects(everywhere()...)
				addTenant(t, d)
				// The Tenant has a finalizer, so the deletion does not remove it.
				d.PrependReactor("delete", "tenants", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, nil
				})
				u, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).
					Get(t.Context(), "acme", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				u.Object["status"] = map[string]any{"conditions": c.conditions}
				kind := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
				if err := d.Tracker().Update(kind, u, ""); err != nil {
					t.Fatal(err)
				}
				if c.after != nil {
					go func() {
						time.Sleep(30 * time.Second)
						if err := c.after(d); err != nil {
							t.Error(err)
						}
					}()
				}
				waited := ""
				opts := tenancy.Deletion{
					Writing:    tenancy.Writing{Printf: func(string, ...any) {}},
					Wait:       time.Minute,
					OnProgress: func(what string) { waited = what },
				}
				if err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), opts); !errors.Is(
					err,
					c.err,
				) ||
					waited != c.waited {
					t.Errorf("waited for %q, %v", waited, err)
				}
			})
		})
	}
}

// TestDeleteNotEmpty checks that a user's objects in a namespace are reported and block the
// deletion, unless Everything is set. Objects that every namespace has are ignored, but similar
// objects with another name are not.
func TestDeleteNotEmpty(t *testing.T) {
	for want, obj := range map[string]runtime.Object{
		"configmaps in acme--web: 1":      object("v1", "ConfigMap", "acme--web", "settings", ""),
		"serviceaccounts in acme--web: 1": object("v1", "ServiceAccount", "acme--web", "robot", ""),
		"rolebindings.rbac.authorization.k8s.io in acme--web: 1": object("rbac.authorization.k8s.io/v1", "RoleBinding",
			"acme--web", "theirs", ""),
		"networkpolicies.networking.k8s.io in acme--web: 1": object("networking.k8s.io/v1", "NetworkPolicy", "acme--web",
			"kubetenant-own-tenant", ""),
	} {
		t.Run(want, func(t *testing.T) {
			k, d := ofAcme(), objects(append(everywhere(), obj)...)
			opts := tenancy.Deletion{Writing: tenancy.Writing{Printf: func(string, ...any) {}}}
			err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), opts)
			if !errors.Is(err, tenancy.ErrNotEmpty) || !strings.HasSuffix(err.Error(), "it contains "+want) ||
				len(deleted(k.Actions()...)) > 0 {
				t.Errorf("%v, deleted %v", err, deleted(k.Actions()...))
			}
			opts.Everything = true
			if err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), opts); err != nil ||
				len(deleted(k.Actions()...)) != 2 {
				t.Errorf("%s, everything: %v, deleted %v", want, err, deleted(k.Actions()...))
			}
		})
	}
}

// TestDeleteRefusesASystemNamespace checks that a tenant is not deleted if a system namespace has
// its label. The error contains the command that releases the namespace.
func TestDeleteRefusesASystemNamespace(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *dynamicfake.FakeDynamicClient){
		"without a Tenant": func(*testing.T, *dynamicfake.FakeDynamicClient) {},
		"with a Tenant":    addTenant,
	} {
		t.Run(name, func(t *testing.T) {
			k, d := ofAcme(), objects(everywhere()...)
			change(t, d)
			opts := tenancy.Deletion{
				Writing:    tenancy.Writing{Printf: func(string, ...any) {}},
				Everything: true,
				System:     []string{"kube-system", "acme--web"},
			}
			err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), opts)
			if !errors.Is(err, tenancy.ErrRefused) || !strings.Contains(err.Error(), "acme--web") ||
				!strings.Contains(err.Error(), "kubectl tenant release") {
				t.Errorf("%v", err)
			}
			if all := deleted(append(k.Actions(), d.Actions()...)...); len(all) > 0 {
				t.Errorf("deleted %v", all)
			}
		})
	}
}

// TestDeleteFails checks that a tenant without any objects is reported as missing. Delete returns
// an error if a read or a deletion is denied, but ignores missing objects.
func TestDeleteFails(t *testing.T) {
	notFound := func(resource string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "x")
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("no"))
	opts := tenancy.Deletion{Writing: tenancy.Writing{Printf: func(string, ...any) {}}}
	if err := tenancy.Delete(
		t.Context(), tenantCluster{ofAcme()}, objects(), tenanttest.ID(t, "initech"), opts,
	); !errors.Is(err, tenancy.ErrNoTenant) {
		t.Errorf("tenant without objects: %v", err)
	}
	for name, c := range map[string]struct {
		verb, resource string
		err, want      error
	}{
		"list of namespaces denied":      {"list", "namespaces", forbidden, tenancy.ErrRefused},
		"list of bindings denied":        {"list", "clusterrolebindings", forbidden, tenancy.ErrRefused},
		"list of quotas denied":          {"list", "tenantquotas", forbidden, tenancy.ErrRefused},
		"quotas not served":              {"list", "tenantquotas", notFound("tenantquotas"), nil},
		"list of contents denied":        {"list", "configmaps", forbidden, tenancy.ErrRefused},
		"resource no longer served":      {"list", "configmaps", notFound("configmaps"), nil},
		"deletion of a namespace denied": {"delete", "namespaces", forbidden, tenancy.ErrRefused},
		"namespace already deleted":      {"delete", "namespaces", notFound("namespaces"), nil},
		"deletion of a binding denied":   {"delete", "clusterrolebindings", forbidden, tenancy.ErrRefused},
		"deletion of a quota denied":     {"delete", "tenantquotas", forbidden, tenancy.ErrRefused},
		"read of the Tenant denied":      {"get", "tenants", forbidden, tenancy.ErrRefused},
		"Tenants not served":             {"get", "tenants", notFound("tenants"), nil},
		"deletion of the Tenant denied":  {"delete", "tenants", forbidden, tenancy.ErrRefused},
		"Tenant already deleted":         {"delete", "tenants", notFound("tenants"), nil},
		"patch of the Tenant denied":     {"patch", "tenants", forbidden, tenancy.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			k, d := ofAcme(), objects(everywhere()...)
			if strings.Contains(name, "Tenant") && name != "no Tenants" {
				addTenant(t, d)
			}
			refuse(&k.Fake, c.verb, c.resource, c.err)
			refuse(&d.Fake, c.verb, c.resource, c.err)
			if c.verb == "delete" && c.resource == "namespaces" && c.want == nil { // another caller deleted the namespace
				k.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					_ = k.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "acme--web")
					return true, nil, c.err
				})
			}
			if err := tenancy.Delete(t.Context(), tenantCluster{k}, d, tenanttest.ID(t, "acme"), opts); !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestList checks that a tenant is listed if it owns a namespace, or has a Tenant, a quota or a
// binding of its members. Its admins are the subjects that are bound to the role admin in its
// namespaces, and its own group.
func TestList(t *testing.T) {
	role := func(name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: "ClusterRole", Name: name} }
	group := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }
	p, err := simulator.NewSnapshot().With(namespace("acme--web", "acme"), namespace("acme--db", "acme"),
		namespace("kube-system", ""))
	if err != nil {
		t.Fatal(err)
	}
	p.Unread = []string{"Roles"}
	p.Bindings = []*simulator.Binding{
		{
			Name:    "made",
			Labels:  map[string]string{tenant.Domain + "/of-tenant": "empty"},
			RoleRef: role("kubetenant:tenant-member"),
		},
		{
			Name:     "all",
			RoleRef:  role("cluster-admin"),
			Subjects: []rbacv1.Subject{group("tenant:initech"), group("ops"), {Kind: rbacv1.UserKind, Name: "tenant:x"}},
		},
		{
			Namespace: "acme--web",
			RoleRef:   role("admin"),
			Subjects:  []rbacv1.Subject{bob, alice, {Kind: rbacv1.ServiceAccountKind, Name: "robot"}},
		},
		{
			Namespace: "acme--db",
			RoleRef:   role("admin"),
			Subjects:  []rbacv1.Subject{alice, {Kind: rbacv1.ServiceAccountKind, Namespace: "ci", Name: "robot"}},
		},
		{Namespace: "acme--db", RoleRef: role("edit"), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "editor"}}},
		{Namespace: "kube-system", RoleRef: role("admin"), Subjects: []rbacv1.Subject{bob}},
	}
	list := func(d *dynamicfake.FakeDynamicClient) (got, unread []string, err error) {
		all, unread, err := tenancy.List(t.Context(), p, d, tenant.ID{})
		for _, a := range all {
			got = append(got, strings.Join([]string{
				a.Name, strings.Join(a.Namespaces, " "), strings.Join(a.Admins, ", "), a.AllUsage() + string(a.Access),
			}, "|"))
		}
		return got, unread, err
	}
	closed := tenancy.Object(tenanttest.ID(t, "initech"))
	closed.Object["spec"].(map[string]any)["access"] = "Closed"
	unnamed := tenancy.Object(tenanttest.ID(t, "ghost"))
	unnamed.SetName("other")
	got, unread, err := list(
		objects(quota("acme", "acme"), quota("other", "umbrella"), tenancy.Object(tenanttest.ID(t, "solo")), closed, unnamed),
	)
	same(t, "tenants", []string{
		"acme|acme--db acme--web|service account acme--web/robot, service account ci/robot, user alice, user bob|pods: " +
			"3/10, services: 0/5",
		"empty|||", "initech||group tenant:initech|Closed", "solo|||Open", "umbrella|||pods: 3/10, services: 0/5",
	}, got)
	same(t, "unread", []string{"Roles"}, unread)
	if err != nil {
		t.Error(err)
	}
	for resource, kind := range map[string]string{"tenantquotas": "TenantQuotas", "tenants": "Tenants"} {
		for name, c := range map[string]struct {
			err    error
			unread []string
			fails  bool
		}{
			"forbidden": {apierrors.NewForbidden(schema.GroupResource{}, "", nil), []string{"Roles", kind}, false},
			"unknown":   {apierrors.NewNotFound(schema.GroupResource{}, ""), []string{"Roles"}, false},
			"broken":    {errors.New("broken"), nil, true},
		} {
			t.Run(resource+" are "+name, func(t *testing.T) {
				d := objects()
				refuse(&d.Fake, "list", resource, c.err)
				_, unread, err := list(d)
				same(t, "unread", c.unread, unread)
				if (err != nil) != c.fails {
					t.Errorf("%v, want an error: %t", err, c.fails)
				}
			})
		}
	}
}

// TestUsage checks that Usage returns the first given quantity that is limited, or "" if none is
// limited.
func TestUsage(t *testing.T) {
	all, _, err := tenancy.List(t.Context(), simulator.NewSnapshot(), objects(quota("acme", "acme")), tenant.ID{})
	if err != nil {
		t.Fatal(err)
	}
	for want, names := range map[string][]corev1.ResourceName{
		"3/10": {"limits.cpu", "pods", "services"},
		"0/5":  {"services", "pods"},
		"":     {"limits.cpu"},
	} {
		t.Run(want, func(t *testing.T) {
			if got := all[0].Usage(names...); got != want {
				t.Errorf("Usage(%v) = %q, want %q", names, got, want)
			}
		})
	}
	if none := (&tenancy.Tenant{}); none.Usage("pods") != "" || none.AllUsage() != "" {
		t.Error("usage of a tenant without a quota")
	}
}
