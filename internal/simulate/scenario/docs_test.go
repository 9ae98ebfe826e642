// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// TestExamplesOfTheDocs checks that the objects in the documentation's examples are valid, and
// that every scenario passes.
func TestExamplesOfTheDocs(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	for _, folder := range []string{"tasks", "concepts", "design"} {
		more, err := filepath.Glob("../../../docs/" + folder + "/*.md")
		if err != nil || len(more) < 5 {
			t.Fatal(folder, more, err)
		}
		pages = append(pages, more...)
	}
	configurations, revocations, grants, cases := 0, 0, 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks(string(text)) {
			switch {
			case strings.Contains(block, "kind: TenancyConfiguration"):
				configurations++
				if _, err := configv1alpha1.Decode([]byte(block)); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			case strings.Contains(block, "kind: Revocation"):
				revocations++
				if _, err := configv1alpha1.DecodeRevocation([]byte(block)); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			case strings.Contains(block, "kind: AccessGrant"):
				grants++
				u := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(block), &u.Object); err != nil {
					t.Errorf("%s: %v", page, err)
				} else if _, err := accessgrant.Parse(u); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			case strings.Contains(block, "kind: Scenario"):
				cases += runBlock(t, page, block)
			}
		}
	}
	if configurations < 2 || revocations < 1 || grants < 1 || cases < 10 {
		t.Errorf("the documentation holds %d configurations, %d revocations, %d grants and %d cases",
			configurations, revocations, grants, cases)
	}
}

// blocks returns the YAML blocks of a page.
func blocks(page string) []string {
	var all []string
	for i, part := range strings.Split(page, "```") {
		if block, ok := strings.CutPrefix(part, "yaml\n"); ok && i%2 == 1 {
			all = append(all, block)
		}
	}
	return all
}

func runBlock(t *testing.T, page, block string) int {
	t.Helper()
	all, err := scenario.DecodeScenarios([]byte(block))
	if err != nil {
		t.Errorf("%s: %v", page, err)
	}
	n := 0
	for _, s := range all {
		err := scenario.Run(t.Context(), scenario.Library{}, page, s, func(r scenario.Result) {
			n++
			if r.Status != scenario.Passed {
				t.Errorf("%s: %s: %s: expected %s, got %s", page, r.Case, r.Status, r.Expected, r.Got)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	return n
}

// TestCorpus checks that the project's scenarios pass in process.
func TestCorpus(t *testing.T) {
	files, err := scenario.Files([]string{"../../../testdata/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, file := range files {
		all, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			err := scenario.Run(t.Context(), scenario.Library{}, filepath.Base(file), s, func(r scenario.Result) {
				switch r.Status {
				case scenario.Failed:
					t.Errorf("%s: %s: %s: expected %s, got %s", r.File, r.Scenario, r.Case, r.Expected, r.Got)
				case scenario.Passed:
					passed++
				}
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	if passed < 1000 {
		t.Errorf("only %d cases passed", passed)
	}
}
