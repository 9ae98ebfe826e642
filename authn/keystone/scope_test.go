// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	projectPart = `"project":{"id":"p","name":"web","domain":{"id":"d","name":"acme"}}`
	domainOfD   = `"domain":{"id":"d","name":"acme"}`
	wholeSystem = `"system":{"all":true}`
	rolesPart   = `"roles":[{"id":"r2","name":"member"},{"id":"r1","name":"admin"}]`
)

// identityOf returns the identity from a token with the given JSON members, for an authenticator
// with the options o. If two members have the same name, the later member applies.
func identityOf(t testing.TB, o Options, parts ...string) (user.Info, error) {
	t.Helper()
	token := map[string]json.RawMessage{}
	for _, part := range append([]string{`"expires_at":"2100-01-01T00:00:00Z","audit_ids":["a"],` +
		`"user":{"id":"u","name":"alice","domain":{"id":"d","name":"acme"}}`}, parts...) {
		if err := json.Unmarshal([]byte("{"+part+"}"), &token); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
	}
	text, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	var a tokenBody
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return newAuthenticator(o, nil).identity(&a)
}

// TestScopes checks each kind of token with each set of accepted scopes.
func TestScopes(t *testing.T) {
	const all = ScopeProject | ScopeDomain | ScopeSystem
	type identity struct{ name, tenant, groups, project string }
	inProject := identity{
		"alice", "acme", "project:web role-id:p:r1 role-id:p:r2 role:web:admin role:web:member", "p",
	}
	inDomain := identity{"alice", "acme", "role-id:domain:d:r1 role-id:domain:d:r2", ""}
	inSystem := identity{"system/acme:alice", "system", "role-id:system:r1 role-id:system:r2", ""}
	foreign := `"user":{"id":"u","name":"alice","domain":{"id":"e","name":"globex"}}`
	for _, c := range []struct {
		name, parts string
		needs       Scopes
		want        identity
		refused     error // if the scope is not accepted
		err         error // if the scope is accepted
	}{
		{"a project", projectPart, ScopeProject, inProject, ErrProjectScope, nil},
		{"a domain", domainOfD, ScopeDomain, inDomain, ErrDomainScope, nil},
		{"a domain with is_domain false", domainOfD + `,"is_domain":false`, ScopeDomain, inDomain, ErrDomainScope, nil},
		{"the system", wholeSystem, ScopeSystem, inSystem, ErrSystemScope, nil},
		{
			"other scopes that are null", projectPart + `,"domain":null,"system":null`, ScopeProject, inProject,
			ErrProjectScope, nil,
		},
		{"no scope", `"methods":[]`, 0, identity{}, ErrUnscoped, nil},
		{"null scopes", `"project":null,"domain":null,"system":null`, 0, identity{}, ErrUnscoped, nil},

		{
			"a project of another domain", foreign + "," + projectPart, ScopeProject,
			identity{},
			ErrProjectScope,
			ErrForeignProject,
		},
		{"another domain", foreign + "," + domainOfD, ScopeDomain, identity{}, ErrDomainScope, ErrForeignDomain},
		{
			"another domain of the same name", `"domain":{"id":"e","name":"acme"}`, ScopeDomain,
			identity{},
			ErrDomainScope, ErrForeignDomain,
		},
		{
			"the system, with a user of any domain", foreign + "," + wholeSystem, ScopeSystem,
			identity{"system/globex:alice", "system", inSystem.groups, ""},
			ErrSystemScope, nil,
		},

		{"a project that acts as a domain", projectPart + `,"is_domain":true`, 0, identity{}, ErrDomainScope, nil},
		{"a domain with is_domain", domainOfD + `,"is_domain":true`, 0, identity{}, ErrDomainScope, nil},
		{"the system with is_domain", wholeSystem + `,"is_domain":true`, 0, identity{}, ErrDomainScope, nil},
		{"is_domain alone", `"is_domain":true`, 0, identity{}, ErrDomainScope, nil},

		{"a project and a domain", projectPart + "," + domainOfD, 0, identity{}, ErrResponse, nil},
		{"a project and the system", projectPart + "," + wholeSystem, 0, identity{}, ErrResponse, nil},
		{"a domain and the system", domainOfD + "," + wholeSystem, 0, identity{}, ErrResponse, nil},
		{"a project and an empty domain", projectPart + `,"domain":{}`, 0, identity{}, ErrResponse, nil},
		{"a project and an empty system", projectPart + `,"system":{}`, 0, identity{}, ErrResponse, nil},
		{"every scope", projectPart + "," + domainOfD + "," + wholeSystem, 0, identity{}, ErrResponse, nil},

		{"an empty system", `"system":{}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"not all of the system", `"system":{"all":false}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"all is null", `"system":{"all":null}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"all is a string", `"system":{"all":"true"}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"all is a number", `"system":{"all":1}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"all in another case", `"system":{"All":true}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"another member", `"system":{"all":true,"region":"r"}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},
		{"another system", `"system":{"region":true}`, ScopeSystem, identity{}, ErrSystemScope, ErrResponse},

		{"an empty project", `"project":{}`, ScopeProject, identity{}, ErrProjectScope, ErrResponse},
		{"an empty domain", `"domain":{}`, ScopeDomain, identity{}, ErrDomainScope, ErrResponse},
		{"a domain without an ID", `"domain":{"name":"acme"}`, ScopeDomain, identity{}, ErrDomainScope, ErrResponse},
		{
			"a project with the ID domain", strings.Replace(projectPart, `"p"`, `"domain"`, 1), ScopeProject,
			identity{},
			ErrProjectScope, ErrResponse,
		},
		{
			"a project with the ID system", strings.Replace(projectPart, `"p"`, `"system"`, 1), ScopeProject,
			identity{},
			ErrProjectScope, ErrResponse,
		},

		{"a trust", `"OS-TRUST:trust":{"id":"t"},` + projectPart, 0, identity{}, ErrTrust, nil},
		{"a trust with the system", `"OS-TRUST:trust":{},` + wholeSystem, 0, identity{}, ErrTrust, nil},
		{
			"a trust with every scope", `"OS-TRUST:trust":{},` + projectPart + "," + domainOfD + "," + wholeSystem, 0,
			identity{},
			ErrTrust, nil,
		},
		{
			"access rules with the system", `"application_credential":{"access_rules":[{}]},` + wholeSystem, 0,
			identity{},
			ErrAccessRules, nil,
		},
		{
			"access rules with a domain", `"application_credential":{"access_rules":[{}]},` + domainOfD, 0,
			identity{},
			ErrAccessRules, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for scopes := Scopes(0); scopes <= all; scopes++ {
				u, err := identityOf(t, Options{Scopes: scopes}, rolesPart, c.parts)
				want := c.err
				if !scopes.Has(c.needs) {
					want = c.refused
				}
				if !errors.Is(err, want) || (u == nil) != (want != nil) {
					t.Errorf("%s, accepted scopes %b: %v, %v; want %v", c.name, scopes, u, err, want)
					continue
				}
				if u == nil {
					continue
				}
				extra := u.GetExtra()
				got := identity{
					name:    u.GetName(),
					tenant:  strings.Join(extra[tenant.ExtraKey], "|"),
					groups:  strings.Join(u.GetGroups(), " "),
					project: strings.Join(extra[tenant.KeystoneProjectKey], "|"),
				}
				if got != c.want || u.GetUID() != "u" {
					t.Errorf("%s, accepted scopes %b: %+v; want %+v", c.name, scopes, got, c.want)
				}
				if _, has := extra[tenant.KeystoneProjectKey]; has != (c.want.project != "") {
					t.Errorf("extras %v", extra)
				}
				if roles := extra[tenant.KeystoneRolesKey]; !slices.Equal(roles, []string{"r1", "r2"}) {
					t.Errorf("roles %v", roles)
				}
			}
		})
	}
}

// TestMissingFields checks that a token without a required field is rejected.
func TestMissingFields(t *testing.T) {
	const all = ScopeProject | ScopeDomain | ScopeSystem
	for scope, part := range map[string]string{"project": projectPart, "domain": domainOfD, "system": wholeSystem} {
		t.Run(scope, func(t *testing.T) {
			for missing, parts := range map[string]string{
				"user.id":          `"user":{"id":"","name":"alice","domain":{"id":"d","name":"acme"}}`,
				"user.name":        `"user":{"id":"u","name":"","domain":{"id":"d","name":"acme"}}`,
				"user.domain.id":   `"user":{"id":"u","name":"alice","domain":{"id":"","name":"acme"}}`,
				"user.domain.name": `"user":{"id":"u","name":"alice","domain":{"id":"d","name":""}}`,
				"roles has a role": `"roles":[{"id":"r"}]`,
				"roles":            `"roles":[{"name":"admin"}]`,
			} {
				t.Run(missing, func(t *testing.T) {
					_, err := identityOf(t, Options{Scopes: all}, rolesPart, part, parts)
					if !errors.Is(err, ErrResponse) || !strings.Contains(err.Error(), "token."+missing) {
						t.Error(err)
					}
				})
			}
			_, err := identityOf(t, Options{Scopes: all}, part)
			if refused := errors.Is(err, ErrResponse); refused != (scope != "project") {
				t.Errorf("without roles: %v", err)
			}
			_, err = identityOf(t, Options{Scopes: all}, rolesPart, part, `"expires_at":"2001-01-01T00:00:00Z"`)
			if !errors.Is(err, ErrExpired) {
				t.Errorf("an expired token: %v", err)
			}
		})
	}
}

// TestDomainsOfTheSystemTenant checks that a domain belongs to the system tenant only if it is
// mapped. Otherwise, a user who can name a domain could enter the system tenant.
func TestDomainsOfTheSystemTenant(t *testing.T) {
	for name, c := range map[string]struct {
		domain string
		mapped bool
		want   error
	}{
		"the name of the system tenant":                 {"system", false, ErrDomain},
		"the mapped name of the system tenant":          {"system", true, nil},
		"the name of the system tenant in another case": {"System", false, ErrDomain},
		"another mapped name":                           {"admins", true, nil},
		"an ordinary tenant":                            {"admins", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, byID := range []bool{false, true} {
				o := Options{Scopes: ScopeProject | ScopeDomain | ScopeSystem, DomainID: byID}
				if c.mapped {
					o.Tenants = map[string]tenant.ID{c.domain: tenant.System()}
				}
				for _, part := range []string{
					`"domain":{"id":%[1]q,"name":%[1]q}`,
					`"project":{"id":"p","name":"web","domain":{"id":%[1]q,"name":%[1]q}}`,
				} {
					owner := fmt.Sprintf(`"user":{"id":"u","name":"alice","domain":{"id":%[1]q,"name":%[1]q}}`, c.domain)
					u, err := identityOf(t, o, rolesPart, owner, fmt.Sprintf(part, c.domain))
					if !errors.Is(err, c.want) {
						t.Errorf("by ID %t, %s: %v, %v", byID, part, u, err)
						continue
					}
					if err != nil {
						continue
					}
					if id, err := tenant.Of(u); err != nil || id.IsSystem() != c.mapped {
						t.Errorf("by ID %t, %s: tenant %v, %v", byID, part, id, err)
					}
				}
			}
		})
	}
}

// TestSystemNames checks that the name of a caller with system scope is well-formed, and that
// different users have different names.
func TestSystemNames(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct{ domain, name, want string }{
		{"Default", "admin", "system/Default:admin"},
		{"Default", "masters", "system/Default:masters"},
		{"a", "b:c", "system/a:b%3Ac"},
		{"a:b", "c", "system/a%3Ab:c"},
		{"a", "b/c", "system/a:b%2Fc"},
		{"a/b", "c", "system/a%2Fb:c"},
		{"a%3Ab", "c", "system/a%253Ab:c"},
		{"a", "b%2Fc", "system/a:b%252Fc"},
		{"system", "masters", "system/system:masters"},
		{"system:masters", "x", "system/system%3Amasters:x"},
		{" ", "\tx\u200b", "system/%20:%09x%E2%80%8B"},
		{"My Domain", "Alice van Dam", "system/My Domain:Alice van Dam"},
		{"a\u200d", "\u200cb", "system/a%E2%80%8D:%E2%80%8Cb"},
		{"日本", "ü", "system/日本:ü"},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, err := json.Marshal(map[string]any{
				"id":     "u",
				"name":   c.name,
				"domain": map[string]any{"id": "d", "name": c.domain},
			})
			if err != nil {
				t.Fatal(err)
			}
			u, err := identityOf(t, Options{Scopes: ScopeSystem}, rolesPart, wholeSystem, `"user":`+string(owner))
			if err != nil {
				t.Errorf("%q of %q: %v", c.name, c.domain, err)
				return
			}
			if u.GetName() != c.want || !tenant.IsWellFormed(u.GetName()) || seen[c.want] != "" {
				t.Errorf("%q of %q is %q, want %q; earlier user: %q", c.name, c.domain, u.GetName(), c.want, seen[c.want])
			}
			seen[c.want] = c.domain + "/" + c.name
		})
	}
}

// TestDomainUserCannotHaveSystemName checks that a user of a domain of the system tenant cannot
// have the name of a caller with system scope.
func TestDomainUserCannotHaveSystemName(t *testing.T) {
	o := Options{
		Scopes:  ScopeProject | ScopeDomain | ScopeSystem,
		Tenants: map[string]tenant.ID{"admins": tenant.System()},
	}
	for name, want := range map[string]string{
		"system/acme:alice":   "system%2Facme:alice",
		"system%2Facme:alice": "system%252Facme:alice",
		"system/a/b":          "system%2Fa%2Fb",
		"a/b":                 "a/b",
	} {
		t.Run(name, func(t *testing.T) {
			owner := fmt.Sprintf(`"user":{"id":"u","name":%q,"domain":{"id":"d","name":"admins"}}`, name)
			for _, part := range []string{projectPart, domainOfD} {
				u, err := identityOf(t, o, rolesPart, part, owner)
				if err != nil || u.GetName() != want {
					t.Errorf("%v, %v; want %s", u, err, want)
				}
			}
		})
	}
	// In another tenant, the name is harmless and does not change.
	u, err := identityOf(t, o, rolesPart, projectPart,
		`"user":{"id":"u","name":"system/acme:alice","domain":{"id":"d","name":"acme"}}`)
	if err != nil || u.GetName() != "system/acme:alice" {
		t.Errorf("in another tenant: %v, %v", u, err)
	}
}

// TestRoleGroups checks that the groups of different IDs differ, and that a project has no group of
// another scope.
func TestRoleGroups(t *testing.T) {
	seen := map[string]bool{
		DomainRoleGroup("d", "r"):         true,
		DomainRoleGroup("d", "r:s"):       true,
		DomainRoleGroup("d:r", "s"):       true,
		DomainRoleGroup("e", "r"):         true,
		roleGroup(systemPart, "r"):        true,
		DomainRoleGroup("d", "%3A"):       true,
		roleGroup(systemPart, "domain:r"): true,
	}
	if len(seen) != 7 || !seen["role-id:domain:d:r"] || !seen["role-id:domain:d:r%3As"] ||
		!seen["role-id:domain:d%3Ar:s"] || !seen["role-id:domain:d:%253A"] {
		t.Errorf("groups of domains %v", seen)
	}
	for _, c := range []struct{ name, project, role, want string }{
		{"an ordinary project and role", "p", "r", "role-id:p:r"},
		{"a colon in the project", "p:r", "s", "role-id:p%3Ar:s"},
		{"a colon in the role", "p", "r:s", "role-id:p:r%3As"},
		{"an escaped colon in the project", "p%3Ar", "s", "role-id:p%253Ar:s"},
		{"a project that looks like a domain and its role", "domain:r", "s", "role-id:domain%3Ar:s"},
		{"a reserved project after a space", " domain", "r", "role-id:%20domain:r"},
		{"a reserved project in another case", "Domain", "r", "role-id:Domain:r"},
		{"the reserved project of domains", "domain", "r", ""},
		{"the reserved project of the system", "system", "r", ""},
		{"no project", "", "r", ""},
		{"no role", "p", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := RoleGroup(c.project, c.role)
			if got != c.want || seen[got] || !tenant.IsWellFormed(got) {
				t.Errorf("RoleGroup(%q, %q) = %q, want %q", c.project, c.role, got, c.want)
			}
			seen[got] = got != ""
		})
	}
	if DomainRoleGroup("d", "") != "" || DomainRoleGroup("", "r") != "" {
		t.Error("DomainRoleGroup without a domain or a role is not empty")
	}
}

// TestLegacyExtrasOfScopes checks that only a project-scoped token has legacy extras of a project.
func TestLegacyExtrasOfScopes(t *testing.T) {
	o := Options{Scopes: ScopeProject | ScopeDomain | ScopeSystem, LegacyExtras: true}
	for part, want := range map[string]int{projectPart: 5, domainOfD: 3, wholeSystem: 3} {
		t.Run(part, func(t *testing.T) {
			u, err := identityOf(t, o, rolesPart, part)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, key := range LegacyExtras() {
				if len(u.GetExtra()[key]) > 0 {
					n++
				}
			}
			if n != want || !slices.Equal(u.GetExtra()[legacyRoles], []string{"admin", "member"}) {
				t.Errorf("%v", u.GetExtra())
			}
		})
	}
}

// FuzzAnswer checks that an identity from any response of Keystone belongs to a tenant that the
// accepted scopes allow, and has no reserved name or group.
func FuzzAnswer(f *testing.F) {
	for _, part := range []string{projectPart, domainOfD, wholeSystem, projectPart + "," + wholeSystem, `"domain":{}`} {
		f.Add(`{"token":{"expires_at":"2100-01-01T00:00:00Z","issued_at":"2020-01-01T00:00:00Z","audit_ids":["a"],` +
			`"user":{"id":"u","name":"alice","domain":{"id":"d","name":"acme"}},` + rolesPart + "," + part + `}}`)
	}
	f.Add(`{"token":{"expires_at":"2100-01-01T00:00:00Z","user":{"id":"u","name":"system:masters","domain":` +
		`{"id":"d","name":"system"}},"domain":{"id":"d","name":"system"},"roles":[{"id":"system:masters","name":"x"}]}}`)
	f.Add(`{"token":{"OS-TRUST:trust":{}}}`)
	f.Add(`{"token":null}`)
	tenants, err := tenant.ParseSet([]string{tenant.AnyName, tenant.System().String()})
	if err != nil {
		f.Fatal(err)
	}
	hygiene := authn.IdentityRules{Tenants: tenants, Remote: true, Reserved: &tenant.SystemNames{Users: []string{"root"}}}
	now := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	f.Fuzz(func(t *testing.T, text string) {
		var body struct {
			Token *tokenBody `json:"token"`
		}
		if json.Unmarshal([]byte(text), &body) != nil || body.Token == nil || body.Token.isEmpty() {
			return
		}
		accepted := 0
		for scopes := ScopeProject; scopes <= ScopeProject|ScopeDomain|ScopeSystem; scopes++ {
			u, err := newAuthenticator(Options{Scopes: scopes, Now: now}, nil).identity(body.Token)
			if (u == nil) == (err == nil) {
				t.Fatalf("scopes %b: %v, %v", scopes, u, err)
			}
			if u == nil {
				continue
			}
			accepted++
			checkIdentity(t, u, scopes, body.Token, &hygiene)
		}
		// A token has one scope, which 4 of the 7 sets contain.
		if accepted != 0 && accepted != 4 {
			t.Fatalf("%d of 7 sets of scopes accept the token", accepted)
		}
		if u, err := newAuthenticator(Options{Now: now}, nil).identity(body.Token); err == nil {
			t.Fatalf("without scopes: %v", u)
		}
	})
}

// checkIdentity checks an identity that an authenticator with the accepted scopes returned.
func checkIdentity(t *testing.T, u user.Info, scopes Scopes, a *tokenBody, hygiene *authn.IdentityRules) {
	t.Helper()
	scope := a.scopes()
	id, err := tenant.Of(u)
	switch {
	case err != nil:
		t.Fatal(err)
	case !scopes.Has(scope), a.Trust != nil, len(a.Credential.AccessRules) > 0, a.IsDomain:
		t.Fatalf("scopes %b accept the token", scopes)
	case id.IsSystem() != (scope == ScopeSystem):
		t.Fatalf("a token with scope %b belongs to tenant %v", scope, id)
	case scope != ScopeSystem && id.String() != a.User.Domain.Name:
		t.Fatalf("tenant %v of domain %q", id, a.User.Domain.Name)
	case scope == ScopeSystem && !strings.HasPrefix(u.GetName(), systemUser):
		t.Fatalf("name %q with system scope", u.GetName())
	case scope == ScopeDomain && a.Domain.ID != a.User.Domain.ID:
		t.Fatalf("domain %q of a user of %q", a.Domain.ID, a.User.Domain.ID)
	case len(u.GetGroups()) == 0:
		t.Fatal("no groups")
	}
	if err := tenant.CheckForm("the user name", u.GetName()); err != nil {
		t.Fatal(err)
	}
	prefix := map[Scopes]string{ScopeDomain: "role-id:domain:", ScopeSystem: "role-id:system:"}
	for _, group := range u.GetGroups() {
		if strings.HasPrefix(group, "system:") || strings.HasPrefix(group, tenant.GroupPrefix) ||
			!tenant.IsWellFormed(group) {
			t.Fatalf("group %q", group)
		}
		for of, begins := range prefix {
			if strings.HasPrefix(group, begins) != (of == scope) {
				t.Fatalf("group %q with scope %b", group, scope)
			}
		}
	}
	if hygiene.Check(u.GetName(), u.GetGroups(), id) == nil && strings.HasPrefix(u.GetName(), "system:") {
		t.Fatalf("name %q", u.GetName())
	}
	if err := hygiene.Check(u.GetName(), u.GetGroups(), id); scope == ScopeSystem && err != nil {
		t.Fatalf("name %q, groups %q: %v", u.GetName(), u.GetGroups(), err)
	}
}
