// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Rights returns the ClusterRoles that callers of a tenant have without a RoleBinding or
// ClusterRoleBinding. Every caller has [v1alpha1.MemberRole]. The given admins have
// [v1alpha1.NamespacesRole], except subjects that the tenant itself could not name in a
// RoleBinding. Rights does not check which tenant owns the namespace of a service account.
// Callers of Rights MUST therefore apply the roles only to users of this tenant.
func Rights(id tenant.ID, admins []rbacv1.Subject) []rbac.DerivedRole {
	rights := []rbac.DerivedRole{{
		Source:      fmt.Sprintf("tenant %q", id),
		ClusterRole: v1alpha1.MemberRole,
		EveryCaller: true,
	}}
	checked := rolebinding.Subjects{
		ReferencedOwner: func(_ context.Context, by tenant.ID, _ string) (tenant.ID, error) { return by, nil },
	}
	admin := rbac.DerivedRole{Source: fmt.Sprintf("Tenant %q", id.ObjectName()), ClusterRole: v1alpha1.NamespacesRole}
	for _, s := range admins {
		if checked.Check(context.Background(), id, s) == nil {
			admin.Subjects = append(admin.Subjects, s)
		}
	}
	if len(admin.Subjects) > 0 {
		rights = append(rights, admin)
	}
	return rights
}

// Admins returns spec.admins of the tenant's Tenant. Callers MUST NOT change them.
func (s *Store) Admins(id tenant.ID) []rbacv1.Subject {
	if state := s.state(id); state != nil {
		return state.admins
	}
	return nil
}
