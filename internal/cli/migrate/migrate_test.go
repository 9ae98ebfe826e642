// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/internal/cli/migrate"
	"github.com/kubetenant/kubetenant/tenant"
)

// FuzzFrom checks that a conversion never panics or reveals a secret, and that the server
// accepts the converted files. It also checks that no group of the system tenant is assigned to
// another tenant.
func FuzzFrom(f *testing.F) {
	for _, seed := range []string{
		"SECRETSECRET,u,1,\"g,system:masters\",,acme\n", "SECRETSECRET,u,1\nSECRETSECRET,v,2,,b\n", ",,,,,,",
		`{"user":"acme:alice"}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"*","resource":"*",` +
			`"tenant":"a"}}`,
		`[{"users":{"projects":["p"],"roles":["r"]},"resource_permissions":{"*/['a','b']":["*"],"!x/y":["get"]}}]`,
		`[{"resource":{"verbs":["*"],"resources":["*"],"namespace":"n"},"match":[{"type":"user",` +
			`"values":["system:admin"]}]}]`,
		"apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: {name: oil}\n" +
			"spec: {owners: [{kind: ServiceAccount, name: x}]}\nstatus: {namespaces: [a]}\n",
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data string) {
		for kind, read := range migrate.From() {
			r, err := read([]byte(data), migrate.Options{GroupsPrefix: "keystone:"})
			if err != nil {
				continue
			}
			if reports := strings.Join(r.Unconverted, "\n"); strings.HasPrefix(data, "SECRETSECRET") &&
				strings.HasPrefix(kind, "arktos-tok") && strings.Contains(reports, "SECRETSECRET") &&
				strings.Count(data, "SECRETSECRET") == 1 {
				t.Errorf("%s reveals the secret: %s", kind, reports)
			}
			check(t, dir, r.Files)
		}
	})
}

func check(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	refuse := func(_ string, groups []string, id tenant.ID) error {
		for _, g := range groups {
			if !id.IsSystem() && strings.HasPrefix(g, "system:") {
				t.Errorf("the group %q for tenant %s", g, id)
			}
		}
		return nil
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		switch name {
		case "tokens.csv":
			_, err = tokenfile.Open(context.Background(), path, tokenfile.Options{Check: refuse})
		case "passwords.csv":
			if strings.ContainsAny(text, ":@") {
				continue // the source rejects some names with these characters
			}
			_, err = basicauth.Open(context.Background(), path, basicauth.Options{Check: refuse})
		case "policy.jsonl":
			_, err = abac.Parse([]byte(text))
		}
		if err != nil {
			t.Errorf("the server rejects %s: %v\n%s", name, err, text)
		}
	}
}
