// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package style_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	// pinned matches an action that is pinned to a commit, with its version in a comment.
	pinned      = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	imageDigest = regexp.MustCompile(`^[\w./-]+(:[\w.-]+)?@sha256:[0-9a-f]{64}$`)
	uses        = regexp.MustCompile(`(?m)^ *(?:- )?uses: *(.+)$`)
	makeRun     = regexp.MustCompile(`^make ([a-z0-9-]+)$`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// mayWrite contains the write permissions that each job may have, keyed by workflow and job.
var mayWrite = map[string][]string{
	"release.yaml/build":   {"id-token"},
	"release.yaml/publish": {"contents", "packages"},
}

type workflow struct {
	On          yaml.Node
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Container   struct{ Image string }
		Steps       []step
	}
}

type step struct {
	Uses, Run string
	With      map[string]string
}

// TestWorkflows checks the rules for GitHub workflows. Workflows run only targets of the
// Makefile, and use only code that is pinned to a commit. They have only the permissions that
// they need.
func TestWorkflows(t *testing.T) {
	targets := makeTargets(t)
	names, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(names) < 3 {
		t.Fatalf("found %q, %v", names, err)
	}
	for _, path := range names {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range workflowProblems(t, name, string(text), targets) {
				t.Error(problem)
			}
		})
	}
}

// TestWorkflowRules checks that workflowProblems reports each rule that a workflow breaks.
func TestWorkflowRules(t *testing.T) {
	const good = `on: { push: { branches: [ main ] }, pull_request: {} }
permissions: {}
jobs:
  ci:
    runs-on: ubuntu-24.04
    permissions: { contents: read }
    container:
      image: golang:1.26-bookworm@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    steps:
    - uses: actions/checkout@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa # v1.2.3
      with: { persist-credentials: false }
    - run: make ci
`
	cases := []struct{ name, old, changed, want string }{
		{"a valid workflow", "", "", ""},
		{"tag", "@" + strings.Repeat("a", 40), "@v1", "is not pinned"},
		{"no version", " # v1.2.3", "", "is not pinned"},
		{"image", "@sha256:" + strings.Repeat("a", 64), "", "is not pinned"},
		{"permissions of the workflow", "permissions: {}", "permissions: { contents: read }", "permissions: {}"},
		{"no permissions of the job", "    permissions: { contents: read }\n", "", "sets no permissions"},
		{"write", "contents: read", "packages: write", "may not write packages"},
		{"pull_request_target", "pull_request:", "pull_request_target:", "pull_request_target"},
		{"workflow_run", "pull_request:", "workflow_run:", "workflow_run"},
		{"secret", "make ci", "make ci\n      env: { A: '${{ secrets.A }}' }", "secret"},
		{"credentials", "persist-credentials: false", "fetch-depth: 0", "persist-credentials"},
		{"expression", "make ci", "make ${{ github.head_ref }}", "is not a make target"},
		{"shell", "make ci", "go build ./...", "is not a make target"},
		{"two commands", "make ci", "make ci && true", "is not a make target"},
		{"unknown target", "make ci", "make magic", "no target magic"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.changed, 1)
			if c.old != "" && text == good {
				t.Fatalf("the workflow has no %q", c.old)
			}
			got := strings.Join(workflowProblems(t, "ci.yaml", text, []string{"ci"}), "; ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
}

func workflowProblems(t *testing.T, name, text string, targets []string) []string {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	var problems []string
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, use := range uses.FindAllStringSubmatch(text, -1) {
		if !pinned.MatchString(use[1]) {
			report("%s is not pinned to a commit with its version as a comment", use[1])
		}
	}
	// With these triggers, a workflow for content from a pull request has the permissions of the
	// repository.
	for _, trigger := range []string{"pull_request_target", "workflow_run"} {
		if strings.Contains(text, trigger) {
			report("%s is not allowed", trigger)
		}
	}
	if strings.Contains(text, "pull_request") && strings.Contains(text, "secrets.") {
		report("a pull request must not reach a secret")
	}
	if w.Permissions == nil || len(w.Permissions) > 0 {
		report("the workflow must have permissions: {}")
	}
	for id, job := range w.Jobs {
		if image := job.Container.Image; image != "" && !imageDigest.MatchString(image) {
			report("%s: the image %s is not pinned to a digest", id, image)
		}
		if job.Permissions == nil {
			report("%s sets no permissions", id)
		}
		for permission, level := range job.Permissions {
			if level != "read" && !slices.Contains(mayWrite[name+"/"+id], permission) {
				report("%s may not write %s", id, permission)
			}
		}
		for _, s := range job.Steps {
			problems = append(problems, stepProblems(id, s, targets)...)
		}
	}
	return problems
}

func stepProblems(job string, s step, targets []string) []string {
	switch command := makeRun.FindStringSubmatch(s.Run); {
	case strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != "false":
		return []string{job + ": checkout must set persist-credentials: false"}
	case s.Run == "":
		return nil
	case command == nil:
		return []string{fmt.Sprintf("%s: %q is not a make target", job, s.Run)}
	case !slices.Contains(targets, command[1]):
		return []string{fmt.Sprintf("%s: the Makefile has no target %s", job, command[1])}
	}
	return nil
}

func makeTargets(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, match := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	return targets
}

// TestSigningIdentity checks that SECURITY.md names the workflow that signs the releases.
func TestSigningIdentity(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	identity := regexp.MustCompile(`/kubetenant/(\.github/workflows/\S+)@refs/tags/`).FindSubmatch(text)
	if identity == nil {
		t.Fatal("SECURITY.md names no workflow")
	}
	workflow, err := os.ReadFile("../../" + string(identity[1]))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(workflow), "id-token: write") {
		t.Errorf("%s does not sign", identity[1])
	}
}

// TestDependabot checks that Dependabot updates each Go module, each package.json and the
// workflows.
func TestDependabot(t *testing.T) {
	text, err := os.ReadFile("../../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, update := range config.Updates {
		got[update.Ecosystem] = append(got[update.Ecosystem], update.Directories...)
	}
	want := map[string][]string{"github-actions": {"/"}}
	root := git(t, ".", "rev-parse", "--show-toplevel")[0]
	for ecosystem, file := range map[string]string{"gomod": "go.mod", "npm": "package.json"} {
		t.Run(ecosystem, func(t *testing.T) {
			for _, name := range git(t, root, "ls-files", "--", file, "*/"+file) {
				want[ecosystem] = append(want[ecosystem], filepath.Join("/", filepath.Dir(name)))
			}
		})
	}
	for ecosystem, directories := range want {
		t.Run(ecosystem, func(t *testing.T) {
			slices.Sort(directories)
			slices.Sort(got[ecosystem])
			if !slices.Equal(got[ecosystem], directories) {
				t.Errorf("Dependabot updates %q; want %q", got[ecosystem], directories)
			}
		})
	}
}
