// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestLimitsOfIdentity checks that the table of limits in docs/identity.md has the values of the
// constants in the code.
func TestLimitsOfIdentity(t *testing.T) {
	page, err := os.ReadFile("../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n### Limits\n")
	table, _, _ = strings.Cut(table, "\n### ")
	byFolder := packages(t)
	for _, c := range []struct{ folder, name, value, row string }{
		{"authn", "maxTokenBytes", "64 << 10", "| a bearer token | 64 KiB |"},
		{"authn/keystone", "maxTokenBytes", "4 << 10", "| a token that is sent to Keystone | 4 KiB |"},
		{"authn/internal/unverified", "maxDepth", "32", "| the nesting of claims | 32 levels |"},
		{"authn", "maxCertificates", "8", "| the certificates that a client presents | 8, and"},
		{"authn", "maxCertificateBytes", "32 << 10", ", and 32 KiB in total |"},
		{"authn/basicauth", "maxHeaderBytes", "8 << 10", "| the user name and password of a login | 8 KiB."},
		{"authn/basicauth", "maxBcryptBytes", "72", "A password with a bcrypt hash: 72 bytes |"},
		{"authn/basicauth", "maxCost", "16", "| the bcrypt cost of a password | 16 |"},
		{"authn/basicauth", "maxRunningLogins", "4", "| concurrent bcrypt logins | 4, and"},
		{"authn/basicauth", "maxWaitingLogins", "64", ", and 64 that wait |"},
		{"authn/basicauth", "maxLoginsPerClient", "8", "if half of the places are taken | 8 |"},
		{"authn/internal/outbound", "MaxBytes", "1 << 20", "| a response of a provider, Keystone or a webhook | 1 MiB, and"},
		{"authn/internal/outbound", "MaxHeaderBytes", "64 << 10", ", and 64 KiB of headers |"},
		{"authn/oidc", "maxRedirects", "5", "| the redirects for one document of a provider | 5, only"},
		{"authn/oidc", "fetchTimeout", "10 * time.Second", "| one fetch of a provider's documents | 10 s |"},
		{"authn/oidc", "maxCandidates", "32", "| the keys that are tried for a token | 32 |"},
		{"authn/oidc", "refetchAfter", "5 * time.Second", "or was made for an unknown key | 5 s |"},
		{"authn/keystone", "timeout", "5 * time.Second", "one login of the service user | 5 s each |"},
		{"authn/keystone", "loginBurst", "3", "| the logins of the service user | 3 in sequence,"},
		{"authn/keystone", "backoff", "5 * time.Second", "then one in 5 s. 5 s after a failed login |"},
		{"authn/keystone", "maxConcurrent", "256", "and to one webhook | 256 |"},
		{"authn/webhook", "maxConcurrent", "256", "and to one webhook | 256 |"},
		{"authn/webhook", "timeout", "5 * time.Second", "| one review by a webhook | 5 s |"},
		{"authn", "tokenEntries", "32 << 10", "| cached tokens | 32,768, and"},
		{"authn", "tokenBytes", "64 << 20", "| cached tokens | 32,768, and 64 MiB |"},
		{"authn/keystone", "cacheEntries", "32 << 10", "| cached tokens of one Keystone | 32,768, and"},
		{"authn/keystone", "cacheBytes", "32 << 20", "| cached tokens of one Keystone | 32,768, and 32 MiB |"},
		{"internal/gateway", "reviewBurst", "200", "for each namespace | 200 at once,"},
		{"internal/gateway", "reviewsPerSecond", "20", "at once, then 20 in one second |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if value := constant(byFolder[c.folder], c.name); value != c.value {
				t.Errorf("%s.%s is %q, and the page says %q: change the table and this test", c.folder, c.name, value, c.row)
			}
			if !strings.Contains(table, c.row) {
				t.Errorf("the table of limits lacks %q", c.row)
			}
		})
	}
}

// constant returns the expression of a constant, or "" if there is none.
func constant(files []*ast.File, name string) (value string) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 && spec.Names[0].Name == name {
				var text bytes.Buffer
				if format.Node(&text, token.NewFileSet(), spec.Values[0]) == nil {
					value = text.String()
				}
			}
			return true
		})
	}
	return value
}
