// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

// Identity is an identity whose privileges are listed.
type Identity struct {
	// Kind is User, Group, ServiceAccount or Tenant. Name is the name that the caller requested.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// User is empty if Kind is Group or Tenant.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups"`
	// Tenant is empty if the tenant is unknown. The listing then includes access that the boundary
	// denies.
	Tenant string `json:"tenant,omitempty"`
}

// OfUser returns the identity of a user. If id is not zero, the identity also has the group of all
// callers of the tenant.
func OfUser(name string, groups []string, id tenant.ID) *Identity {
	return (&Identity{Kind: "User", Name: name, User: name}).with(groups, id)
}

// OfGroup returns the identity of a caller that has only the given group.
func OfGroup(name string, id tenant.ID) *Identity {
	return (&Identity{Kind: "Group", Name: name}).with([]string{name}, id)
}

// OfTenant returns the identity of a caller about which only the tenant is known.
func OfTenant(id tenant.ID) *Identity {
	return (&Identity{Kind: "Tenant", Name: id.String()}).with(nil, id)
}

// OfServiceAccount returns the identity of a service account. owner is the tenant that owns its
// namespace.
func OfServiceAccount(namespace, name string, owner tenant.ID) *Identity {
	i := &Identity{
		Kind: "ServiceAccount",
		Name: namespace + "/" + name,
		User: serviceaccount.MakeUsername(namespace, name),
	}
	return i.with(serviceaccount.MakeGroupNames(namespace), owner)
}

// with adds the given groups, and the groups that every authenticated caller of the tenant has.
func (i *Identity) with(groups []string, id tenant.ID) *Identity {
	i.Groups = slices.Clone(groups)
	implicit := []string{user.AllAuthenticated}
	if !id.IsZero() {
		i.Tenant = id.String()
		implicit = append(implicit, tenant.GroupPrefix+i.Tenant)
	}
	for _, g := range implicit {
		if !slices.Contains(i.Groups, g) {
			i.Groups = append(i.Groups, g)
		}
	}
	return i
}

// ID returns the tenant ID, or the zero ID if the tenant is unknown.
func (i *Identity) ID() tenant.ID {
	id, err := tenant.Parse(i.Tenant)
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// Info returns the identity in the form that authorizers receive.
func (i *Identity) Info() user.Info {
	u := &user.DefaultInfo{Name: i.User, Groups: i.Groups}
	if id := i.ID(); !id.IsZero() {
		u.Extra = map[string][]string{tenant.ExtraKey: {i.Tenant}}
	}
	return u
}

// matchedSubject returns a description of the binding's subject that matches the identity, or "" if
// no subject matches.
func (i *Identity) matchedSubject(b *simulator.Binding) string {
	for _, s := range b.Subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			if i.User != "" && s.Name == i.User {
				return "user " + s.Name
			}
		case rbacv1.GroupKind:
			if slices.Contains(i.Groups, s.Name) {
				return "group " + s.Name
			}
		case rbacv1.ServiceAccountKind:
			account := SubjectOf(s, b.Namespace)
			if i.User != "" && i.User == serviceaccount.MakeUsername(account.Namespace, account.Name) {
				return "service account " + account.Title()
			}
		}
	}
	return ""
}
