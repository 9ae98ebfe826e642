// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// FuzzFile checks that no content causes a panic, that positions are valid, and that findings do
// not contain a secret.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"SECRETSECRET,u,1\n", "SECRETSECRET,u\nSECRETSECRET,u,1,,a b\n", "\"SECRETSECRET,u,1",
		"SECRETSECRET,u,1,,acme\nSECRETSECRET,v,2,,acme\n",
		`{"user":"x","tenant":"a"}` + "\n{",
		"apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication: { sources: [ { name: a } ] }\n",
		"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
	} {
		f.Add(seed)
	}
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, data string) {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, kind := range append(validate.Kinds(), "") {
			found, err := check(t.Context(), path, kind)
			if err != nil {
				continue
			}
			for _, p := range found {
				if p.Line < 1 || p.Column < 1 || p.Reason == "" {
					t.Errorf("%s: %+v", kind, p)
				}
				// Only the first field of a record is a secret.
				if first, _, _ := strings.Cut(data, ","); first == "SECRETSECRET" && (kind == "token" || kind == "password") &&
					strings.Contains(p.String()+p.Fix, first) {
					t.Errorf("%s reveals the secret: %s", kind, p.String())
				}
			}
		}
	})
}
