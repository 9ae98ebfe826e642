// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package idp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/idp"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// tools returns the directory in which make test-idp installs packages, from the variable
// KUBETENANT_IDP.
func tools(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("KUBETENANT_IDP")
	if dir == "" {
		t.Skip("KUBETENANT_IDP is not set: run make test-idp, which installs the identity providers")
	}
	return dir
}

// stack returns a Stack of the library with the given configuration.
func stack(t *testing.T, dir, config string) *kubetenant.Stack {
	t.Helper()
	path := filepath.Join(dir, "tenancy.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"+config),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := configv1alpha1.Load(path); err != nil {
		t.Fatal(err)
	}
	s, err := kubetenant.Open(t.Context(), path, kubetenant.Config{
		Cluster: lookuptest.OwnedBy(
			authz.NewOwners(corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)).Get, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask authenticates a request with the given bearer token.
func ask(t *testing.T, s *kubetenant.Stack, token string) (user.Info, error) {
	t.Helper()
	req := (&http.Request{
		Header: http.Header{"Authorization": {"Bearer " + token}},
		URL:    &url.URL{},
	}).WithContext(t.Context())
	resp, ok, err := s.Authenticator.AuthenticateRequest(req)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		t.Fatal("no source accepts or rejects the token")
	}
	return resp.User, nil
}

func refused(t *testing.T, s *kubetenant.Stack, what, token, want string) {
	t.Helper()
	if u, err := ask(t, s, token); err == nil || !strings.Contains(err.Error(), want) ||
		strings.Contains(err.Error(), token) {
		t.Errorf("%s: %+v, %v; want %q", what, u, err, want)
	}
}

func accepted(t *testing.T, s *kubetenant.Stack, what, token, name, id string, groups ...string) {
	t.Helper()
	u, err := ask(t, s, token)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	got, err := tenant.Of(u)
	if err != nil || u.GetName() != name || got.String() != id ||
		!slices.Equal(u.GetGroups(), append(groups, "tenant:"+id, "system:authenticated")) {
		t.Errorf("%s: %+v, %v", what, u, err)
	}
}

func TestOpenID(t *testing.T) {
	dir := t.TempDir()
	provider, err := idp.StartOpenID(t.Context(), tools(t), "testdata/provider.mjs", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Stop()
	s := stack(t, dir, fmt.Sprintf(`
authentication:
  sources:
  - name: corp
    tenants: [acme, globex]
    groupsPrefix: "corp:"
    oidc:
      jwt:
        issuer: { url: %q, audiences: [rs256, es256], audienceMatchPolicy: MatchAny, certificateAuthority: %q }
        claimMappings: { username: { claim: sub, prefix: "" }, groups: { claim: groups, prefix: "" } }
      tenant: { claim: org }
`, provider.Issuer, provider.CA))
	login := func(client, account string) string {
		t.Helper()
		token, err := provider.Login(t.Context(), client, account)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	accepted(t, s, "RS256", login("rs256", "alice@acme"), "alice@acme", "acme", "corp:dev")
	accepted(t, s, "ES256", login("es256", "alice@globex"), "alice@globex", "globex", "corp:dev")
	refused(t, s, "a tenant that the source may not assert", login("rs256", "alice@initech"), "may not assert")
	refused(t, s, "the system tenant", login("rs256", "alice@system"), "may not assert")
	refused(t, s, "no tenant", login("rs256", "alice"), "do not name exactly one tenant")
	unseen := login("rs256", "carol@acme")
	if err := provider.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rotated := login("rs256", "bob@acme")
	accepted(t, s, "after a rotation, RS256", rotated, "bob@acme", "acme", "corp:dev")
	accepted(t, s, "after a rotation, ES256", login("es256", "bob@globex"), "bob@globex", "globex", "corp:dev")
	refused(t, s, "a token that was signed with an earlier key", unseen, "no usable key")
	refused(t, s, "a changed signature", rotated[:len(rotated)-6]+"AAAAAA", "invalid signature")
}

func TestKeystone(t *testing.T) {
	tools(t)
	dir, ctx := t.TempDir(), t.Context()
	k, err := idp.StartKeystone(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	clouds, err := k.MakeValidator(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clouds.yaml"), clouds, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	domains := map[string]idp.Domain{}
	for _, name := range []string{"acme", "globex", "My Domain", "Other Domain", "system"} {
		if domains[name], err = k.MakeDomain(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	s := stack(t, dir, fmt.Sprintf(`
authentication:
  sources:
  - name: openstack
    tenants: ["*"]
    groupsPrefix: "keystone:"
    keystone: { authURL: %q, cloud: kube, cloudsFile: clouds.yaml, tenantMap: { My Domain: my-domain },
      legacyExtras: true, cache: { ttl: 1s, negativeTTL: 0s } }
`, k.URL))
	get := func(domain string, scope any) string {
		t.Helper()
		token, err := k.Token(ctx, domain, "alice", scope)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	groupsOf := func(domain string) []string {
		t.Helper()
		groups, err := k.ProjectGroups(ctx, "keystone:", domains[domain].Project, "web", "member", "reader")
		if err != nil {
			t.Fatal(err)
		}
		return groups
	}
	groups := groupsOf("acme")
	acme, globex := get("acme", idp.Project("web", "acme")), get("globex", idp.Project("web", "globex"))
	accepted(t, s, "alice of acme", acme, "alice", "acme", groups...)
	accepted(t, s, "alice of globex", globex, "alice", "globex", groupsOf("globex")...)
	accepted(t, s, "a mapped domain", get("My Domain", idp.Project("web", "My Domain")), "alice", "my-domain",
		groupsOf("My Domain")...)
	refused(t, s, "a domain without a tenant", get("Other Domain", idp.Project("web", "Other Domain")),
		keystone.ErrDomain.Error())
	refused(t, s, "a domain named system", get("system", idp.Project("web", "system")),
		keystone.ErrDomain.Error())
	u, err := ask(t, s, acme)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		tenant.KeystoneDomainKey:                        domains["acme"].ID,
		tenant.KeystoneProjectKey:                       domains["acme"].Project,
		tenant.SourceKey:                                "openstack",
		"alpha.kubernetes.io/identity/project/name":     "web",
		"alpha.kubernetes.io/identity/user/domain/name": "acme",
	} {
		t.Run(key, func(t *testing.T) {
			if got := u.GetExtra()[key]; !slices.Equal(got, []string{want}) {
				t.Errorf("extra %s = %q, want %q", key, got, want)
			}
		})
	}
	if u.GetUID() != domains["acme"].User ||
		!strings.HasPrefix(u.GetExtra()[user.CredentialIDKey][0], "KEYSTONEAUDITID=") {
		t.Errorf("identity %+v", u)
	}

	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused(t, s, "an unscoped token", get("acme", nil), keystone.ErrUnscoped.Error())
	must(k.Assign(ctx, "/domains/"+domains["acme"].ID, domains["acme"].User, "reader"))
	refused(t, s, "a domain-scoped token", get("acme", idp.DomainScope("acme")),
		keystone.ErrDomainScope.Error())
	must(k.Assign(ctx, "/system", domains["acme"].User, "reader"))
	refused(t, s, "a system-scoped token", get("acme", idp.SystemScope()),
		keystone.ErrSystemScope.Error())
	must(k.Assign(ctx, "/projects/"+domains["globex"].Project, domains["acme"].User, "member"))
	refused(t, s, "a project of another domain", get("acme", idp.Project("web", "globex")),
		keystone.ErrForeignProject.Error())
	refused(t, s, "a token that Keystone never issued", "gAAAAAB"+strings.Repeat("x", 100), keystone.ErrUnknown.Error())

	scopes(t, filepath.Join(dir, "clouds.yaml"), k, domains, groups)
	credentials(t, s, k, domains, acme, groups)
	serviceCredential(t, k, acme, groups)
	trusts(t, s, k, domains, globex)
	disabled(t, s, k, domains, globex)
}

// scopes checks tokens of a real Keystone with each kind of scope. It uses one source that accepts
// all kinds, and sources that accept only one kind.
func scopes(t *testing.T, clouds string, k *idp.Keystone, domains map[string]idp.Domain, inProject []string) {
	ctx := t.Context()
	id, err := k.RoleID(ctx, "reader")
	for _, err := range []error{
		err,
		k.Assign(ctx, "/domains/"+domains["globex"].ID, domains["acme"].User, "reader"),
		k.Assign(ctx, "/domains/"+domains["system"].ID, domains["system"].User, "reader"),
		k.Assign(ctx, "/system", domains["Other Domain"].User, "reader"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func(domain string, scope any) string {
		t.Helper()
		token, err := k.Token(ctx, domain, "alice", scope)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	project, domain, system := get("acme", idp.Project("web", "acme")), get("acme", idp.DomainScope("acme")),
		get("acme", idp.SystemScope())
	with := func(scopes string) *kubetenant.Stack {
		t.Helper()
		return stack(t, t.TempDir(), fmt.Sprintf(`
authentication:
  sources:
  - { name: openstack, tenants: ["*", system], groupsPrefix: "keystone:",
      keystone: { authURL: %q, cloud: kube, cloudsFile: %q, scopes: [%s] } }
`, k.URL, clouds, scopes))
	}
	inDomain, inSystem := "keystone:role-id:domain:"+domains["acme"].ID+":"+id, "keystone:role-id:system:"+id
	all := with("project, domain, system")
	accepted(t, all, "a project", project, "alice", "acme", inProject...)
	accepted(t, all, "a domain", domain, "alice", "acme", inDomain)
	accepted(t, all, "the system", system, "system/acme:alice", "system", inSystem)
	accepted(t, all, "the system, from a domain without a tenant", get("Other Domain", idp.SystemScope()),
		"system/Other Domain:alice", "system", inSystem)
	refused(t, all, "another domain", get("acme", idp.DomainScope("globex")), keystone.ErrForeignDomain.Error())
	refused(t, all, "a domain named system", get("system", idp.DomainScope("system")), keystone.ErrDomain.Error())
	refused(t, all, "an unscoped token", get("acme", nil), keystone.ErrUnscoped.Error())
	u, err := ask(t, all, system)
	if err != nil {
		t.Fatal(err)
	}
	extra := u.GetExtra()
	if _, ok := extra[tenant.KeystoneProjectKey]; ok || u.GetUID() != domains["acme"].User ||
		!slices.Equal(extra[tenant.KeystoneDomainKey], []string{domains["acme"].ID}) ||
		!slices.Equal(extra[tenant.KeystoneRolesKey], []string{id}) {
		t.Errorf("the system: identity %+v", u)
	}
	only := with("domain")
	accepted(t, only, "a domain", domain, "alice", "acme", inDomain)
	refused(t, only, "a project", project, keystone.ErrProjectScope.Error())
	refused(t, only, "the system", system, keystone.ErrSystemScope.Error())
	only = with("system")
	accepted(t, only, "the system", system, "system/acme:alice", "system", inSystem)
	refused(t, only, "a domain", domain, keystone.ErrDomainScope.Error())
}

// credentials checks that application credentials are valid unless they have access rules.
func credentials(
	t *testing.T, s *kubetenant.Stack, k *idp.Keystone, domains map[string]idp.Domain, token string, groups []string,
) {
	ctx := t.Context()
	for _, c := range []struct {
		what map[string]any
		want string
	}{
		{map[string]any{"name": "plain"}, ""},
		{
			map[string]any{
				"name":         "limited",
				"access_rules": []any{map[string]any{"path": "/v2.0/metrics", "method": "GET", "service": "monitoring"}},
			},
			keystone.ErrAccessRules.Error(),
		},
	} {
		id, secret, err := k.MakeCredential(ctx, token, domains["acme"].User, c.what)
		if err != nil {
			t.Fatal(err)
		}
		of, err := k.CredentialToken(ctx, id, secret)
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" {
			accepted(t, s, "an application credential", of, "alice", "acme", groups...)
			continue
		}
		refused(t, s, "an application credential with access rules", of, c.want)
	}
}

// serviceCredential checks that the server may log in with an application credential instead of a
// password. The user has the role service.
func serviceCredential(t *testing.T, k *idp.Keystone, token string, groups []string) {
	ctx, dir := t.Context(), t.TempDir()
	clouds, err := k.MakeServiceCredential(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clouds.yaml"), clouds, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := stack(t, dir, fmt.Sprintf(`
authentication:
  sources:
  - { name: openstack, tenants: ["*"], groupsPrefix: "keystone:",
      keystone: { authURL: %q, cloud: kube, cloudsFile: clouds.yaml } }
`, k.URL))
	accepted(t, s, "validated with an application credential", token, "alice", "acme", groups...)
}

// trusts checks that a token of a trust is rejected, although its user is the trustor.
func trusts(t *testing.T, s *kubetenant.Stack, k *idp.Keystone, domains map[string]idp.Domain, trustor string) {
	ctx := t.Context()
	var created struct{ Trust struct{ ID string } }
	err := k.Do(ctx, trustor, http.MethodPost, "/OS-TRUST/trusts", map[string]any{"trust": map[string]any{
		"trustor_user_id": domains["globex"].User,
		"trustee_user_id": domains["acme"].User,
		"project_id":      domains["globex"].Project,
		"impersonation":   true,
		"roles":           []any{map[string]any{"name": "member"}},
	}}, &created)
	if err != nil {
		t.Fatal(err)
	}
	token, err := k.Token(ctx, "acme", "alice", map[string]any{"OS-TRUST:trust": map[string]any{"id": created.Trust.ID}})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, "a token of a trust", token, keystone.ErrTrust.Error())
}

// disabled checks that the tokens of a disabled domain are rejected, and that they are valid again
// after the domain is enabled. A revoked token remains invalid.
func disabled(t *testing.T, s *kubetenant.Stack, k *idp.Keystone, domains map[string]idp.Domain, token string) {
	ctx := t.Context()
	enable := func(enabled bool) {
		t.Helper()
		if err := k.Do(ctx, "", http.MethodPatch, "/domains/"+domains["globex"].ID,
			map[string]any{"domain": map[string]any{"enabled": enabled}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(what string, is func(error) bool) {
		t.Helper()
		waittest.Until(t, func() error {
			if _, err := ask(t, s, token); !is(err) {
				return errors.Join(errors.New(what), err)
			}
			return nil
		})
	}
	isUnknown := func(err error) bool { return err != nil && strings.Contains(err.Error(), keystone.ErrUnknown.Error()) }
	back := func(err error) bool { return err == nil }
	enable(false)
	eventually("a disabled domain", isUnknown)
	enable(true)
	eventually("a domain that is enabled again", back)
	revoke, err := http.NewRequestWithContext(ctx, http.MethodDelete, k.URL+"/auth/tokens", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	revoke.Header.Set("X-Auth-Token", token)
	revoke.Header.Set("X-Subject-Token", token)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(revoke)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	eventually("a revoked token", isUnknown)
}
