// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package style_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSignOffs checks which commit messages hack/sign-offs.sh rejects, and for which reason.
func TestSignOffs(t *testing.T) {
	const author = "A B <a@example.com>"
	cases := []struct{ name, message, want string }{
		{"signed off", "a: b\n\nSigned-off-by: " + author, ""},
		{"one of two", "a: b\n\nSigned-off-by: C <c@example.com>\nSigned-off-by: " + author, ""},
		{"missing", "a: b", `no line "Signed-off-by: ` + author + `"`},
		{"another person", "a: b\n\nSigned-off-by: C <c@example.com>", "no line"},
		{"another address", "a: b\n\nSigned-off-by: A B <b@example.com>", "no line"},
		{"the address as a pattern", "a: b\n\nSigned-off-by: A B <a@exampleXcom>", "no line"},
		{"longer", "a: b\n\nSigned-off-by: " + author + " x", "no line"},
		{"in the subject", "a: Signed-off-by: " + author, "no line"},
		{"in the middle", "a: b\n\nSigned-off-by: " + author + "\n\nmore text", "no line"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			git(t, dir, "init", "-q", "-b", "main")
			commitAs(t, dir, "a: not signed off")
			git(t, dir, "checkout", "-q", "-b", "change")
			commitAs(t, dir, c.message)
			checkSignOffs(t, dir, "main", c.want)
		})
	}
}

// TestSignOffsOfMerge checks that merged commits need sign-offs, but the merge commit does not.
func TestSignOffsOfMerge(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	commitAs(t, dir, "a: first")
	git(t, dir, "checkout", "-q", "-b", "side")
	commitAs(t, dir, "a: side\n\nSigned-off-by: A B <a@example.com>")
	git(t, dir, "checkout", "-q", "-b", "change", "main")
	git(t, dir, "-c", "user.name=A B", "-c", "user.email=a@example.com", "merge", "-q", "--no-ff", "-m", "Merge", "side")
	checkSignOffs(t, dir, "main", "")
	checkSignOffs(t, dir, "missing", "no commit missing")

	git(t, dir, "checkout", "-q", "side")
	commitAs(t, dir, "a: not signed off")
	git(t, dir, "checkout", "-q", "change")
	git(t, dir, "-c", "user.name=A B", "-c", "user.email=a@example.com", "merge", "-q", "--no-ff", "-m", "Merge", "side")
	checkSignOffs(t, dir, "main", "no line")
}

func commitAs(t *testing.T, dir, message string) {
	t.Helper()
	git(t, dir, "-c", "user.name=A B", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", message)
}

// checkSignOffs runs hack/sign-offs.sh. The script must print want, or succeed if want is empty.
func checkSignOffs(t *testing.T, dir, base, want string) {
	t.Helper()
	script, err := filepath.Abs("../../hack/sign-offs.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, base)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
		t.Errorf("sign-offs.sh: %v: %s; want %q", err, out, want)
	}
}
