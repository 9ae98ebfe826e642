// Package privileges finds what reaches an identity in a cluster, and who may do what: roles and bindings,
// grants between tenants and lines of the policy file, behind the tenant boundary.
package privileges

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// pageSize is how many objects one answer holds: 100,000 bindings are 20 requests.
	pageSize = 5000
	protobuf = "application/vnd.kubernetes.protobuf"
)

// Key names an object of a namespace; of the cluster with an empty one.
type Key struct{ Namespace, Name string }

// Policy is what a cluster says about privileges.
type Policy struct {
	// Owners are the values of the tenant label by namespace, "" where there is none.
	Owners map[string]string
	// Roles are Roles, and with an empty namespace ClusterRoles.
	Roles map[Key]*Role
	// Bindings are those that were kept.
	Bindings []*Binding
	Grants   []*unstructured.Unstructured
	// Quotas says whom TenantQuotas are about, by their names.
	Quotas map[string]tenant.ID
	// Scopes are those of custom resources.
	Scopes map[schema.GroupResource]authz.Scope
	// Unread are the kinds that the caller may not list.
	Unread []string
}

// Role is a Role or ClusterRole.
type Role struct {
	Rules      []rbacv1.PolicyRule
	Labels     map[string]string
	Aggregates []metav1.LabelSelector
}

// Binding is a RoleBinding, or with an empty namespace a ClusterRoleBinding.
type Binding struct {
	Namespace, Name string
	Labels          map[string]string
	// Scope is the annotation by which a ClusterRoleBinding is limited to the spaces of some tenants.
	Scope    string
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// Kind returns the binding's kind.
func (b *Binding) Kind() string {
	if b.Namespace == "" {
		return "ClusterRoleBinding"
	}
	return "RoleBinding"
}

// RoleKey returns the role that the binding refers to.
func (b *Binding) RoleKey() Key {
	if b.RoleRef.Kind == "ClusterRole" {
		return Key{Name: b.RoleRef.Name}
	}
	return Key{b.Namespace, b.RoleRef.Name}
}

// Selection says what to read.
type Selection struct {
	// Namespace is the only one to read Roles, RoleBindings and grants of; empty for all.
	Namespace string
	// Keep reports whether a binding matters; it is called when all roles are known. Nil keeps all. What is
	// not kept costs no memory.
	Keep func(*Policy, *Binding) bool
	// Grants are read too, and Scopes of custom resources and whom quotas are about.
	Grants, Scopes bool
}

// Read reads from the cluster. A kind that the caller may not list is left out and named in Unread. read is
// told of the number of objects so far.
func Read(ctx context.Context, config *rest.Config, s Selection, read func(objects int64)) (*Policy, error) {
	fast := rest.CopyConfig(config)
	fast.ContentType, fast.AcceptContentTypes = protobuf, protobuf+",application/json"
	k, err := kubernetes.NewForConfig(fast)
	if err != nil {
		return nil, err
	}
	r := &reader{p: &Policy{Owners: map[string]string{}, Roles: map[Key]*Role{}, Quotas: map[string]tenant.ID{}, Scopes: map[schema.GroupResource]authz.Scope{}}, told: read}
	namespaces, roles, bindings := k.CoreV1().Namespaces(), k.RbacV1().Roles(s.Namespace), k.RbacV1().RoleBindings(s.Namespace)
	for _, list := range []struct {
		kind string
		page pageFunc
		each func(runtime.Object)
	}{
		{"Namespaces", func(o metav1.ListOptions) (runtime.Object, error) { return namespaces.List(ctx, o) }, r.namespace},
		{"ClusterRoles", func(o metav1.ListOptions) (runtime.Object, error) { return k.RbacV1().ClusterRoles().List(ctx, o) }, r.role},
		{"Roles", func(o metav1.ListOptions) (runtime.Object, error) { return roles.List(ctx, o) }, r.role},
		{"ClusterRoleBindings", func(o metav1.ListOptions) (runtime.Object, error) {
			return k.RbacV1().ClusterRoleBindings().List(ctx, o)
		}, r.keep(s.Keep)},
		{"RoleBindings", func(o metav1.ListOptions) (runtime.Object, error) { return bindings.List(ctx, o) }, r.keep(s.Keep)},
	} {
		if err := r.list(ctx, list.kind, list.page, list.each); err != nil {
			return nil, err
		}
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if s.Scopes {
		crds := d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if err := r.list(ctx, "CustomResourceDefinitions", func(o metav1.ListOptions) (runtime.Object, error) { return crds.List(ctx, o) }, r.scope); err != nil {
			return nil, err
		}
		all := d.Resource(schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "tenantquotas"})
		err := r.list(ctx, "TenantQuotas", func(o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) }, func(obj runtime.Object) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				r.p.Quotas[u.GetName()] = simulator.QuotaTenant(u)
			}
		})
		if err != nil && !apierrors.IsNotFound(err) { // a server may know no quotas
			return nil, err
		}
	}
	if !s.Grants {
		return r.p, nil
	}
	grants := d.Resource(schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "accessgrants"}).Namespace(s.Namespace)
	err = r.list(ctx, "AccessGrants", func(o metav1.ListOptions) (runtime.Object, error) { return grants.List(ctx, o) }, func(obj runtime.Object) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			r.p.Grants = append(r.p.Grants, u)
		}
	})
	if apierrors.IsNotFound(err) { // the server knows no grants
		err = nil
	}
	return r.p, err
}

