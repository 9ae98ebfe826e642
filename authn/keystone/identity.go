// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn/internal/validity"
	"github.com/kubetenant/kubetenant/tenant"
)

// tokenBody is Keystone's response about a token (Identity API v3, "Validate and show information
// for token").
type tokenBody struct {
	Expires  time.Time `json:"expires_at"`
	Issued   time.Time `json:"issued_at"`
	AuditIDs []string  `json:"audit_ids"`
	User     struct {
		namedRef
		Domain namedRef `json:"domain"`
	} `json:"user"`
	Project *struct {
		namedRef
		Domain namedRef `json:"domain"`
	} `json:"project"`
	Roles      []namedRef     `json:"roles"`
	Domain     *namedRef      `json:"domain"`
	IsDomain   bool           `json:"is_domain"`
	System     map[string]any `json:"system"`
	Trust      map[string]any `json:"OS-TRUST:trust"`
	Credential struct {
		AccessRules []any `json:"access_rules"`
	} `json:"application_credential"`
}

type namedRef struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (n namedRef) isComplete() bool { return n.ID != "" && n.Name != "" }

// isEmpty reports whether a response lacks the user or the expiry of a token. Keystone always
// returns both, so a response without them is not from Keystone.
func (t *tokenBody) isEmpty() bool { return t.User.ID == "" || t.Expires.IsZero() }

// missing returns the name of the first required field that a token of the given scope lacks, or
// "". For example, a token of a federated user may lack the user's domain.
func (t *tokenBody) missing(scope Scopes) string {
	fields := []struct{ name, value string }{
		{"user.id", t.User.ID},
		{"user.name", t.User.Name},
		{"user.domain.id", t.User.Domain.ID},
		{"user.domain.name", t.User.Domain.Name},
	}
	for _, field := range append(fields, t.fieldsOf(scope)...) {
		if field.value == "" {
			return field.name
		}
	}
	if scope != ScopeProject && len(t.Roles) == 0 { // Keystone issues a token of these scopes only to a user with a role
		return "roles"
	}
	return ""
}

// fieldsOf returns the required fields that only a token of the given scope has.
func (t *tokenBody) fieldsOf(scope Scopes) []struct{ name, value string } {
	switch scope {
	case ScopeProject:
		return []struct{ name, value string }{
			{"project.id", t.Project.ID},
			{"project.name", t.Project.Name},
			{"project.domain.id", t.Project.Domain.ID},
		}
	case ScopeDomain:
		return []struct{ name, value string }{{"domain.id", t.Domain.ID}}
	}
	return nil
}

// credentialID is the prefix of the credential-id of identities from Keystone tokens.
const credentialID = "KEYSTONEAUDITID=" // #nosec G101 -- the beginning of an identifier

// LegacyExtras returns the extra keys of k8s-keystone-auth (cloud-provider-openstack,
// pkg/identity/keystone), for existing policies that use them.
func LegacyExtras() []string {
	return []string{legacyProjectID, legacyProjectName, legacyRoles, legacyDomainID, legacyDomainName}
}

const (
	legacyProjectID   = "alpha.kubernetes.io/identity/project/id"
	legacyProjectName = "alpha.kubernetes.io/identity/project/name"
	legacyRoles       = "alpha.kubernetes.io/identity/roles"
	legacyDomainID    = "alpha.kubernetes.io/identity/user/domain/id"
	legacyDomainName  = "alpha.kubernetes.io/identity/user/domain/name"
)

// identity returns the identity of a validated token, or the reason to reject the token.
func (a *Authenticator) identity(t *tokenBody) (user.Info, error) {
	switch {
	case t.Trust != nil:
		return nil, ErrTrust
	case len(t.Credential.AccessRules) > 0:
		return nil, ErrAccessRules
	}
	scope, err := a.scope(t)
	if err != nil {
		return nil, err
	}
	if err := a.check(t, scope); err != nil {
		return nil, err
	}
	id := tenant.System()
	if scope != ScopeSystem {
		if id, err = a.o.TenantOf(t.User.Domain.ID, t.User.Domain.Name); err != nil {
			return nil, err
		}
	}
	groups := t.groups(scope)
	slices.Sort(groups)
	u := &user.DefaultInfo{
		Name:   t.userName(scope, id),
		UID:    t.User.ID,
		Groups: slices.Compact(groups),
		Extra:  a.extra(t, id),
	}
	return validity.With(u, t.Issued, t.Expires), nil
}

