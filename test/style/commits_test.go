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

// TestCommitSubjects checks which commit subjects hack/commits.sh rejects, and for which reason.
func TestCommitSubjects(t *testing.T) {
	script, err := os.ReadFile("../../hack/commits.sh")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct{ subject, want string }{
		{"authz: deny when the owner is unknown", ""},
		{"hack, docs: embed what a new reader needs", ""},
		{"internal/cli/login: pass the token", ""},
		{"x509: " + strings.Repeat("a", 66), ""},
		{"x509: " + strings.Repeat("a", 67), "has 73 columns"},
		{"x509: " + strings.Repeat("ü", 66), `is not "area: imperative"`},
		{"x509: a" + strings.Repeat("ü", 65), ""},
		{"authz: deny; log the reason", "has a semicolon"},
		{"Deny when the owner is unknown", `is not "area: imperative"`},
		{"authz: Deny when the owner is unknown", `is not "area: imperative"`},
		{"authz deny when the owner is unknown", `is not "area: imperative"`},
		{"authz: denied when the owner is unknown", `"denied" is not an imperative`},
		{"authz: denies when the owner is unknown", `"denies" is not an imperative`},
		{"authz: denying when the owner is unknown", `"denying" is not an imperative`},
		{"Merge branch 'h/x'", `is not "area: imperative"`},
	}
	for _, c := range cases {
		t.Run(c.subject, func(t *testing.T) {
			dir := commits(t, script, "First commit; before the rule", c.subject)
			since := git(t, dir, "rev-parse", "HEAD~1")[0]
			checkSubjects(t, dir, since, c.want)
		})
	}
}

// TestCommitRanges checks that hack/commits.sh checks the commits after the commit in
// hack/commits-since. In a shallow clone without this commit, it checks all commits.
func TestCommitRanges(t *testing.T) {
	script, err := os.ReadFile("../../hack/commits.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := commits(t, script, "First commit", "Second commit", "authz: deny all")
	first, second := git(t, dir, "rev-parse", "HEAD~2")[0], git(t, dir, "rev-parse", "HEAD~1")[0]
	checkSubjects(t, dir, second, "")
	checkSubjects(t, dir, first, "Second commit")
	checkSubjects(t, dir, strings.Repeat("0", 40), "no commit 0000")

	git(t, dir, "checkout", "-q", "-b", "side", second)
	commit(t, dir, "authz: allow nothing")
	git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "merge", "-q", "--no-ff", "-m", "Merge all", "-")
	checkSubjects(t, dir, second, "")

	for depth, want := range map[string]string{"1": "", "3": "Second commit"} {
		t.Run(depth, func(t *testing.T) {
			shallow := t.TempDir()
			git(t, shallow, "clone", "-q", "--depth", depth, "file://"+dir, "clone")
			shallow = filepath.Join(shallow, "clone")
			installScript(t, shallow, script)
			out := checkSubjects(t, shallow, first, want)
			if !strings.Contains(out, "this shallow clone has no commit "+first) {
				t.Errorf("depth %s: got %q", depth, out)
			}
		})
	}
}

// commits returns a repository with a commit for each of the given subjects.
func commits(t *testing.T, script []byte, subjects ...string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	for _, subject := range subjects {
		commit(t, dir, subject)
	}
	installScript(t, dir, script)
	return dir
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", subject)
}

func installScript(t *testing.T, dir string, script []byte) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "hack"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hack/commits.sh"), script, 0o700); err != nil {
		t.Fatal(err)
	}
}

// checkSubjects runs hack/commits.sh. The script must print want, or succeed if want is empty.
func checkSubjects(t *testing.T, dir, since, want string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "hack/commits-since"), []byte(since+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hack/commits.sh")).CombinedOutput()
	switch {
	case want == "" && err != nil:
		t.Errorf("commits.sh: %v: %s", err, out)
	case want != "" && (err == nil || !strings.Contains(string(out), want)):
		t.Errorf("commits.sh: %v: %s; want %q", err, out, want)
	}
	return string(out)
}
