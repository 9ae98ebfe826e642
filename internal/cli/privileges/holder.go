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

// Holder is an identity whose privileges are looked for.
type Holder struct {
	// Kind and Name are as they were asked for: User, Group, ServiceAccount or Tenant.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// User is empty for a group and a tenant.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups"`
	// Tenant is empty where it is not known: then nothing is said of what its boundary holds back.
	Tenant string `json:"tenant,omitempty"`
}

// OfUser returns the identity of a user. A tenant that is given brings the group
// that all its callers are in.
func OfUser(name string, groups []string, id tenant.ID) *Holder {
	return (&Holder{Kind: "User", Name: name, User: name}).with(groups, id)
}

// OfGroup returns the identity of anybody in a group.
func OfGroup(name string, id tenant.ID) *Holder {
	return (&Holder{Kind: "Group", Name: name}).with([]string{name}, id)
}

// OfTenant returns the identity of anybody of a tenant.
func OfTenant(id tenant.ID) *Holder {
	return (&Holder{Kind: "Tenant", Name: id.String()}).with(nil, id)
}

// OfServiceAccount returns the identity of a service account, whose namespace has an owner.
func OfServiceAccount(namespace, name string, owner tenant.ID) *Holder {
	i := &Holder{Kind: "ServiceAccount", Name: namespace + "/" + name, User: serviceaccount.MakeUsername(namespace, name)}
	return i.with(serviceaccount.MakeGroupNames(namespace), owner)
}

// with adds the groups that such a caller is in without anybody saying so.
func (i *Holder) with(groups []string, id tenant.ID) *Holder {
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

// ID returns the tenant; zero where it is not known.
func (i *Holder) ID() tenant.ID {
	id, err := tenant.Parse(i.Tenant)
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// Info returns the identity as the authorizers see it.
func (i *Holder) Info() user.Info {
	u := &user.DefaultInfo{Name: i.User, Groups: i.Groups}
	if id := i.ID(); !id.IsZero() {
		u.Extra = map[string][]string{tenant.ExtraKey: {i.Tenant}}
	}
	return u
}

// reachedBy returns the subject of a binding that is the identity, as the
// tree shows it; "" for none.
func (i *Holder) reachedBy(b *simulator.Binding) string {
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
