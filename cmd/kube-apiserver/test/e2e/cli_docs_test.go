// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// sessionPages returns the pages that contain console sessions. The pages of each list run one
// after the other on the same server.
func sessionPages() map[string][]string {
	return map[string][]string{
		"README":         {"README.md"},
		"kubectl-tenant": {"docs/kubectl-tenant.md", "docs/tasks/migrate-from-capsule.md"},
		"tasks": {
			"docs/tasks/give-a-tenant.md", "docs/tasks/templates.md", "docs/tasks/publish.md", "docs/tasks/log-in.md",
			"docs/tasks/give-ci-access.md", "docs/tasks/share.md", "docs/tasks/find-out-why.md", "docs/tasks/use-your-tenant.md",
			"docs/tasks/revoke-access.md", "docs/tasks/suspend.md", "docs/tasks/fair-use.md", "docs/tasks/usage.md",
			"docs/tasks/audit.md", "docs/tasks/end-a-tenant.md", "docs/tasks/uninstall.md",
		},
	}
}

// checkedElsewhere lists the pages below docs/tasks that other tests check: TestRestoredEtcd,
// TestKeystonePage and the tests of make test-upgrade.
func checkedElsewhere() []string {
	return []string{"docs/tasks/backup.md", "docs/tasks/keystone.md", "docs/tasks/upgrade.md"}
}

// TestCommandLinePages checks that the console sessions on the pages show the output of their
// commands against a real server. If UPDATE_GOLDEN is set, it updates the pages. It also checks
// that a test runs each page of docs/tasks.
func TestCommandLinePages(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/tasks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := "docs/tasks/" + filepath.Base(page)
		isRun := slices.ContainsFunc(slices.Collect(maps.Values(sessionPages())), func(story []string) bool {
			return slices.Contains(story, name)
		})
		if !isRun && !slices.Contains(checkedElsewhere(), name) {
			t.Errorf("%s: no test runs this page", name)
		}
	}
	for name, pages := range sessionPages() {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, nil)
			// The commands read the published configuration.
			s.awaitKubectl(t, "admin", "get", "configmap", configv1alpha1.PublishedName, "-n", "kube-system")
			dir := t.TempDir()
			sh := commandsIn(t, s, root, dir)
			for _, page := range pages {
				checkPage(t, filepath.Join(root, page), sh)
			}
		})
	}
}

// commandsIn prepares the directory in which the commands of a page run, and creates the tenants of
// the quick start.
func commandsIn(t *testing.T, s *server, root, dir string) *shell {
	t.Helper()
	if err := clientcmd.WriteToFile(*kubeconfigOf(t, s), filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	config := s.read(t, "tenancy.yaml")
	// The sources of this configuration refer to files of the server, but the commands do not read
	// these files.
	writeFile(t, filepath.Join(dir, "tenancy.yaml"), config)
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	sh := newShell(t, dir, filepath.Join(dir, "config"))
	quickStart(t, root, sh)
	return sh
}

// quickStart creates the tenants with the commands of the quick start in README.md, as the pages
// require.
func quickStart(t *testing.T, root string, sh *shell) {
	t.Helper()
	text := readFile(t, filepath.Join(root, "README.md"))
	commands := regexp.MustCompile(`(?m)^kubectl tenant create-tenant .*$`).FindAllString(text, -1)
	if len(commands) != 2 {
		t.Fatalf("README.md creates %d tenants, want 2", len(commands))
	}
	for _, command := range commands {
		if out, err := sh.try(t.Context(), command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// checkPage runs the console sessions of a page, and checks their output.
func checkPage(t *testing.T, page string, sh *shell) {
	t.Helper()
	checkSessions(t, page, sh, func() {}, normalize)
}

// checkSessions runs the console sessions of a page, and checks their output. It calls before at the
// start of each session. It calls normalize to replace output that differs between runs.
func checkSessions(t *testing.T, page string, sh *shell, before func(), normalize func(string) string) {
	t.Helper()
	text := readFile(t, page)
	got := sessionBlock.ReplaceAllStringFunc(text, func(block string) string {
		before()
		out := "```console\n"
		for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```")) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			output, _ := sh.try(t.Context(), command) // an error is part of the output
			out += line + normalize(output)
		}
		return out + "```"
	})
	if got == text {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Errorf("%s differs from its commands' output (UPDATE_GOLDEN=1 updates it):\n%s", filepath.Base(page), got)
		return
	}
	writeFile(t, page, got)
}

// TestEveryPageIsRun checks that a test runs exactly the pages that contain a console session.
func TestEveryPageIsRun(t *testing.T) {
	t.Parallel()
	run := []string{"docs/gateway.md", "docs/tasks/keystone.md"} // TestGatewayPage and TestKeystonePage run these
	for _, pages := range sessionPages() {
		run = append(run, pages...)
	}
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/tasks/*.md", "docs/concepts/*.md", "docs/design/*.md",
	} {
		pages, err := filepath.Glob(filepath.Join("../../../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text := readFile(t, page)
			name := filepath.ToSlash(strings.TrimPrefix(page, filepath.FromSlash("../../../../")))
			if has := sessionBlock.MatchString(text); has != slices.Contains(run, name) {
				t.Errorf("%s has a session: %t, is run: %t", name, has, !has)
			}
		}
	}
}

var (
	sessionBlock = regexp.MustCompile("(?s)```console\n.*?```")
	address      = regexp.MustCompile(`https://127\.0\.0\.1:[0-9]+`)
	timestamp    = regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z`)
)

// normalize replaces addresses and times, which differ between runs.
func normalize(text string) string {
	text = address.ReplaceAllString(text, "https://127.0.0.1:6443")
	return timestamp.ReplaceAllStringFunc(text, func(at string) string {
		if at == "2030-01-01T00:00:00Z" { // a fixed time in an example
			return at
		}
		return "2026-11-22T12:00:00Z"
	})
}
