// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/podsecurity"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Snapshot contains the objects of a cluster that decisions depend on. Add is not safe for
// concurrent use. After the last call of Add, reads are safe for concurrent use. Use NewSnapshot or
// Load to create a Snapshot.
type Snapshot struct {
	// Namespaces contains the namespaces of the cluster, keyed by name. Each has only the tenant
	// label, the PodSecurity labels, the deletion timestamp and the annotation for holding it.
	Namespaces map[string]*corev1.Namespace
	// Roles contains the Roles and the ClusterRoles. The key of a ClusterRole has no namespace.
	Roles map[Key]*Role
	// Bindings contains the RoleBindings and ClusterRoleBindings.
	Bindings []*Binding
	Grants   []*unstructured.Unstructured
	// Quotas contains the tenant of each TenantQuota, keyed by the quota's name. The limits of
	// quotas are not enforced.
	Quotas map[string]tenant.ID
	// left contains, for each tenant, the objects that a later tenant with the same ID would
	// inherit.
	left map[tenant.ID][]string
	// Tenants contains the settings of each tenant's Tenant object. Retired contains the deleted
	// Tenants.
	Tenants map[tenant.ID]TenantObject
	Retired map[tenant.ID][]tenant.Retired
	// TakenBack contains the canceled deletion of each tenant.
	TakenBack map[tenant.ID]CanceledDeletion
	// Templates contains the NamespaceTemplates, keyed by name.
	Templates map[string]*template.Template
	// Publications contains the valid Publications, keyed by name.
	Publications map[string]*publication.Publication
	// sources contains the objects that Publications may copy.
	sources map[string]*unstructured.Unstructured
	// Scopes contains the scopes of custom resources.
	Scopes map[schema.GroupResource]authz.Scope
	// selected contains the namespace labels that webhooks and policies use in selectors, and the
	// reason for each label.
	selected map[string]string
	// dropped contains the bindings that [Snapshot.DropRBAC] removed from Bindings.
	dropped []*Binding
	// RightsElsewhere specifies that the server derives no rights from Tenants, whatever its
	// configuration is, because kube-apiserver evaluates RBAC itself.
	RightsElsewhere bool
	// Unread contains the kinds that the caller may not list.
	Unread []string
}

// Key identifies an object in a namespace, or a cluster-scoped object if Namespace is empty.
type Key struct{ Namespace, Name string }

// Role is a Role or ClusterRole.
type Role struct {
	Rules      []rbacv1.PolicyRule
	Labels     map[string]string
	Aggregates []metav1.LabelSelector
}

// Binding is a RoleBinding, or a ClusterRoleBinding if Namespace is empty. If Derived is set, it is
// a right that the server derives from a Tenant, without a binding object.
type Binding struct {
	Namespace, Name string
	// Derived is the tenant whose callers have the right. Name is then the name of the tenant's
	// Tenant.
	Derived tenant.ID
	Labels  map[string]string
	// Scope is the value of the annotation that limits a ClusterRoleBinding to the namespaces of
	// some tenants. It applies if Limited is true. An empty Scope then means that the binding
	// applies in no namespace.
	Scope   string
	Limited bool
	// Expires is the value of the annotation with the expiration. It applies if Ends is true. A
	// binding with an invalid value has expired.
	Expires  string
	Ends     bool
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// ForConfig returns the snapshot as the RBAC evaluator of a configuration interprets it. Upstream's
// evaluator ignores the annotations that limit a binding or set its expiration, and derives no
// rights from Tenants.
func (s *Snapshot) ForConfig(config *configv1alpha1.Settings) *Snapshot {
	plain := *s
	if config.Authorization.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed {
		plain.Bindings = slices.Concat(s.Bindings, s.derived(s.Rights(config)))
		return &plain
	}
	plain.Bindings = nil
	for _, b := range s.Bindings {
		free := *b
		free.Limited, free.Ends = false, false
		plain.Bindings = append(plain.Bindings, &free)
	}
	return &plain
}

// Rights returns a function that returns the derived rights of a tenant's callers. If a server with
// the configuration derives no rights, Rights returns nil.
func (s *Snapshot) Rights(config *configv1alpha1.Settings) func(tenant.ID) []rbac.DerivedRole {
	a := config.Authorization
	if a.RBAC.Evaluator != configv1alpha1.EvaluatorIndexed || a.Mode == configv1alpha1.ModeShadow || s.RightsElsewhere {
		return nil
	}
	return func(id tenant.ID) []rbac.DerivedRole { return tenants.Rights(id, s.Tenants[id].Admins) }
}

// derived returns the derived rights of all tenants, as bindings.
func (s *Snapshot) derived(rights func(tenant.ID) []rbac.DerivedRole) (all []*Binding) {
	if rights == nil {
		return nil
	}
	for _, id := range s.tenantIDs() {
		for _, right := range rights(id) {
			b := &Binding{
				Name:     id.ObjectName(),
				Derived:  id,
				Subjects: right.Subjects,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: right.ClusterRole},
			}
			if right.EveryCaller {
				everyCaller := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: id.Group()}
				b.Subjects = append(b.Subjects, everyCaller)
			}
			all = append(all, b)
		}
	}
	return all
}

