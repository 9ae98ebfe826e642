package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// TestWebhookExceptions: what the shape cannot know stands in the page under the heading by which
// its cases are left out, and each heading leaves some out.
func TestWebhookExceptions(t *testing.T) {
	t.Parallel()
	exceptionsAreTold(t, "webhook.md", &behindWebhook{}, exceptCertificates, exceptPasswords, exceptServiceAccounts,
		exceptFrontProxies, exceptImpersonation, exceptRules, exceptReviews,
		exceptPrivileged, exceptDerived)
}

// TestGatewayExceptions is the same of the gateway.
func TestGatewayExceptions(t *testing.T) {
	t.Parallel()
	exceptionsAreTold(t, "gateway.md", &behindGateway{}, exceptGatewayAdmission, exceptGatewayConfigured,
		exceptGatewayAccounts, exceptGatewayProxies, exceptGatewayNobody, exceptGatewayLists,
		exceptGatewayCluster, exceptGatewayRules)
}

// exceptionsAreTold holds what a shape leaves out, but for what any server would,
// to the headings of a page.
func exceptionsAreTold(t *testing.T, name string, shape scenario.Shape, headings ...string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	files, err := scenario.Files([]string{"../../../../testdata/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	skipped, all := map[string]int{}, 0
	for _, file := range files {
		scenarios, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scenarios {
			if s.Invalid != "" {
				skipped[shape.Skip(s, nil)]++
			}
			for i := range s.Cases {
				all++
				if c := &s.Cases[i]; (&compiledIn{}).Skip(s, nil) == "" && (&compiledIn{}).Skip(s, c) == "" {
					skipped[shape.Skip(s, c)]++
				}
			}
		}
	}
	t.Logf("of %d cases: %v", all, skipped)
	delete(skipped, "")
	for _, heading := range headings {
		if skipped[heading] == 0 || !strings.Contains(string(page), "\n### "+heading+"\n") {
			t.Errorf("%q leaves out %d cases, or is not in docs/%s", heading, skipped[heading], name)
		}
		delete(skipped, heading)
	}
	if len(skipped) > 0 {
		t.Errorf("cases are left out for %v, which no heading tells", skipped)
	}
}

// TestWebhookInstallPage: the commands of docs/install.md that need no
// cluster do what the page says.
func TestWebhookInstallPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Dir(binary(t, "kubetenant-webhook")), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```")
	for name, data := range map[string]string{
		"tokens.csv":    "tok,alice,u1,dev,,acme\n",
		"client-ca.crt": "-----BEGIN CERTIFICATE-----\n",
		"tenancy.yaml": strings.TrimPrefix(parts[slices.IndexFunc(parts, func(p string) bool {
			return strings.HasPrefix(p, "yaml\n")
		})], "yaml\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := parts[slices.IndexFunc(parts, func(p string) bool {
		return strings.Contains(p, "bin/kubetenant-webhook generate")
	})]
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+binaries(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "installed: valid") {
		t.Fatalf("%v\n%s", err, out)
	}
	// Every file that the page goes on with is there.
	for _, word := range strings.Fields(string(text)) {
		if word = strings.Trim(word, "`.,()"); strings.HasPrefix(word, "installed/") && word != "installed/control-plane" {
			if _, err := os.Stat(filepath.Join(dir, word)); err != nil {
				t.Error(err)
			}
		}
	}
}