// check returns the reason to reject a token of an accepted scope, or nil.
func (a *Authenticator) check(t *tokenBody, scope Scopes) error {
	missing := t.missing(scope)
	switch {
	case missing != "":
		return fmt.Errorf("%w: token.%s is missing", ErrResponse, missing)
	case slices.ContainsFunc(t.Roles, func(role namedRef) bool { return !role.isComplete() }):
		return fmt.Errorf("%w: token.roles has a role without an id or a name", ErrResponse)
	case !a.o.Now().Before(t.Expires):
		return ErrExpired
	case scope == ScopeProject && isReservedProject(t.Project.ID):
		return fmt.Errorf("%w: token.project.id is %q, which is the name of another scope", ErrResponse, t.Project.ID)
	case scope == ScopeProject && t.Project.Domain.ID != t.User.Domain.ID:
		return ErrForeignProject
	case scope == ScopeDomain && t.Domain.ID != t.User.Domain.ID:
		return ErrForeignDomain
	case scope == ScopeSystem && !t.isSystemAll():
		return fmt.Errorf(`%w: token.system is not {"all": true}`, ErrResponse)
	}
	return nil
}

// extra returns the extras of a caller. Only a caller with a project-scoped token has the extras of
// the project.
func (a *Authenticator) extra(t *tokenBody, id tenant.ID) map[string][]string {
	var roles, roleIDs []string
	for _, role := range t.Roles {
		roles, roleIDs = append(roles, wellFormedValue(role.Name)), append(roleIDs, role.ID)
	}
	slices.Sort(roleIDs)
	extra := map[string][]string{
		tenant.ExtraKey:          {id.String()},
		tenant.KeystoneDomainKey: {t.User.Domain.ID},
		tenant.KeystoneRolesKey:  roleIDs,
	}
	if t.Project != nil {
		extra[tenant.KeystoneProjectKey] = []string{t.Project.ID}
	}
	if len(t.AuditIDs) > 0 {
		extra[user.CredentialIDKey] = []string{credentialID + t.AuditIDs[0]}
	}
	if !a.o.LegacyExtras {
		return extra
	}
	slices.Sort(roles)
	extra[legacyRoles] = roles
	extra[legacyDomainID] = []string{t.User.Domain.ID}
	extra[legacyDomainName] = []string{wellFormedValue(t.User.Domain.Name)}
	if t.Project != nil {
		extra[legacyProjectID] = []string{t.Project.ID}
		extra[legacyProjectName] = []string{wellFormedValue(t.Project.Name)}
	}
	return extra
}

// TenantOf returns the tenant of a domain, or [ErrDomain]. A domain that is not in Tenants
// belongs to the tenant with the domain's name, or with its ID if DomainID is set. TenantOf
// fails if another domain is mapped to this tenant. Otherwise, a user who can name domains could
// enter the tenant. For the same reason, only a domain in Tenants can belong to the system
// tenant.
func (o *Options) TenantOf(domainID, domainName string) (tenant.ID, error) {
	name := domainName
	if o.DomainID {
		name = domainID
	}
	if id, mapped := o.Tenants[name]; mapped {
		return id, nil
	}
	id, err := tenant.Parse(name)
	if err != nil || id.IsSystem() {
		return tenant.ID{}, ErrDomain
	}
	for _, taken := range o.Tenants {
		if taken == id {
			return tenant.ID{}, ErrDomain
		}
	}
	return id, nil
}

// escape escapes a name or an ID for use in a group, in which ":" is the separator.
func escape(name string) string {
	return strings.ReplaceAll(wellFormed(name), ":", "%3A")
}

// wellFormed makes a name well-formed with percent-escapes (RFC 3986, section 2.1). Keystone's
// names may contain any character. Different names have different results, because "%" is escaped
// too.
func wellFormed(name string) string {
	name = strings.ReplaceAll(name, "%", "%25")
	if tenant.IsWellFormed(name) {
		return name
	}
	runes := []rune(name)
	begin := len([]rune(name)) - len([]rune(strings.TrimLeftFunc(name, unicode.IsSpace)))
	end := len([]rune(strings.TrimRightFunc(name, unicode.IsSpace)))
	// within returns the text in which a rune is checked. A joiner is checked together with its
	// neighbors, because they determine whether it is allowed.
	within := func(i int) string {
		if isJoiner := runes[i] == '\u200c' || runes[i] == '\u200d'; isJoiner && i > 0 && i+1 < len(runes) {
			return string(runes[i-1 : i+2])
		}
		return "-" + string(runes[i]) + "-"
	}
	var out strings.Builder
	for i, r := range runes {
		outer := i < begin || i >= end
		if outer || !tenant.IsWellFormed(within(i)) {
			for _, b := range []byte(string(r)) {
				_, _ = fmt.Fprintf(&out, "%%%02X", b)
			}
			continue
		}
		_, _ = out.WriteRune(r)
	}
	return out.String()
}

// wellFormedValue returns the value of an extra. It escapes the value only if it is not
// well-formed.
func wellFormedValue(value string) string {
	if tenant.IsWellFormedValue(value) {
		return value
	}
	return wellFormed(value)
}