// tenantIDs returns the tenants that have a Tenant object or own a namespace, in a stable order.
func (s *Snapshot) tenantIDs() []tenant.ID {
	all := slices.Collect(maps.Keys(s.Tenants))
	for name := range s.Namespaces {
		if id := s.Owner(name); !id.IsZero() && !id.IsSystem() {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(a, b tenant.ID) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// IsExpired reports whether the binding has expired at the given time.
func (b *Binding) IsExpired(now time.Time) bool {
	return rbac.Expired(b.meta(), now)
}

// AppliesTo reports whether the binding applies to a caller of one tenant in the namespaces of
// the owner, which can be the same tenant. It evaluates the annotations of the binding, or its
// Derived tenant.
func (b *Binding) AppliesTo(caller, owner tenant.ID, now time.Time) bool {
	if !b.Derived.IsZero() {
		return b.Derived == caller
	}
	return rbac.Applies(b.meta(), caller, owner, now)
}

func (b *Binding) meta() *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, Annotations: map[string]string{}}
	if b.Limited {
		m.Annotations[tenant.ScopeAnnotation] = b.Scope
	}
	if b.Ends {
		m.Annotations[tenant.ExpiresAnnotation] = b.Expires
	}
	return m
}

// Kind returns the kind of the object from which the binding comes.
func (b *Binding) Kind() string {
	switch {
	case !b.Derived.IsZero():
		return v1alpha1.KindTenant
	case b.Namespace == "":
		return "ClusterRoleBinding"
	}
	return "RoleBinding"
}

// RoleKey returns the key of the role that the binding refers to.
func (b *Binding) RoleKey() Key {
	if b.RoleRef.Kind == "ClusterRole" {
		return Key{Name: b.RoleRef.Name}
	}
	return Key{b.Namespace, b.RoleRef.Name}
}

// BindingOf returns the Binding for obj, or nil if obj is not a RoleBinding or ClusterRoleBinding.
func BindingOf(obj runtime.Object) *Binding {
	switch b := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		scope, limited := b.Annotations[tenant.ScopeAnnotation]
		expires, ends := b.Annotations[tenant.ExpiresAnnotation]
		return &Binding{
			Name:     b.Name,
			Labels:   b.Labels,
			Scope:    scope,
			Limited:  limited,
			Expires:  expires,
			Ends:     ends,
			RoleRef:  b.RoleRef,
			Subjects: b.Subjects,
		}
	case *rbacv1.RoleBinding:
		expires, ends := b.Annotations[tenant.ExpiresAnnotation]
		return &Binding{
			Namespace: b.Namespace,
			Name:      b.Name,
			Labels:    b.Labels,
			Expires:   expires,
			Ends:      ends,
			RoleRef:   b.RoleRef,
			Subjects:  b.Subjects,
		}
	}
	return nil
}

