// Package e2e runs the project against a real kube-apiserver.
package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubetenant/kubetenant/cmd/internal/scenario"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// binDir is the variable through which the built commands are found.
const binDir = "KUBETENANT_BIN"

// binary returns the path of a built command.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(binDir)
	if dir == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set: run make test", binDir)
		}
		t.Skipf("%s is not set: run make test, which builds the commands", binDir)
	}
	return filepath.Join(dir, name)
}

func TestScenarios(t *testing.T) { testScenarios(t, compiledIn{binary(t, "kube-apiserver")}) }

// TestWebhookScenarios: the same answers from an unmodified kube-apiserver with the webhook service.
func TestWebhookScenarios(t *testing.T) {
	testScenarios(t, behindWebhook{compiledIn{binary(t, "kube-apiserver")}})
}

func testScenarios(t *testing.T, shape scenario.Shape) {
	files, err := scenario.Files([]string{"../../../testdata/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all, err := v1alpha1.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			t.Run(filepath.Base(file)+"/"+s.Metadata.Name, func(t *testing.T) {
				t.Parallel()
				err := scenario.Run(t.Context(), shape, file, s, func(r scenario.Result) {
					if r.Status == scenario.Failed {
						t.Errorf("%s: expected %s, got %s", r.Case, r.Expected, r.Got)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
