// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// releaseDir is the environment variable that contains the folder of a release's artifacts.
const releaseDir = "KUBETENANT_RELEASE"

// pageVersion matches the release version in the commands of the pages.
var pageVersion = regexp.MustCompile(`v0\.1\.0|\b0\.1\.0\b`)

// pageBlock matches a fenced code block of a page, which may be indented.
var pageBlock = regexp.MustCompile("(?ms)^[ \t]*```([a-z]*)\n(.*?)\n[ \t]*```$")

// notRun returns the prefixes of the pages' commands that are not run, with the reasons.
func notRun() map[string]string {
	return map[string]string{
		"skopeo ":        "copies an image to a registry, and the test has none",
		"ctr ":           "needs containerd. The node of the test unpacks the same archive",
		"kubectl krew ":  "needs krew",
		"helm template ": "writes what generate writes. TestInstallCharts compares both",
		"helm install ":  "is an alternative to generate. TestInstallCharts runs it",
	}
}

// releaseOf returns the folder of the release's artifacts, and its version, which begins with "v".
func releaseOf(t *testing.T) (dir, version string) {
	t.Helper()
	if dir = os.Getenv(releaseDir); dir == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set: run make test-install", releaseDir)
		}
		t.Skipf("%s is not set: run make test-install, which builds a release", releaseDir)
	}
	found, err := filepath.Glob(filepath.Join(dir, "kubetenant-webhook_*_image.tar"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s contains %d images of the webhook service: %v", dir, len(found), err)
	}
	name := filepath.Base(found[0])
	return dir, strings.TrimSuffix(strings.TrimPrefix(name, "kubetenant-webhook_"), "_image.tar")
}

// reader follows documentation pages. It writes the configuration of a page to a folder, and runs
// the page's commands there.
type reader struct {
	dir, release, version string
	env                   []string
	// ran contains the commands that section has run so far.
	ran []string
}

// newReader returns a reader. Its PATH contains only two of the built commands: kubectl and helm.
func newReader(t *testing.T, kubeconfig string) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir()}
	r.release, r.version = releaseOf(t)
	tools := t.TempDir()
	for _, name := range []string{"kubectl", "helm"} {
		if err := os.Symlink(binary(t, name), filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	// The test already runs as root, so sudo only runs its arguments.
	if err := os.WriteFile(filepath.Join(tools, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"),
		0o700); err != nil { // #nosec G306 -- it is run
		t.Fatal(err)
	}
	r.env = []string{
		"PATH=" + tools + ":/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + r.dir, "KUBECONFIG=" + kubeconfig,
		"KUBECTL_KUBERC=false",
	}
	return r
}

// localize replaces the download URL and the version of the release in the text of a page.
func (r *reader) localize(text string) string {
	text = strings.ReplaceAll(text, "https://github.com/kubetenant/kubetenant/releases/download/v0.1.0/",
		"file://"+r.release+"/")
	return pageVersion.ReplaceAllStringFunc(text, func(match string) string {
		if match[0] == 'v' {
			return r.version
		}
		return strings.TrimPrefix(r.version, "v")
	})
}

// section runs the commands of a page's section and its subsections. It returns the output of
// the last command.
func (r *reader) section(t *testing.T, page, heading string) (last string) {
	t.Helper()
	for _, block := range sectionBlocks(t, page, heading) {
		language, text := block[1], block[2]
		if language == "yaml" {
			if strings.Contains(text, "kind: TenancyConfiguration") {
				r.write(t, "tenancy.yaml", text+"\n")
			}
			continue
		}
		for _, command := range commandsOf(text) {
			if reasonNotToRun(command) == "" {
				last = r.run(t, command)
				r.ran = append(r.ran, command)
			}
		}
	}
	return last
}

// sectionBlocks returns the code blocks of a section and its subsections, as matches of pageBlock.
func sectionBlocks(t *testing.T, page, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	level := strings.Repeat("#", strings.IndexByte(heading, ' '))
	_, rest, ok := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/%s has no section %q", page, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n"+level+" ")
	return pageBlock.FindAllStringSubmatch(rest, -1)
}

// commandsOf returns the commands of a code block. A command continues on the next line if its line
// ends with \.
func commandsOf(block string) (commands []string) {
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" {
			commands = append(commands, line)
		}
	}
	return commands
}

func reasonNotToRun(command string) string {
	for prefix, reason := range notRun() {
		if strings.HasPrefix(command, prefix) {
			return reason
		}
	}
	return ""
}

// run runs a command of a page, which must succeed.
func (r *reader) run(t *testing.T, command string) string {
	t.Helper()
	out, err := r.try(t, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Logf("$ %s\n%s", command, out)
	return out
}

func (r *reader) try(t *testing.T, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.localize(command)) // #nosec G204 -- of our page
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *reader) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