// NewSnapshot returns an empty snapshot.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Namespaces: map[string]*corev1.Namespace{},
		Roles:      map[Key]*Role{},
		Quotas:     map[string]tenant.ID{},
		left:       map[tenant.ID][]string{},
		Tenants:    map[tenant.ID]TenantObject{},
		Retired:    map[tenant.ID][]tenant.Retired{},
		TakenBack:  map[tenant.ID]CanceledDeletion{},
		Templates:  map[string]*template.Template{},

		Publications: map[string]*publication.Publication{},
		sources:      map[string]*unstructured.Unstructured{},
		Scopes:       map[schema.GroupResource]authz.Scope{},
		selected:     map[string]string{},
	}
}

// Load reads a snapshot from a YAML or JSON file. The file may contain several documents, and Lists
// as kubectl get prints them.
func Load(path string) (*Snapshot, error) {
	f, err := os.Open(path) // #nosec G304 -- the caller names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s := NewSnapshot()
	decoder := utilyaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		switch {
		case errors.Is(err, io.EOF):
			return s, nil
		case err == nil && u.Object == nil:
			continue
		case err == nil && u.IsList():
			err = u.EachListItem(s.Add)
		case err == nil:
			err = s.Add(u)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// Add adds an object. It ignores the kinds on which no decision depends.
func (s *Snapshot) Add(obj runtime.Object) error {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		return s.addUnstructured(o)
	case *corev1.Namespace:
		s.addNamespace(o)
	case *rbacv1.ClusterRole:
		role := &Role{Rules: o.Rules, Labels: o.Labels}
		if o.AggregationRule != nil {
			role.Aggregates = o.AggregationRule.ClusterRoleSelectors
		}
		s.Roles[Key{Name: o.Name}] = role
	case *rbacv1.Role:
		s.Roles[Key{o.Namespace, o.Name}] = &Role{Rules: o.Rules, Labels: o.Labels}
	default:
		if b := BindingOf(obj); b != nil {
			s.Bindings = append(s.Bindings, b)
		}
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err == nil && kinds[0].Group == admissionregistrationv1.GroupName {
			s.addSelector(obj)
		}
		if err == nil && kinds[0].Group != rbacv1.GroupName {
			return s.addSource(obj, kinds[0])
		}
	}
	return nil
}

// DropRBAC removes the roles and bindings, so that they grant no rights. [Snapshot.References]
// still reads the bindings.
func (s *Snapshot) DropRBAC() {
	s.Roles, s.dropped, s.Bindings = map[Key]*Role{}, slices.Concat(s.dropped, s.Bindings), nil
}

// addSelector adds the namespace labels that a webhook or a policy selects by. If several objects
// select by the same label, the smallest reason in lexical order is stored.
func (s *Snapshot) addSelector(obj runtime.Object) {
	reason := cluster.SelectionReason(obj)
	for _, key := range cluster.SelectedKeys(obj) {
		if current, ok := s.selected[key]; !ok || reason < current {
			s.selected[key] = reason
		}
	}
}

func (s *Snapshot) addUnstructured(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindAccessGrant}:
		s.Grants = append(s.Grants, u)
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenantQuota}:
		text, _, _ := unstructured.NestedString(u.Object, "spec", "tenant")
		id, err := tenant.Parse(text)
		if err != nil {
			id = tenant.ID{} // the quota has no tenant
		}
		s.Quotas[u.GetName()] = id
		if u.GetDeletionTimestamp() != nil {
			s.left[id] = append(slices.Clip(s.left[id]), gvk.Kind+" "+u.GetName())
		}
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenantMembers}:
		text, _, _ := unstructured.NestedString(u.Object, "spec", "id")
		if id, err := tenant.Parse(text); err == nil && id.ObjectName() == u.GetName() {
			s.left[id] = append(slices.Clip(s.left[id]), gvk.Kind+" "+u.GetName())
		}
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenant}:
		if id, object := tenantObjectOf(u); !id.IsZero() {
			s.Tenants[id] = object
		}
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindNamespaceTemplate}:
		stored, err := typed.Decode[v1alpha1.NamespaceTemplate](u)
		if err != nil {
			return nil //nolint:nilerr // the server ignores it
		}
		if t, err := template.Parse(stored); err == nil {
			s.Templates[u.GetName()] = t
		}
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindPublication}:
		s.addPublication(u)
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindRetiredTenant}:
		retired, err := typed.Decode[v1alpha1.RetiredTenant](u)
		if err == nil {
			if access, takenBack := tenants.TakenBackAccess(retired); takenBack {
				id, object := tenants.RetiredOf(retired)
				s.addCanceledDeletion(id, CanceledDeletion{access, object.DeletionBegan})
				return nil
			}
		}
		id, object, err := tenants.ReadRetired(retired, err)
		if err != nil {
			return err
		}
		if !id.IsZero() {
			if object.DeletionBegan.IsZero() { // a file may lack the time, so use the current time
				object.DeletionBegan = time.Now()
			}
			s.Retired[id] = append(slices.Clip(s.Retired[id]), object)
		}
		return nil
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
		s.Scopes[schema.GroupResource{Group: group, Resource: plural}] = cluster.ScopeOf(u)
		return nil
	case schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: gvk.Kind}:
		s.addSelector(u)
		return nil
	case schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: gvk.Kind}:
	default:
		s.storeSource(u)
		return nil
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return fmt.Errorf("%s %s/%s: %w", gvk.Kind, u.GetNamespace(), u.GetName(), err)
	}
	return s.Add(typed)
}

