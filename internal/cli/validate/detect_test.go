// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// FuzzDetection checks that no content or name of a file causes a panic. Each finding has a
// reason, and no output contains a secret at the beginning of the content.
func FuzzDetection(f *testing.F) {
	const object = "apiVersion: kubetenant.dev/v1alpha1\nkind: %s\nmetadata: { name: a }\nspec: { id: a }\n"
	for _, text := range []string{
		"", "\x00", "{", "[]", "null", "---\n---\n", "*SECRETSECRET", "*SECRETSECRET,a,b", "&SECRETSECRET,a,b",
		"SECRETSECRET,u,1\n", "SECRETSECRET: u, 1\n", "\"SECRETSECRET,u,1",
		fmt.Sprintf(object, "Tenant"), fmt.Sprintf(object, "Tennant"), fmt.Sprintf(object, "AccessGrant"),
		fmt.Sprintf(object, "Scenario"),
		fmt.Sprintf(object, "Revocation") + "---\n" + fmt.Sprintf(object, "TenancyConfiguration"),
		"apiVersion: v1\nkind: List\nitems: [ 1, { kind: Namespace, apiVersion: v1 }, null ]\n",
		"apiVersion: v1\nkind: List\nitems: [ { kind: List, items: [ 1 ] }, { apiVersion: kubetenant.dev/v1 } ]\n",
		"apiVersion: v1\nkind: List\nitems: *a\n",
		"apiVersion: v1\nkind: NamespaceList\nitems: [ { metadata: { name: a } } ]\n",
		"a: &a [ *a ]\nkind: Tenant\n", `{"user":"x","tenant":"a"}`,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n",
	} {
		for name := range names() {
			f.Add(text, byte(name))
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string, n byte) {
		path := filepath.Join(dir, names()[int(n)%len(names())])
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		report, _ := validate.Files(t.Context(), []string{path}, validate.Options{Namespace: "kubetenant-system"})
		if len(report.Findings)+len(report.Unread)+len(report.Valid) == 0 {
			t.Errorf("%q: no output", text)
		}
		var all []string
		for i := range report.Findings {
			p := &report.Findings[i]
			if p.Reason == "" || p.File != path || p.Line < 0 || p.Column < 0 || p.Severity == "" {
				t.Errorf("%q: %+v", text, p)
			}
			all = append(all, p.String(), p.Fix)
		}
		for _, err := range report.Unread {
			all = append(all, err.Error())
		}
		const secret = "SECRETSECRET"
		first := strings.TrimLeft(text, "*&!\"' -") // without characters that are special in YAML
		if strings.HasPrefix(first, secret) && strings.Contains(strings.Join(all, "\n"), secret) {
			t.Errorf("the output for %q contains the secret: %q", text, all)
		}
	})
}

// names returns a file name for each case that the detection of kinds distinguishes.
func names() []string {
	return []string{"file", "file.csv", "passwords", "file.yaml", "file.json", "file.jsonl", "file.csr"}
}
