// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"fmt"
	"strings"

	"github.com/kubetenant/kubetenant/tenant"
)

// Scopes is a set of token scopes. The zero value is empty, so that no token is accepted.
type Scopes uint8

// The scopes of Keystone's tokens. Use | to accept several scopes.
const (
	// ScopeProject is the scope of a token for one project.
	ScopeProject Scopes = 1 << iota
	// ScopeDomain is the scope of a token for one domain.
	ScopeDomain
	// ScopeSystem is the scope of a token for the whole deployment of OpenStack.
	ScopeSystem
)

// Has reports whether s contains all scopes in t. It returns false if t is empty.
func (s Scopes) Has(t Scopes) bool { return t != 0 && s&t == t }

// The parts of role-id groups that replace the project ID if a token has no project. A token for
// a project with one of these IDs is rejected.
const (
	domainPart = "domain"
	systemPart = "system"
)

// systemUser is the prefix of the names of callers with a system-scoped token.
const systemUser = "system/"

// RoleGroup returns the group of callers with a role in a project, "role-id:<project>:<role>".
// The parameters are Keystone IDs. In the group, % and : are percent-escaped. RoleGroup returns
// "" if an ID is empty. It also returns "" for the project IDs "domain" and "system", because
// tokens for projects with these IDs are not accepted.
func RoleGroup(project, role string) string {
	if isReservedProject(project) {
		return ""
	}
	return roleGroup(project, role)
}

// DomainRoleGroup returns the group of callers with a role in a domain,
// "role-id:domain:<domain>:<role>". The parameters are Keystone IDs. In the group, % and : are
// percent-escaped. DomainRoleGroup returns "" if an ID is empty. The group contains the domain's
// ID, because another domain may belong to the same tenant or get the name of a deleted domain.
func DomainRoleGroup(domain, role string) string {
	if domain == "" || role == "" {
		return ""
	}
	return "role-id:" + domainPart + ":" + escape(domain) + ":" + escape(role)
}

func roleGroup(scope, role string) string {
	if scope == "" || role == "" {
		return ""
	}
	return "role-id:" + escape(scope) + ":" + escape(role)
}

// isReservedProject reports whether the role-id groups of a project would be equal to the groups
// of another scope.
func isReservedProject(id string) bool { return id == domainPart || id == systemPart }

// scope returns the scope of a token, or the reason why the token is not accepted.
func (a *Authenticator) scope(t *tokenBody) (Scopes, error) {
	scope := t.scopes()
	switch {
	case scope&(scope-1) != 0:
		return 0, fmt.Errorf("%w: the token has more than one scope", ErrResponse)
	case t.IsDomain:
		return 0, fmt.Errorf("%w: the project acts as a domain", ErrDomainScope)
	case scope == 0:
		return 0, ErrUnscoped
	case a.o.Scopes.Has(scope):
		return scope, nil
	case scope == ScopeDomain:
		return 0, ErrDomainScope
	case scope == ScopeSystem:
		return 0, ErrSystemScope
	}
	return 0, ErrProjectScope
}

// scopes returns the scopes that a response contains.
func (t *tokenBody) scopes() (all Scopes) {
	if t.Project != nil {
		all |= ScopeProject
	}
	if t.Domain != nil {
		all |= ScopeDomain
	}
	if t.System != nil {
		all |= ScopeSystem
	}
	return all
}

// isSystemAll reports whether the scope is the whole system. Keystone has no other system scope.
func (t *tokenBody) isSystemAll() bool {
	all, ok := t.System["all"].(bool)
	return ok && all && len(t.System) == 1
}

// userName returns the name of the caller. Users of several domains may have a system-scoped
// token, so their names contain the domain, as in "system/<domain>:<user>". No other caller of
// the system tenant can have one of these names, because "/" is escaped in other names that
// begin with "system/".
func (t *tokenBody) userName(scope Scopes, id tenant.ID) string {
	name := wellFormed(t.User.Name)
	if scope == ScopeSystem {
		return systemUser + escapeSlash(escape(t.User.Domain.Name)) + ":" + escapeSlash(escape(t.User.Name))
	}
	if id.IsSystem() && strings.HasPrefix(name, systemUser) {
		return escapeSlash(name)
	}
	return name
}

func escapeSlash(name string) string { return strings.ReplaceAll(name, "/", "%2F") }

// groups returns the groups of a token, which may contain duplicates.
func (t *tokenBody) groups(scope Scopes) (groups []string) {
	switch scope {
	case ScopeDomain:
		for _, role := range t.Roles {
			groups = append(groups, DomainRoleGroup(t.Domain.ID, role.ID))
		}
	case ScopeSystem:
		for _, role := range t.Roles {
			groups = append(groups, roleGroup(systemPart, role.ID))
		}
	case ScopeProject:
		project := escape(t.Project.Name)
		groups = append(groups, "project:"+project)
		for _, role := range t.Roles {
			groups = append(groups, "role:"+project+":"+escape(role.Name), RoleGroup(t.Project.ID, role.ID))
		}
	}
	return groups
}
