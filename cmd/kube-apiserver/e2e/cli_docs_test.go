package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// TestCommandLinePages: the sessions of README.md and docs/kubectl-tenant.md are what a server and the commands
// say. With UPDATE_GOLDEN the pages are written.
func TestCommandLinePages(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../../../docs/kubectl-tenant.md", "../../../README.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			s := start(t, t.TempDir())
			prepare(t, s)
			dir := t.TempDir()
			if err := clientcmd.WriteToFile(*kubeconfigOf(t, s), filepath.Join(dir, "config")); err != nil {
				t.Fatal(err)
			}
			config, err := os.ReadFile(filepath.Join(s.Dir, "tenancy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			// Its sources name files of the server's, which these commands do not read.
			if err := os.WriteFile(filepath.Join(dir, "tenancy.yaml"), config, 0o600); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "PATH="+filepath.Dir(binary(t, "kubectl-tenant"))+string(os.PathListSeparator)+os.Getenv("PATH"),
				"HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "config"), "KUBECTL_KUBERC=false")
			got := recorded.ReplaceAllStringFunc(string(text), func(block string) string {
				out := "```console\n"
				for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```")) {
					command, is := strings.CutPrefix(line, "$ ")
					if !is {
						continue
					}
					cmd := exec.CommandContext(t.Context(), "sh", "-c", command) // #nosec G204 -- of our own pages
					cmd.Dir, cmd.Env = dir, env
					said, _ := cmd.CombinedOutput() // what fails says so
					out += line + steady(string(said))
				}
				return out + "```"
			})
			if got == string(text) {
				return
			}
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(page, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("the page says something else than the commands (UPDATE_GOLDEN=1 writes it):\n%s", got)
		})
	}
}

var (
	recorded = regexp.MustCompile("(?s)```console\n.*?```")
	address  = regexp.MustCompile(`https://127\.0\.0\.1:[0-9]+`)
	when     = regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z`)
)

// steady replaces what is another in each run.
func steady(text string) string {
	text = address.ReplaceAllString(text, "https://127.0.0.1:6443")
	return when.ReplaceAllString(text, "2026-11-22T12:00:00Z")
}