// pageFunc lists one page.
type pageFunc = func(metav1.ListOptions) (runtime.Object, error)

// reader fills a policy.
type reader struct {
	p     *Policy
	count atomic.Int64
	told  func(int64)
}

func (r *reader) list(ctx context.Context, kind string, page pageFunc, each func(runtime.Object)) error {
	pages := pager.New(pager.SimplePageFunc(page))
	pages.PageSize = pageSize
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		each(obj)
		if n := r.count.Add(1); r.told != nil && n%1000 == 0 {
			r.told(n)
		}
		return nil
	})
	switch {
	case apierrors.IsForbidden(err):
		r.p.Unread = append(r.p.Unread, kind)
		return nil
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return fmt.Errorf("list %s: %w", kind, err)
	}
	return nil
}

func (r *reader) namespace(obj runtime.Object) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		r.p.Owners[ns.Name] = ns.Labels[tenant.Label]
	}
}

func (r *reader) scope(obj runtime.Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	resource, scope := simulator.ScopeOf(u)
	r.p.Scopes[resource] = scope
}

func (r *reader) role(obj runtime.Object) { r.p.addRole(obj) }

// addRole adds a Role or ClusterRole.
func (p *Policy) addRole(obj runtime.Object) {
	switch role := obj.(type) {
	case *rbacv1.ClusterRole:
		added := &Role{Rules: role.Rules, Labels: role.Labels}
		if role.AggregationRule != nil {
			added.Aggregates = role.AggregationRule.ClusterRoleSelectors
		}
		p.Roles[Key{Name: role.Name}] = added
	case *rbacv1.Role:
		p.Roles[Key{role.Namespace, role.Name}] = &Role{Rules: role.Rules, Labels: role.Labels}
	}
}

// bindingOf returns the binding that obj is.
func bindingOf(obj runtime.Object) *Binding {
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		return &Binding{Name: b.Name, Labels: b.Labels, Scope: b.Annotations[tenant.ScopeAnnotation], RoleRef: b.RoleRef, Subjects: b.Subjects}
	case *rbacv1.RoleBinding:
		return &Binding{Namespace: b.Namespace, Name: b.Name, Labels: b.Labels, RoleRef: b.RoleRef, Subjects: b.Subjects}
	}
	return nil
}

func (r *reader) keep(keep func(*Policy, *Binding) bool) func(runtime.Object) {
	return func(obj runtime.Object) {
		if b := bindingOf(obj); b != nil && (keep == nil || keep(r.p, b)) {
			r.p.Bindings = append(r.p.Bindings, b)
		}
	}
}

// Owner returns the tenant that owns a namespace; the zero ID where it is nobody's or not known.
func (p *Policy) Owner(namespace string) tenant.ID {
	label, known := p.Owners[namespace]
	switch {
	case !known:
		return tenant.ID{}
	case label == "":
		return tenant.System()
	}
	id, err := tenant.Parse(label)
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// Objects returns the policy as the engine takes it.
func (p *Policy) Objects() *simulator.Objects {
	o := &simulator.Objects{Namespaces: make([]*corev1.Namespace, 0, len(p.Owners)), Scopes: p.Scopes, Quotas: p.Quotas}
	for name, owner := range p.Owners {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if owner != "" {
			ns.Labels = map[string]string{tenant.Label: owner}
		}
		o.Namespaces = append(o.Namespaces, ns)
	}
	for key, role := range p.Roles {
		meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		if key.Namespace == "" {
			o.Policy = append(o.Policy, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: role.Rules})
		} else {
			o.Policy = append(o.Policy, &rbacv1.Role{ObjectMeta: meta, Rules: role.Rules})
		}
	}
	for _, b := range p.Bindings {
		meta := metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name}
		if b.Scope != "" {
			meta.Annotations = map[string]string{tenant.ScopeAnnotation: b.Scope}
		}
		if b.Namespace == "" {
			o.Policy = append(o.Policy, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: b.RoleRef, Subjects: b.Subjects})
		} else {
			o.Policy = append(o.Policy, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: b.RoleRef, Subjects: b.Subjects})
		}
	}
	for _, g := range p.Grants {
		o.Grants = append(o.Grants, g)
	}
	return o
}

// FromObjects returns what objects of a file say.
func FromObjects(o *simulator.Objects) *Policy {
	r := &reader{p: &Policy{Owners: map[string]string{}, Roles: map[Key]*Role{}, Scopes: o.Scopes, Quotas: o.Quotas}}
	for _, ns := range o.Namespaces {
		r.namespace(ns)
	}
	for _, obj := range o.Policy {
		r.role(obj)
		if b := bindingOf(obj); b != nil {
			r.p.Bindings = append(r.p.Bindings, b)
		}
	}
	for _, g := range o.Grants {
		if u, ok := g.(*unstructured.Unstructured); ok {
			r.p.Grants = append(r.p.Grants, u)
		}
	}
	return r.p
}
