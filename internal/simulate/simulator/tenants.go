// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TenantObjects returns the settings of the Tenants and the deleted Tenants in the snapshot.
func (s *Snapshot) TenantObjects() lookup.Tenants {
	return tenantObjects{
		live:         s.Tenants,
		retired:      s.Retired,
		takenBack:    s.TakenBack,
		templates:    s.Templates,
		publications: s.Publications,
	}
}

type tenantObjects struct {
	live      map[tenant.ID]TenantObject
	retired   map[tenant.ID][]tenant.Retired
	takenBack map[tenant.ID]CanceledDeletion
	templates map[string]*template.Template
	// publications contains the Publications, keyed by name.
	publications map[string]*publication.Publication
}

// TenantObject contains the settings of a Tenant object.
type TenantObject struct {
	Access        authz.Access
	UID           string
	Created       time.Time
	AcceptUndated bool
	Ending        bool
	// Replaces is the UID of the deleted Tenant that had the same ID.
	Replaces    string
	Namespaces  v1alpha1.TenantNamespacesSpec
	MemberRoles []string
	Admins      []rbacv1.Subject
	FairUse     v1alpha1.FairUse
	// Object is the Tenant object. Callers MUST NOT change it.
	Object *unstructured.Unstructured
}

// tenantObjectOf reads a Tenant object. It returns the zero ID if the server ignores the object. As
// in [tenants.Store], an invalid Tenant object denies the tenant's callers all access.
func tenantObjectOf(u *unstructured.Unstructured) (tenant.ID, TenantObject) {
	object := TenantObject{
		Access:  authz.AccessClosed,
		UID:     string(u.GetUID()),
		Created: u.GetCreationTimestamp().Time,
		Object:  u,
	}
	id := tenants.IDOfName(u.GetName())
	if t, err := typed.Decode[v1alpha1.Tenant](u); err == nil {
		id, object.Access = tenants.AccessOf(t)
		object.Replaces = t.Spec.Replaces
		object.AcceptUndated, object.Namespaces = t.Spec.AcceptUndated, t.Spec.Namespaces
		object.MemberRoles = t.Spec.MemberRoles
		object.Admins = tenants.Subjects(t.Spec.Admins)
		object.FairUse = t.Spec.FairUse
	}
	if object.Ending = u.GetDeletionTimestamp() != nil; object.Ending {
		object.Access = min(object.Access, authz.AccessReadOnly)
	}
	if object.UID == "" { // a file may lack the UID; the creation time is then the current time
		object.UID = "unknown"
		object.Created = time.Now()
	}
	return id, object
}

// Access implements [lookup.Tenants].
func (t tenantObjects) Access(id tenant.ID) authz.Access {
	if object, exists := t.live[id]; exists {
		return object.Access
	}
	if len(t.retired[id]) > 0 {
		return authz.AccessRetired
	}
	return authz.AccessNone
}

// AccessWithoutTenant implements [lookup.Tenants].
func (t tenantObjects) AccessWithoutTenant(id tenant.ID) authz.Access {
	if object, limited := t.takenBack[id]; limited {
		return object.Access
	}
	return authz.AccessOpen
}

// CanceledDeletion contains the access that applies after a canceled deletion of a Tenant.
type CanceledDeletion struct {
	Access authz.Access
	At     time.Time
}

// addCanceledDeletion records a canceled deletion. If a tenant has several, the newest one applies.
// If several began at the same time, the one with the strictest access applies.
func (s *Snapshot) addCanceledDeletion(id tenant.ID, canceled CanceledDeletion) {
	last, exists := s.TakenBack[id]
	if !exists || canceled.At.After(last.At) || canceled.At.Equal(last.At) && canceled.Access < last.Access {
		s.TakenBack[id] = canceled
	}
}

// Accepts implements [lookup.Tenants].
func (t tenantObjects) Accepts(id tenant.ID, issued time.Time) bool {
	lineage := t.Lineage(id)
	return lineage.Accepts(issued)
}

// NamespaceSettings implements [lookup.Tenants].
func (t tenantObjects) NamespaceSettings(id tenant.ID) v1alpha1.TenantNamespacesSpec {
	return t.live[id].Namespaces
}

// FairUse implements [lookup.Tenants].
func (t tenantObjects) FairUse(id tenant.ID) v1alpha1.FairUse { return t.live[id].FairUse }

// HoldsNamespaces implements [lookup.Tenants].
func (t tenantObjects) HoldsNamespaces(_ context.Context, id tenant.ID) bool {
	for _, p := range t.selectedBy(id) {
		if p.Hold {
			return true
		}
	}
	return slices.ContainsFunc(t.live[id].Namespaces.Templates, func(name string) bool {
		template := t.templates[name]
		return template == nil || template.Hold
	})
}