func (s *Snapshot) addNamespace(ns *corev1.Namespace) {
	slim := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name, DeletionTimestamp: ns.DeletionTimestamp}}
	for key, value := range ns.Labels {
		if key == tenant.Label || strings.HasPrefix(key, podsecurity.LabelPrefix) {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, key, value)
		}
	}
	if value, ok := ns.Annotations[tenant.HeldAnnotation]; ok {
		slim.Annotations = map[string]string{tenant.HeldAnnotation: value}
	}
	s.Namespaces[ns.Name] = slim
}

// HasNamespace reports whether the snapshot contains a namespace, or every cluster has it.
func (s *Snapshot) HasNamespace(name string) bool {
	return s.Namespaces[name] != nil || slices.Contains(systemNamespaces[:], name)
}

// Owner returns the tenant that owns a namespace. It returns the zero ID if the namespace is
// unowned, or if the snapshot does not contain it.
func (s *Snapshot) Owner(namespace string) tenant.ID {
	ns := s.Namespaces[namespace]
	if ns == nil {
		return tenant.ID{}
	}
	return authz.OwnerOf(ns)
}

// With returns a copy of the snapshot to which more objects are added.
func (s *Snapshot) With(more ...runtime.Object) (*Snapshot, error) {
	changed := *s
	changed.Namespaces, changed.Roles = maps.Clone(s.Namespaces), maps.Clone(s.Roles)
	changed.Quotas, changed.Scopes = maps.Clone(s.Quotas), maps.Clone(s.Scopes)
	changed.Tenants, changed.Retired = maps.Clone(s.Tenants), maps.Clone(s.Retired)
	changed.TakenBack = maps.Clone(s.TakenBack)
	changed.selected, changed.left = maps.Clone(s.selected), maps.Clone(s.left)
	changed.sources = maps.Clone(s.sources)
	changed.Templates, changed.Publications = maps.Clone(s.Templates), maps.Clone(s.Publications)
	changed.Bindings, changed.Grants = slices.Clip(s.Bindings), slices.Clip(s.Grants)
	for _, obj := range more {
		if err := changed.Add(obj); err != nil {
			return nil, err
		}
	}
	return &changed, nil
}
