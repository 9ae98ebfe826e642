// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheScriptRefusesARelease checks that hack/release.sh rejects some releases before it builds
// anything.
func TestTheScriptRefusesARelease(t *testing.T) {
	script, err := os.ReadFile("../release.sh")
	if err != nil {
		t.Fatal(err)
	}
	release := []string{"VERSION=v0.1.0", "UNSIGNED=1"}
	for name, c := range map[string]struct {
		variables []string
		prepare   string
		want      string
	}{
		"without a version":     {nil, "", "set VERSION=v0.1.0 for a release, or SNAPSHOT=1"},
		"with both":             {append(release, "SNAPSHOT=1"), "", "either VERSION or SNAPSHOT"},
		"without the tag":       {release, "git tag -d v0.1.0", "HEAD does not have the tag v0.1.0"},
		"with a tag elsewhere":  {release, "git commit -q --allow-empty -m x", "HEAD does not have the tag v0.1.0"},
		"with a changed file":   {release, "echo x >>CHANGELOG.md", "the tree has changes"},
		"with a new file":       {release, "echo x >new", "the tree has changes"},
		"without signatures":    {release[:1], "", "needs signatures"},
		"without the key":       {[]string{"VERSION=v0.1.0", "KEY=none.key"}, "", "no file none.key"},
		"without the password":  {[]string{"VERSION=v0.1.0", "KEY=a.key"}, "touch a.key", "set COSIGN_PASSWORD"},
		"into a used folder":    {release, "mkdir dist && touch dist/a", "dist is not empty"},
		"not semantic":          {[]string{"VERSION=0.1", "UNSIGNED=1"}, "", "must be a semantic version"},
		"with an old changelog": {[]string{"VERSION=v0.2.0", "UNSIGNED=1"}, "git tag v0.2.0", "## 0.2.0 - DATE"},
		"a signed snapshot with a changed file": {
			[]string{"SNAPSHOT=1", "KEYLESS=1"}, "echo x >>CHANGELOG.md", "must not contain changes",
		},
		"with an ignored file in a chart": {release, "mkdir deploy && touch deploy/a.key", "the tree has changes"},
		"a snapshot, used folder":         {[]string{"SNAPSHOT=1"}, "mkdir dist && touch dist/a", "dist is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"hack/release.sh": string(script),
				"CHANGELOG.md":    "# Changelog\n\n## 0.1.0 - 2026-11-29\n",
				"docs/upgrade.md": "# Upgrading\n\n## 0.1.0 - 2026-11-29\n",
				".gitignore":      "/dist/\n*.key\n",
			} {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, path, []byte(text))
			}
			shell := func(command string, variables ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), "bash", "-euc", command)
				cmd.Dir = dir
				cmd.Env = append([]string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
					"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
				}, variables...)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			prepare := "git init -q && git add . && git commit -q -m x && git tag v0.1.0\n" + c.prepare
			if out, err := shell(prepare); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			out, err := shell("bash hack/release.sh build", c.variables...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v: %s; want %q", err, out, c.want)
			}
		})
	}
}
