// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package style_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublishRelease checks the arguments with which hack/publish-release.sh calls gh. It uses a
// fake gh that prints its arguments.
func TestPublishRelease(t *testing.T) {
	cases := []struct{ name, version, lacks, want, wantError string }{
		{"a version", "v0.1.0", "", "release create v0.1.0 --verify-tag", ""},
		{"a release candidate", "v0.1.0-rc.1", "", " --prerelease ", ""},
		{"not a version", "main", "", "", "must be a version"},
		{"an option", "--draft", "", "", "must be a version"},
		{"another version", "v0.1.1", "", "", "is not a release of v0.1.1"},
		{"no notes", "v0.1.0", "RELEASE_NOTES.md", "", "has no RELEASE_NOTES.md"},
		{"no signature", "v0.1.0", "checksums.txt.sigstore.json", "", "has no checksums.txt.sigstore.json"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range map[string]string{
				"bin/gh":                           "#!/bin/sh\necho \"$@\"\n",
				"dist/RELEASE_NOTES.md":            "notes",
				"dist/checksums.txt":               "0 kubectl-tenant_v0.1.0_a\n0 kubectl-tenant_v0.1.0-rc.1_a\n",
				"dist/checksums.txt.sigstore.json": "{}",
				"dist/images/webhook/index.json":   "{}",
			} {
				t.Run(path, func(t *testing.T) {
					if path != "dist/"+c.lacks {
						writeExecutable(t, filepath.Join(dir, path), text)
					}
				})
			}
			cmd := exec.CommandContext(t.Context(), "../../hack/publish-release.sh", filepath.Join(dir, "dist"), c.version)
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			got := string(out)
			if (err == nil) != (c.wantError == "") || !strings.Contains(got, c.want) || !strings.Contains(got, c.wantError) {
				t.Fatalf("publish-release.sh: %v: %s; want %q%q", err, got, c.want, c.wantError)
			}
			if err != nil {
				return
			}
			files := strings.ReplaceAll(got[strings.Index(got, "--notes-file"):], dir+"/dist/", "")
			if !strings.HasSuffix(files, " RELEASE_NOTES.md checksums.txt checksums.txt.sigstore.json\n") {
				t.Errorf("gh is called with the files %q", files)
			}
			if strings.Contains(got, "--prerelease") != strings.Contains(c.version, "-") {
				t.Errorf("gh is called with %q", got)
			}
		})
	}
}

func writeExecutable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
