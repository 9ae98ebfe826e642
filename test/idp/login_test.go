// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package idp_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/login"
	"github.com/kubetenant/kubetenant/test/idp"
)

// TestLoginAtOpenID runs kubectl tenant login with a real provider, which requires PKCE and accepts
// any loopback port. It checks that the refresh token is used, and that the library authenticates
// the ID token.
func TestLoginAtOpenID(t *testing.T) {
	dir := t.TempDir()
	provider, err := idp.StartOpenID(t.Context(), tools(t), "testdata/provider.mjs", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Stop()
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, provider.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	visited := make(chan error, 1)
	o := &login.OpenID{
		Issuer:      provider.Issuer,
		ClientID:    "kubectl",
		CAFile:      ca,
		Interactive: true,
		Timeout:     time.Minute,
		Now:         time.Now,
		Printf:      func(string, ...any) {},
		Open: func(ctx context.Context, address string) error {
			go func() { visited <- provider.Visit(context.WithoutCancel(ctx), address, "alice@acme") }()
			return nil
		},
	}
	token, err := o.Token(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-visited; err != nil {
		t.Errorf("the login in the browser failed: %v", err)
	}
	s := stack(t, dir, `
authentication:
  sources:
  - name: corp
    tenants: [acme]
    oidc:
      jwt: { issuer: { url: "`+provider.Issuer+`", certificateAuthority: "`+
		strings.ReplaceAll(string(provider.CA), "\n", `\n`)+
		`", audiences: [kubectl] }, claimMappings: { username: { claim: sub, prefix: "" } } }
      tenant: { claim: org }
`)
	accepted(t, s, "a login", token.Token, "alice@acme", "acme")
	if token.Refresh == "" {
		t.Fatal("no refresh token")
	}
	// The provider accepts the refresh token, so no interaction is needed.
	o.Interactive = false
	over := &login.Token{Token: token.Token, Expires: time.Now(), Refresh: token.Refresh}
	refreshed, err := o.Token(t.Context(), over)
	if err != nil || !refreshed.Expires.After(over.Expires) {
		t.Fatalf("refresh: %v", err)
	}
	accepted(t, s, "a refreshed login", refreshed.Token, "alice@acme", "acme")
}

// TestLoginAtKeystone runs kubectl tenant keystone-login with a real Keystone, and checks that the
// library authenticates the token.
func TestLoginAtKeystone(t *testing.T) {
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
	domain, err := k.MakeDomain(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	s := stack(t, dir, `
authentication:
  sources:
  - { name: openstack, tenants: ["*"], groupsPrefix: "keystone:", keystone: { authURL: "`+k.URL+
		`", cloud: kube, cloudsFile: clouds.yaml } }
`)
	environment := map[string]string{
		"OS_AUTH_URL":            k.URL,
		"OS_USERNAME":            "alice",
		"OS_PASSWORD":            idp.AdminPassword,
		"OS_USER_DOMAIN_NAME":    "acme",
		"OS_PROJECT_NAME":        "web",
		"OS_PROJECT_DOMAIN_NAME": "acme",
	}
	get := func(environment map[string]string) *login.Token {
		t.Helper()
		client := &login.Keystone{Now: time.Now, Environment: func(name string) string { return environment[name] }}
		if err := client.Read(); err != nil {
			t.Fatal(err)
		}
		token, err := client.Token(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !token.Expires.After(time.Now()) {
			t.Errorf("the token expired at %s", token.Expires)
		}
		return token
	}
	groups, err := k.ProjectGroups(ctx, "keystone:", domain.Project, "web", "member", "reader")
	if err != nil {
		t.Fatal(err)
	}
	token := get(environment)
	accepted(t, s, "a password", token.Token, "alice", "acme", groups...)
	id, secret, err := k.MakeCredential(ctx, token.Token, domain.User, map[string]any{"name": "cli"})
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, s, "an application credential",
		get(map[string]string{
			"OS_AUTH_URL":                      k.URL,
			"OS_APPLICATION_CREDENTIAL_ID":     id,
			"OS_APPLICATION_CREDENTIAL_SECRET": secret,
		}).Token, "alice", "acme", groups...)
	environment["OS_PASSWORD"] = "wrong"
	client := &login.Keystone{Now: time.Now, Environment: func(name string) string { return environment[name] }}
	if err := client.Read(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Token(ctx, nil); err == nil || !strings.Contains(err.Error(), "the credential was rejected") {
		t.Errorf("a wrong password = %v", err)
	}
}
