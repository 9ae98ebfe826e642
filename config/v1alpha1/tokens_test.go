// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestTenantExpressions checks that a tenant expression is valid if its value can be a string, even
// if its type is known only at evaluation.
func TestTenantExpressions(t *testing.T) {
	for source, expressions := range map[string][]string{
		"oidc: { jwt: { issuer: { url: https://id.example.com, audiences: [a] }, claimMappings: { " +
			"username: { claim: sub, prefix: '' } } }, tenant: { expression: %s } }": {
			`claims.org`, `claims["org"]`, `claims.realm.split("/")[2]`, `has(claims.org) ? claims.org : "acme"`, `"acme"`,
			`string(claims.id)`, `dyn(claims.org)`, "claims.org // a comment", `claims.orgs[0]`, `claims.a.b.c`,
			"claims\n.org", `dyn(claims.orgs).filter(o, o != "x")[0]`,
		},
		"webhook: { kubeConfigFile: f, match: { prefix: x }, tenant: { expression: %s } }": {
			`user.extra["example.com/tenant"][0]`, `user.username`, `user.username.split(":")[0]`, `"acme"`,
			`size(user.groups) == 1 ? user.groups[0] : ""`,
		},
	} {
		t.Run(source, func(t *testing.T) {
			for _, expression := range expressions {
				text := "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  sources:\n" +
					"  - { name: a, tenants: [acme], " + fmt.Sprintf(source, strconv.Quote(expression)) + " }\n"
				if _, err := v1alpha1.Decode([]byte(text)); err != nil {
					t.Errorf("%s: %v", expression, err)
				}
			}
		})
	}
}

// TestKeystoneScopes checks which scopes are valid, and that the default does not include system.
// testdata/scenarios/invalid-tokens.yaml contains the messages.
func TestKeystoneScopes(t *testing.T) {
	for name, c := range map[string]struct {
		tenants, scopes string
		want            []v1alpha1.KeystoneScope // nil if the configuration is invalid
	}{
		"the default":   {"['*', system]", "", []v1alpha1.KeystoneScope{"project"}},
		"null":          {"['*', system]", "scopes: null", []v1alpha1.KeystoneScope{"project"}},
		"only a domain": {"['*']", "scopes: [domain]", []v1alpha1.KeystoneScope{"domain"}},
		"only system":   {"[system]", "scopes: [system]", []v1alpha1.KeystoneScope{"system"}},
		"all scopes in the given order": {
			"['*', system]", "scopes: [system, domain, project]", []v1alpha1.KeystoneScope{"system", "domain", "project"},
		},
		"system without the system tenant":      {"['*']", "scopes: [system]", nil},
		"system for another tenant":             {"[acme]", "scopes: [project, system]", nil},
		"no scope":                              {"[acme]", "scopes: []", nil},
		"an empty scope":                        {"[acme]", "scopes: ['']", nil},
		"a wildcard":                            {"[acme]", "scopes: ['*']", nil},
		"a scope that is specified twice":       {"[acme]", "scopes: [project, project]", nil},
		"an unknown scope in uppercase letters": {"['*', system]", "scopes: [SYSTEM]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  sources:\n" +
				fmt.Sprintf("  - { name: a, tenants: %s, keystone: { authURL: 'https://k', cloud: c, cloudsFile: f, %s } }\n",
					c.tenants, c.scopes)
			got, err := v1alpha1.Decode([]byte(text))
			if (err == nil) != (c.want != nil) {
				t.Fatalf("%v, want the scopes %q", err, c.want)
			}
			if err == nil && !slices.Equal(got.Authentication.Sources[0].Keystone.Scopes, c.want) {
				t.Errorf("%q, want %q", got.Authentication.Sources[0].Keystone.Scopes, c.want)
			}
		})
	}
}
