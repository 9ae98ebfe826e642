// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

// directory is the content of Keystone in the form that planner needs.
type directory struct {
	settings *Settings
	domains  map[tenant.ID][]keystone.Domain
	projects map[string][]keystone.Project // keyed by domain ID
	// inProject and inDomain have the IDs of the assigned roles, keyed by project ID or domain
	// ID.
	inProject, inDomain map[string]map[string]bool
	clusterRoles        map[string]string // the ClusterRoles to bind, keyed by role ID
	roles               map[string]bool   // the IDs of all roles
}

func newDirectory(s *Settings, c *keystone.Contents) *directory {
	d := &directory{
		settings:     s,
		domains:      map[tenant.ID][]keystone.Domain{},
		projects:     map[string][]keystone.Project{},
		inProject:    map[string]map[string]bool{},
		inDomain:     map[string]map[string]bool{},
		clusterRoles: map[string]string{},
		roles:        map[string]bool{},
	}
	for _, domain := range c.Domains {
		if id, err := s.TenantOf(domain.ID, domain.Name); err == nil && !id.IsSystem() && !id.IsZero() {
			d.domains[id] = append(d.domains[id], domain)
		}
	}
	for _, project := range c.Projects {
		d.projects[project.DomainID] = append(d.projects[project.DomainID], project)
	}
	for _, role := range c.Roles {
		d.roles[role.ID] = true
		// Roles that belong to a domain are ignored, because the domain's administrator can
		// create such roles with any name.
		if name, ok := s.Roles[role.Name]; ok && role.DomainID == "" && tenants.IsKeystoneID(role.ID) {
			d.clusterRoles[role.ID] = name
		}
	}
	d.assign(c)
	return d
}

// assign sets inProject and inDomain. It includes implied roles and roles that projects inherit,
// because a token contains these roles too.
func (d *directory) assign(c *keystone.Contents) {
	implied := map[string][]string{}
	for _, i := range c.Implied {
		implied[i.RoleID] = append(implied[i.RoleID], i.ImpliedID)
	}
	children := map[string][]string{}
	for i := range c.Projects {
		children[c.Projects[i].ParentID] = append(children[c.Projects[i].ParentID], c.Projects[i].ID)
	}
	for _, a := range c.Assignments {
		switch {
		case !a.Inherited && a.ProjectID != "":
			addRole(d.inProject, a.ProjectID, a.RoleID, implied)
		case !a.Inherited:
			addRole(d.inDomain, a.DomainID, a.RoleID, implied)
		case a.DomainID != "":
			for _, project := range d.projects[a.DomainID] {
				addRole(d.inProject, project.ID, a.RoleID, implied)
			}
		default:
			for project := range descendants(a.ProjectID, children) {
				addRole(d.inProject, project, a.RoleID, implied)
			}
		}
	}
}

// descendants returns the IDs of the projects below a project. The result contains the project
// itself only if the projects form a cycle.
func descendants(project string, children map[string][]string) map[string]bool {
	all := map[string]bool{}
	for next := slices.Clone(children[project]); len(next) > 0; next = next[1:] {
		if !all[next[0]] {
			all[next[0]] = true
			next = append(next, children[next[0]]...)
		}
	}
	return all
}

// addRole adds a role and the roles that it implies.
func addRole(to map[string]map[string]bool, target, role string, implied map[string][]string) {
	if to[target][role] {
		return
	}
	if to[target] == nil {
		to[target] = map[string]bool{}
	}
	to[target][role] = true
	for _, next := range implied[role] {
		addRole(to, target, next, implied)
	}
}

// projectRoles returns the roles that package provision binds in the namespace of a project.
func (d *directory) projectRoles(project string) []tenants.KeystoneRole {
	return d.boundRoles(d.inProject[project], func(role string) string { return keystone.RoleGroup(project, role) })
}

// domainRoles returns the roles in a domain that package provision binds in each namespace of the
// domain's tenant.
func (d *directory) domainRoles(domain string) []tenants.KeystoneRole {
	return d.boundRoles(d.inDomain[domain], func(role string) string { return keystone.DomainRoleGroup(domain, role) })
}

func (d *directory) boundRoles(roles map[string]bool, group func(role string) string) (all []tenants.KeystoneRole) {
	for role := range roles {
		if name, ok := d.clusterRoles[role]; ok {
			all = append(all, tenants.KeystoneRole{
				ID:          role,
				Group:       d.settings.GroupsPrefix + group(role),
				ClusterRole: name,
			})
		}
	}
	sortRoles(all)
	return all
}

func sortRoles(all []tenants.KeystoneRole) {
	slices.SortFunc(all, func(a, b tenants.KeystoneRole) int { return cmp.Compare(a.ID, b.ID) })
}

// lostRoles returns the roles in before that are not in after because Keystone no longer has an
// assignment. It omits roles that the settings no longer bind, because Keystone did not cause
// their removal.
func (d *directory) lostRoles(before, after []tenants.KeystoneRole) (all []tenants.KeystoneRole) {
	for _, role := range before {
		if d.isMapped(&role) && !slices.ContainsFunc(after, func(r tenants.KeystoneRole) bool { return r.ID == role.ID }) {
			all = append(all, role)
		}
	}
	return all
}

// isMapped reports whether the settings still bind a role to its ClusterRole. If Keystone no longer
// has the role, its name is unknown. isMapped then reports whether the settings bind any role to
// this ClusterRole.
func (d *directory) isMapped(role *tenants.KeystoneRole) bool {
	switch name, mapped := d.clusterRoles[role.ID]; {
	case !strings.HasPrefix(role.Group, d.settings.GroupsPrefix+"role-id:"):
		return false
	case d.roles[role.ID]:
		return mapped && name == role.ClusterRole
	}
	return slices.Contains(slices.Collect(maps.Values(d.settings.Roles)), role.ClusterRole)
}
