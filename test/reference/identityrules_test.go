// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/reference"
)

// TestIdentityRules checks that each rule lists existing code, or a reason, for each deployment
// mode. Each rule must list existing scenarios or tests. The test also compares
// docs/reference/identity-rules.md with the rules.
func TestIdentityRules(t *testing.T) {
	rules, limits := reference.IdentityRules(), reference.BindingLimits()
	tests := declaredTests(t)
	for _, r := range append(rules, limits...) {
		for name, cell := range map[string]reference.Enforcement{
			"compiled in": r.CompiledIn,
			"webhook":     r.Webhook,
			"gateway":     r.Gateway,
			"library":     r.Library,
		} {
			t.Run(name, func(t *testing.T) {
				if cell.Note == "" {
					t.Errorf("%s %s: the cell is empty", r.Rule, name)
				}
				for _, code := range cell.Code {
					checkCode(t, code)
				}
			})
		}
		if len(r.Shown) == 0 {
			t.Errorf("%s no scenario or test is listed", r.Rule)
		}
		for _, shown := range r.Shown {
			_, err := os.Stat(filepath.Join(root, "testdata/scenarios", shown))
			if err != nil && !tests[shown] {
				t.Errorf("%s there is neither a scenario file nor a test %s", r.Rule, shown)
			}
		}
	}
	var page strings.Builder
	page.WriteString(generated + `
# Rules for identities

This page shows where each [deployment mode](../deployment-modes.md) enforces the rules for identities
([identity.md](../identity.md)) and the limits of bindings ([authorization.md](../authorization.md)). A cell that
begins with "no" has the reason.

## Identities

`)
	writeRules(&page, rules)
	page.WriteString("\n## Limits of bindings\n\n")
	writeRules(&page, limits)
	compare(t, "identity-rules.md", page.String())
}

func writeRules(page *strings.Builder, rules []reference.IdentityRule) {
	page.WriteString("| rule | compiled in | webhook service | gateway | library |\n|---|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(page, "| %s |", r.Rule)
		for _, cell := range []reference.Enforcement{r.CompiledIn, r.Webhook, r.Gateway, r.Library} {
			answer := "yes"
			if len(cell.Code) == 0 {
				answer = "no"
			}
			fmt.Fprintf(page, " %s: %s |", answer, cell.Note)
		}
		page.WriteString("\n")
	}
}

// checkCode checks that the function in "file:function" exists.
func checkCode(t *testing.T, code string) {
	t.Helper()
	file, name, _ := strings.Cut(code, ":")
	text, err := os.ReadFile(filepath.Join(root, file)) // #nosec G304 -- of this repository
	if err != nil {
		t.Error(err)
		return
	}
	if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `\(`).Match(text) {
		t.Errorf("%s has no function %s", file, name)
	}
}

// declaredTests returns the names of the tests that a rule may list.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	all := map[string]bool{}
	for _, pattern := range []string{"tenant/*_test.go", "authn/*_test.go", "authz/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file) // #nosec G304 -- of this repository
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range declaration.FindAllSubmatch(text, -1) {
				all[string(match[1])] = true
			}
		}
	}
	return all
}