// selectedBy returns the Publications that select a tenant and are not being deleted, in random
// order.
func (t tenantObjects) selectedBy(id tenant.ID) (selecting []*publication.Publication) {
	object, exists := t.live[id]
	var labels map[string]string
	if exists && object.Object != nil {
		labels = object.Object.GetLabels()
	}
	for _, p := range t.publications {
		if !p.Deleting && p.Selects(id, labels, exists) {
			selecting = append(selecting, p)
		}
	}
	return selecting
}

// Provisions implements [lookup.Tenants].
func (t tenantObjects) Provisions(
	rules *publication.Rules, id tenant.ID, namespace string, of schema.GroupResource, name string,
) (bool, error) {
	namespaces := t.live[id].Namespaces
	for _, p := range t.selectedBy(id) {
		resource, err := rules.Resource(p.From.Kind)
		if err == nil && resource.GroupResource() == of && p.From.Name == name &&
			p.SelectsNamespace(namespace, tenants.Labels(namespaces.Labels)) {
			return true, nil
		}
	}
	return slices.ContainsFunc(namespaces.Templates, func(template string) bool {
		is := t.templates[template]
		return is != nil && is.Contains(id, namespace, of, name)
	}), nil
}

// PublicationsFrom implements [lookup.Tenants].
func (t tenantObjects) PublicationsFrom(namespace, name string) (naming []*publication.Publication, known bool) {
	for _, p := range t.publications {
		if p.From.Namespace == namespace && p.From.Name == name && !p.Deleting {
			naming = append(naming, p)
		}
	}
	return naming, true
}

// MemberRoles implements [lookup.Tenants].
func (t tenantObjects) MemberRoles(id tenant.ID) []string { return t.live[id].MemberRoles }

// Admins implements [lookup.Tenants].
func (t tenantObjects) Admins(id tenant.ID) []rbacv1.Subject { return t.live[id].Admins }

// Lineage implements [lookup.Tenants].
func (t tenantObjects) Lineage(id tenant.ID) tenant.Lineage {
	object, retired := t.live[id], t.retired[id]
	if object.Replaces != "" &&
		!slices.ContainsFunc(retired, func(r tenant.Retired) bool { return r.UID == object.Replaces }) {
		retired = append(slices.Clip(retired), tenant.Retired{UID: object.Replaces, DeletionEnded: object.Created})
	}
	return tenant.Lineage{
		UID:           object.UID,
		Created:       object.Created,
		Terminating:   object.Ending,
		AcceptUndated: object.AcceptUndated,
		Retired:       tenant.SortByDeletionEnd(retired),
	}
}

// BelongsTo implements [lookup.Tenants].
func (t tenantObjects) BelongsTo(name string, id tenant.ID) bool {
	for owner := range t.live {
		if owner.ObjectName() == name {
			return owner == id
		}
	}
	return name == id.ObjectName()
}

// HasTenant reports whether a tenant has a Tenant, a RetiredTenant or a namespace. It returns true
// for the system tenant.
func (s *Snapshot) HasTenant(id tenant.ID) bool {
	if _, exists := s.Tenants[id]; exists || id.IsSystem() || len(s.Retired[id]) > 0 {
		return true
	}
	namespaces, _ := s.OwnedNamespaces(id) // it never fails
	return len(namespaces) > 0
}

// OwnedNamespaces returns the namespaces that have the label of a tenant.
func (s *Snapshot) OwnedNamespaces(id tenant.ID) (names []string, err error) {
	for name, ns := range s.Namespaces {
		if ns.Labels[tenant.Label] == id.String() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// References returns the objects that a later tenant with the same ID would inherit, like
// [tenants.Remaining] and [tenants.References].
func (s *Snapshot) References(_ context.Context, id tenant.ID, namespaces []string) (found []string, err error) {
	found = slices.Clone(s.left[id])
	names := tenants.SubjectMatcher(id, namespaces)
	for _, b := range slices.Concat(s.Bindings, s.dropped) {
		made := b.Namespace == "" && b.Labels[tenant.OfTenantLabel] == id.String()
		if !made && !names(b.Subjects) {
			continue
		}
		if b.Namespace == "" {
			found = append(found, "ClusterRoleBinding "+b.Name)
			continue
		}
		if owner := s.Owner(b.Namespace); owner.IsZero() || owner.IsSystem() {
			found = append(found, "RoleBinding "+b.Namespace+"/"+b.Name)
		}
	}
	return found, nil
}
