// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTests(t *testing.T) {
	got, unfinished, err := readTests(strings.NewReader(`=== RUN   TestA
    --- PASS: TestA/one (0.00s)
        --- FAIL: TestA/one/deep (0.00s)
--- FAIL: TestA (1.00s)
--- SKIP: TestB (0.00s)
--- PASS: TestC (0.00s)
=== RUN   TestD
=== RUN   TestD/one
    --- PASS: TestD/one (0.00s)
panic: test timed out after 1m
`))
	want := map[string]outcome{
		"TestA":          "failed",
		"TestA/one":      "passed",
		"TestA/one/deep": "failed",
		"TestB":          "skipped",
		"TestC":          "passed",
		"TestD/one":      "passed",
	}
	if diff := cmp.Diff(want, got); diff != "" || unfinished != "TestD" || err != nil {
		t.Error(diff, unfinished, err)
	}
	if n := count(got, "passed"); n != 1 {
		t.Errorf("%d tests passed; want 1 without its subtests", n)
	}
}

func TestReadSpecs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	report := `[{"SpecReports":[
{"ContainerHierarchyTexts":["client","Get"],"LeafNodeType":"It","LeafNodeText":"gets a/b","State":"passed"},
{"ContainerHierarchyTexts":["client"],"LeafNodeType":"It","LeafNodeText":"waits","State":"pending"},
{"LeafNodeType":"BeforeSuite","LeafNodeText":"","State":"passed"},
{"LeafNodeType":"AfterSuite","LeafNodeText":"","State":"failed"}]}]`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readSpecs(path)
	if diff := cmp.Diff(map[string]outcome{"client: Get: gets a/b": "passed", "client: waits": "pending", "": "failed"},
		got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if n := count(got, "passed"); n != 1 {
		t.Errorf("%d passed", n)
	}
	if got, err := readSpecs(path + "x"); len(got) != 0 || err != nil {
		t.Error("missing report:", got, err)
	}
}

// TestClassify checks that the outcomes are as designed only if every difference is on the list and
// every entry of the list applies.
func TestClassify(t *testing.T) {
	s := suite{module: "m", path: "p"}
	listed := difference{"m/p", "TestByDesign", "passed", "failed", "because"}
	for name, c := range map[string]struct {
		vanilla, tenancy map[string]outcome
		list             []difference
		want             bool
	}{
		"same outcomes": {
			map[string]outcome{"A": "passed", "B": "failed"}, map[string]outcome{"A": "passed", "B": "failed"}, nil, true,
		},
		"test fails":     {map[string]outcome{"A": "passed"}, map[string]outcome{"A": "failed"}, nil, false},
		"test succeeds":  {map[string]outcome{"A": "failed"}, map[string]outcome{"A": "passed"}, nil, false},
		"test is absent": {map[string]outcome{"A": "passed"}, nil, nil, false},
		"test is new":    {nil, map[string]outcome{"A": "passed"}, nil, false},
		"listed difference": {
			map[string]outcome{"TestByDesign": "passed"},
			map[string]outcome{"TestByDesign": "failed"},
			[]difference{listed},
			true,
		},
		"listed test is skipped": {
			map[string]outcome{"TestByDesign": "passed"},
			map[string]outcome{"TestByDesign": "skipped"},
			[]difference{listed},
			false,
		},
		"listed test has the same outcomes": {
			map[string]outcome{"TestByDesign": "passed"},
			map[string]outcome{"TestByDesign": "passed"},
			[]difference{listed},
			false,
		},
		"listed test does not exist": {nil, nil, []difference{listed}, false},
		"failure of listed test hides its subtest": {
			map[string]outcome{"TestByDesign": "passed", "TestByDesign/a": "passed"},
			map[string]outcome{"TestByDesign": "failed"},
			[]difference{listed},
			true,
		},
		"unlisted subtest of listed test fails": {
			map[string]outcome{"TestByDesign": "passed", "TestByDesign/a": "passed"},
			map[string]outcome{"TestByDesign": "failed", "TestByDesign/a": "failed"},
			[]difference{listed},
			false,
		},
		"subtest is absent": {
			map[string]outcome{"A": "passed", "A/a": "passed"}, map[string]outcome{"A": "passed"}, nil, false,
		},
		"listed difference of another package": {
			nil, nil, []difference{{"m/q", "TestByDesign", "passed", "failed", "because"}}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := &comparison{suite: s, vanilla: c.vanilla, tenancy: c.tenancy}
			if got.classify(c.list); got.asDesigned() != c.want {
				t.Errorf("%+v, %+v", got.unlisted, got.obsolete)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	if _, err := readDifferences("differences.yaml"); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"no reason":     `[{package: p, test: t, vanilla: passed, tenancy: failed}]`,
		"no difference": `[{package: p, test: t, vanilla: passed, tenancy: passed, reason: r}]`,
		"unknown field": `[{package: p, test: t, vanilla: passed, tenancy: failed, reason: r, because: x}]`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "list.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := readDifferences(path); err == nil {
				t.Errorf("a list with %s is accepted", name)
			}
		})
	}
	if _, err := choose("pkg/client,pkg/nothing"); err == nil {
		t.Error("an unknown package is accepted")
	}
	if all, err := choose(""); err != nil || len(all) != 31 {
		t.Error(len(all), err)
	}
}
