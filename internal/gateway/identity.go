// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// The reasons why an identity is not forwarded to a cluster. The caller receives the reason in the
// response. Test for them with [errors.Is].
var (
	errTenantName = errors.New("the name of the tenant belongs to another tenant in the cluster")
	errUnmapped   = errors.New("the user has no name in the cluster")
	errReserved   = errors.New("the name is reserved for the cluster")
	errForm       = errors.New("the name cannot be sent in a header")
	errUID        = errors.New("the UID is not forwarded to the cluster")
	errExtra      = errors.New("the extra key is not forwarded to the cluster")
	// errAccountGroup is returned because the gateway can neither forward nor omit the group.
	// With the group, the cluster would not add the account's own groups. Without the group, the
	// account would have more groups than the caller requested.
	errAccountGroup = errors.New("the service account has a group that is not its own")
)

// mapping maps tenants and users to their names in a cluster. It is safe for concurrent use.
type mapping struct {
	to, from map[tenant.ID]tenant.ID
	config   configv1alpha1.GatewayIdentity
	groups   *regexp.Regexp
	users    map[tenantUser]string
	extras   map[string]bool
}

type tenantUser struct {
	tenant tenant.ID
	name   string
}

// newMapping returns the mapping of a valid configuration.
func newMapping(c *configv1alpha1.GatewayCluster) (*mapping, error) {
	m := &mapping{
		to:     map[tenant.ID]tenant.ID{},
		from:   map[tenant.ID]tenant.ID{},
		config: c.Identity,
		users:  map[tenantUser]string{},
		extras: map[string]bool{},
	}
	for from, to := range c.TenantMap {
		source, err := tenant.Parse(from)
		if err != nil {
			return nil, err
		}
		target, err := tenant.Parse(to)
		if err != nil {
			return nil, err
		}
		m.to[source], m.from[target] = target, source
	}
	for _, u := range c.Identity.Users {
		id, err := tenant.Parse(u.Tenant)
		if err != nil {
			return nil, err
		}
		m.users[tenantUser{id, u.User}] = u.As
	}
	for _, key := range c.Identity.Extras {
		m.extras[key] = true
	}
	var err error
	m.groups, err = regexp.Compile(`\A(?:` + *c.Identity.GroupPattern + `)\z`)
	return m, err
}

// tenant returns the name of a tenant in the cluster. It returns false if that name belongs to
// another tenant there.
func (m *mapping) tenant(id tenant.ID) (tenant.ID, bool) {
	if to, ok := m.to[id]; ok {
		return to, true
	}
	_, taken := m.from[id]
	return id, !taken
}

// source returns the tenant with the given name in the cluster. It returns the zero ID if no tenant
// has this name there.
func (m *mapping) source(id tenant.ID) tenant.ID {
	if from, ok := m.from[id]; ok {
		return from
	}
	if _, renamed := m.to[id]; renamed { // that tenant has another name in the cluster
		return tenant.ID{}
	}
	return id
}

// caller returns the identity that a caller of the given tenant has in the cluster, including
// system:authenticated, which the cluster itself adds. The error is the reason why the identity
// is not forwarded.
func (m *mapping) caller(id tenant.ID, u user.Info) (user.Info, error) {
	mapped, ok := m.tenant(id)
	if !ok {
		return nil, errTenantName
	}
	name, err := m.name(id, u.GetName())
	if err != nil {
		return nil, err
	}
	out := &user.DefaultInfo{Name: name, Extra: map[string][]string{}}
	if m.config.WithUID {
		out.UID = u.GetUID()
	}
	for _, group := range u.GetGroups() {
		if strings.HasPrefix(group, "system:") || strings.HasPrefix(group, tenant.GroupPrefix) ||
			!m.groups.MatchString(group) {
			continue
		}
		out.Groups = append(out.Groups, m.config.GroupsPrefix+group)
	}
	out.Groups = append(out.Groups, mapped.Group(), user.AllAuthenticated)
	for key, values := range u.GetExtra() {
		if m.extras[key] {
			out.Extra[key] = slices.Clone(values)
		}
	}
	return tenant.Bind(out, mapped), nil
}

// name returns the name in the cluster of a user of the given tenant. The error is errUnmapped if
// the user has none.
func (m *mapping) name(id tenant.ID, name string) (string, error) {
	if !*m.config.WithUser {
		return m.config.DefaultUser, nil
	}
	if as, ok := m.users[tenantUser{id, name}]; ok {
		return as, nil
	}
	if m.config.Unmapped == configv1alpha1.UnmappedDeny && !id.IsSystem() {
		return "", errUnmapped
	}
	return m.config.UsernamePrefix + name, nil
}

// impersonation returns the impersonation headers for u, an identity in the cluster. It omits the
// groups that the cluster itself adds, and the tenant's group of a service account. If it cannot
// forward everything else that the caller requested, it returns the reason as an error.
func (m *mapping) impersonation(u user.Info) (transport.ImpersonationConfig, error) {
	out := transport.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Extra: map[string][]string{}}
	isAccount := tenant.IsServiceAccountName(out.UserName)
	namespace, _ := tenant.ServiceAccountNamespace(out.UserName)
	switch {
	case out.UserName == "" || !tenant.IsWellFormed(out.UserName) || out.UID != "" && !tenant.IsWellFormed(out.UID):
		return out, errForm
	case strings.HasPrefix(out.UserName, "system:") && !isAccount:
		return out, errReserved
	case out.UID != "" && !m.config.WithUID: // the impersonator has no permission to send a UID
		return out, errUID
	}
	for _, group := range u.GetGroups() {
		if group == user.AllAuthenticated || isAccount && slices.Contains(serviceaccount.MakeGroupNames(namespace), group) {
			continue // the cluster adds this group
		}
		if strings.HasPrefix(group, "system:") {
			return out, errReserved
		}
		if !tenant.IsWellFormed(group) {
			return out, errForm
		}
		if isAccount && strings.HasPrefix(group, tenant.GroupPrefix) {
			continue // this group would replace the account's own groups
		}
		if isAccount {
			return out, errAccountGroup
		}
		out.Groups = append(out.Groups, group)
	}
	for _, key := range slices.Sorted(maps.Keys(u.GetExtra())) {
		values := u.GetExtra()[key]
		if key != tenant.ExtraKey && !m.extras[key] {
			return out, errExtra
		}
		if len(values) == 0 ||
			slices.ContainsFunc(values, func(v string) bool { return !tenant.IsWellFormedValue(v) || v == "" }) {
			return out, errForm
		}
		out.Extra[key] = values
	}
	return out, nil
}
