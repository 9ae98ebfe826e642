// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// The prefixes of the names of the RoleBindings for Keystone roles.
const (
	projectPrefix = managed.NamePrefix + "keystone:project:"
	domainPrefix  = managed.NamePrefix + "keystone:domain:"
)

// addDomain adds the bindings for the roles in a Tenant's Keystone domain. If the Keystone
// annotation is invalid, it adds no bindings and returns an error.
func (g *desiredState) addDomain(id tenant.ID, t metav1.Object) error {
	domain, err := tenants.KeystoneOf(t)
	if err != nil || domain == nil {
		return err
	}
	g.domain = domain.Domain
	g.bindings = append(g.bindings, keystoneBindings(id, domainPrefix, domain.Roles)...)
	return nil
}

// bindingsIn returns the bindings that a namespace should have. These are the bindings for all
// namespaces of the tenant and for the roles in the namespace's Keystone project. It omits the
// bindings for the project if the project does not belong to the Tenant's domain.
func (g *desiredState) bindingsIn(ns *corev1.Namespace) []rbacv1.RoleBinding {
	project, err := tenants.KeystoneOf(ns)
	if err != nil || project == nil || project.Project == "" || project.Domain != g.domain {
		return g.bindings
	}
	id, err := tenant.Parse(ns.Labels[tenant.Label])
	if err != nil {
		return g.bindings
	}
	return slices.Concat(g.bindings, keystoneBindings(id, projectPrefix, project.Roles))
}

func keystoneBindings(id tenant.ID, prefix string, roles []tenants.KeystoneRole) (all []rbacv1.RoleBinding) {
	for _, role := range roles {
		all = append(all, rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name:   prefix + role.ID,
				Labels: map[string]string{tenant.ManagedLabel: managed.SourceTenant, tenant.Label: id.String()},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.ClusterRole},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: role.Group}},
		})
	}
	return all
}

// losesKeystoneRoles reports whether the Keystone annotation of a Namespace has lost a role or
// names another domain, so that RoleBindings must be deleted.
func losesKeystoneRoles(before, now *corev1.Namespace) bool {
	had, err := tenants.KeystoneOf(before)
	if err != nil || had == nil {
		return false
	}
	has, err := tenants.KeystoneOf(now)
	if err != nil || has == nil || has.Domain != had.Domain {
		return true
	}
	return slices.ContainsFunc(had.Roles, func(r tenants.KeystoneRole) bool { return !slices.Contains(has.Roles, r) })
}
