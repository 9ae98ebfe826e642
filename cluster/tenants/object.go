// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// trim removes the fields of a Tenant that no caller of the store reads.
func trim(t *v1alpha1.Tenant) {
	t.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenant}
	all := t.ObjectMeta
	t.ObjectMeta = metav1.ObjectMeta{
		Name:              all.Name,
		UID:               all.UID,
		ResourceVersion:   all.ResourceVersion,
		Generation:        all.Generation,
		CreationTimestamp: all.CreationTimestamp,
		DeletionTimestamp: all.DeletionTimestamp,
		Finalizers:        all.Finalizers,
		Labels:            all.Labels,
	}
	for _, key := range []string{tenant.TakeBackAnnotation, tenant.KeystoneAnnotation} {
		if value := all.Annotations[key]; value != "" {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, key, value)
		}
	}
}

// AccessOf returns the ID of a Tenant object and the access of the tenant's callers. The access is
// the stricter of spec.access and spec.suspension. The ID is zero if spec.id is invalid, is the
// system tenant or does not match the name of the Tenant.
func AccessOf(t *v1alpha1.Tenant) (tenant.ID, authz.Access) {
	id, err := tenant.Parse(t.Spec.ID)
	if err != nil || id.IsSystem() || id.ObjectName() != t.Name {
		return tenant.ID{}, authz.AccessUnknown
	}
	return id, min(accessOf(t.Spec.Access), accessOf(t.Spec.Suspension))
}

func accessOf(value v1alpha1.TenantAccess) authz.Access {
	switch value {
	case "", v1alpha1.TenantAccessOpen:
		return authz.AccessOpen
	case v1alpha1.TenantAccessReadOnly:
		return authz.AccessReadOnly
	}
	return authz.AccessClosed // includes the values of a later release
}

// IDOfName returns the ID of the tenant whose Tenant has the given name. It returns the zero ID
// if the name does not determine the ID, which is the case if the ID is not a DNS label.
func IDOfName(name string) tenant.ID {
	id, err := tenant.Parse(name)
	if err != nil || id.IsSystem() || id.ObjectName() != name {
		return tenant.ID{}
	}
	return id
}

// tenantState is the stored state of a Tenant. It is never changed.
type tenantState struct {
	access        authz.Access // the access in spec
	invalid       bool         // the Tenant does not decode
	uid           types.UID
	created       metav1.Time
	ending        bool // the Tenant is being deleted, and not with its definition
	deleting      bool // the Tenant is being deleted
	acceptUndated bool
	replaces      string                        // the UID of the earlier Tenant
	namespaces    v1alpha1.TenantNamespacesSpec // never changed in place
	memberRoles   []string
	labels        map[string]string // the labels of the Tenant itself, never changed in place
	admins        []rbacv1.Subject  // never changed in place
	fairUse       v1alpha1.FairUse
}

// effective returns the access of the tenant's callers. While the Tenant is being deleted, but
// not together with its CustomResourceDefinition, the access is at most [authz.AccessReadOnly].
func (l *tenantState) effective() authz.Access {
	if l.ending {
		return min(l.access, authz.AccessReadOnly)
	}
	return l.access
}

// read decodes an object from the informer. It returns the object, the tenant's ID and the state.
// The state is nil if the store ignores the Tenant, because spec.id is invalid or does not match
// the name.
func (s *Store) read(obj any) (metav1.Object, tenant.ID, *tenantState) {
	t, err := typed.FromInformer[v1alpha1.Tenant](obj)
	var invalid *typed.Invalid
	if errors.As(err, &invalid) {
		id, now := s.readInvalid(invalid)
		return invalid, id, now
	}
	if err != nil {
		return nil, tenant.ID{}, nil
	}
	id, access := AccessOf(t)
	if id.IsZero() {
		return t, id, nil
	}
	return t, id, &tenantState{
		access:        access,
		uid:           t.UID,
		created:       t.CreationTimestamp,
		deleting:      t.DeletionTimestamp != nil,
		acceptUndated: t.Spec.AcceptUndated,
		replaces:      t.Spec.Replaces,
		namespaces:    t.Spec.Namespaces,
		memberRoles:   t.Spec.MemberRoles,
		labels:        t.Labels,
		admins:        Subjects(t.Spec.Admins),
		fairUse:       t.Spec.FairUse,
	}
}

// readInvalid returns the tenant ID and the state of a Tenant that does not decode. The state has
// no admins, and the access Closed. It has the namespace settings, labels and fair-use limits
// of the Tenant's last valid version. The ID is zero if neither the name nor an earlier version
// of the Tenant determines it.
func (s *Store) readInvalid(t *typed.Invalid) (tenant.ID, *tenantState) {
	now := &tenantState{
		access:     authz.AccessClosed,
		invalid:    true,
		uid:        t.UID,
		created:    t.CreationTimestamp,
		deleting:   t.DeletionTimestamp != nil,
		namespaces: v1alpha1.TenantNamespacesSpec{Prefix: v1alpha1.NamespacePrefixRequired},
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	id, was := s.entry(t.Name)
	if was != nil && was.uid == now.uid {
		now.namespaces, now.replaces, now.labels = was.namespaces, was.replaces, was.labels
		now.fairUse = was.fairUse
	}
	if id.IsZero() {
		id = IDOfName(t.Name)
	}
	return id, now
}

// entry returns the ID and the stored state of the Tenant with the given name. The state is nil
// if none is stored. The caller MUST hold mu.
func (s *Store) entry(name string) (tenant.ID, *tenantState) {
	if id, ok := s.named[name]; ok {
		return id, s.states[id]
	}
	return tenant.ID{}, s.invalid[name]
}

// put replaces the state of the Tenant with the given name. If now is nil, it removes the state.
// The caller MUST hold mu.
func (s *Store) put(name string, id tenant.ID, now *tenantState) {
	if last, ok := s.named[name]; ok {
		delete(s.states, last)
		delete(s.named, name)
	}
	delete(s.invalid, name)
	if now == nil {
		return
	}
	if id.IsZero() {
		s.invalid[name] = now
		return
	}
	s.states[id], s.named[name] = now, id
}
