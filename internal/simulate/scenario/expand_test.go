// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// expanded returns the cases of a scenario, keyed by name.
func expanded(t *testing.T, body string) map[string]scenario.Case {
	t.Helper()
	all, err := scenario.DecodeScenarios([]byte(scenarioHeader + body))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]scenario.Case{}
	for _, c := range all[0].Cases {
		cases[c.Name] = c
	}
	return cases
}

func TestExpandMatrix(t *testing.T) {
	cases := expanded(t, `
users:
  alice: {bearerToken: a}
  bob: {bearerToken: b}
cases:
- name: <user> may not <verb> <resource>
  user: <user>
  request: {verb: <verb>, resource: <resource>, name: <name>}
  expect: {decision: deny}
  matrix:
    user: [alice, bob]
    verb: [get, list]
  columns: [resource, name]
  rows:
  - [pods, p]
  - [nodes, null]
`)
	if len(cases) != 8 {
		t.Fatalf("got %d cases; want 8", len(cases))
	}
	for name, want := range map[string]scenario.Request{
		"alice may not get pods": {Verb: "get", Resource: "pods", Name: "p"},
		"bob may not list nodes": {Verb: "list", Resource: "nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, ok := cases[name]
			if !ok || *c.Request != want {
				t.Errorf("got %+v, %v; want %+v", c.Request, ok, want)
			}
			if token, want := c.Credential.BearerToken, name[:1]; token != want {
				t.Errorf("got the credential %q; want %q", token, want)
			}
		})
	}
}

func TestExpandTemplate(t *testing.T) {
	cases := expanded(t, `
users: {alice: {bearerToken: a}}
templates:
  Pod: {kind: Pod, metadata: {name: p, labels: {app: x}}, spec: {hostname: <host>}}
values: {creator: '{"user":"alice"}', groups: [dev, ops]}
cases:
- name: <rule>
  user: alice
  admit:
    operation: UPDATE
    template: Pod
    oldObject: {}
    object: {metadata: {labels: <labels>, annotations: {creator: <mark>}}}
  expect: {admitted: true, object: {spec: <spec>, groups: <groups>, said: "by <creator> of <host>"}}
  columns: [rule, host, labels, mark, spec]
  rows:
  - [the label is removed, h1, {app: null},  <creator>, {a: [1, true]}]
  - [the label is kept,    h2, null,         null,      null]
`)
	for name, want := range map[string][2]string{
		"the label is removed": {
			`{"kind":"Pod","metadata":{"annotations":{"creator":"{\"user\":\"alice\"}"},"labels":{},"name":"p"},` +
				`"spec":{"hostname":"h1"}}`,
			`{"groups":["dev","ops"],"said":"by {\"user\":\"alice\"} of h1","spec":{"a":[1,true]}}`,
		},
		"the label is kept": {
			`{"kind":"Pod","metadata":{"annotations":{},"labels":{"app":"x"},"name":"p"},"spec":{"hostname":"h2"}}`,
			`{"groups":["dev","ops"],"said":"by {\"user\":\"alice\"} of h2"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cases[name]
			if c.Admit == nil || c.Expect.Object == nil {
				t.Fatalf("got %+v", c)
			}
			if got := string(c.Admit.Object.Raw); got != want[0] {
				t.Errorf("object: got %s; want %s", got, want[0])
			}
			if got := string(c.Expect.Object.Raw); got != want[1] {
				t.Errorf("expected object: got %s; want %s", got, want[1])
			}
		})
	}
}

func TestExpandRefusesMistakes(t *testing.T) {
	const rest = "credential: {anonymous: true}, expect: {unauthenticated: true}"
	for name, c := range map[string]struct{ body, want string }{
		"users are no map":           {"users: [a]\n", "users: Invalid value"},
		"cases are no maps":          {"cases: [a]\n", "cases[0]: Invalid value"},
		"a user is not defined":      {"cases: [{name: c, user: eve, expect: {}}]\n", "cases[0].user: Not found"},
		"a user is not used":         {"users: {eve: {anonymous: true}}\ncases: [{name: c, " + rest + "}]\n", "users[eve]"},
		"a value is not used":        {"values: {x: y}\ncases: [{name: c, " + rest + "}]\n", "values[x]"},
		"a template is not used":     {"templates: {x: {}}\ncases: [{name: c, " + rest + "}]\n", "templates[x]"},
		"a template is not defined":  {"cases: [{name: c, admit: {template: x}}]\n", "cases[0].admit.template: Not found"},
		"a placeholder has no value": {"cases: [{name: <x>, " + rest + "}]\n", "cases[0].name: Not found: \"<x>\""},
		"a column is not used": {
			"cases: [{name: c, columns: [x], rows: [[1]], " + rest + "}]\n",
			"does not use this placeholder",
		},
		"a matrix is no map":    {"cases: [{name: c, matrix: [x], " + rest + "}]\n", "cases[0].matrix"},
		"a matrix has no value": {"cases: [{name: <x>, matrix: {x: []}, " + rest + "}]\n", "cases[0].matrix[x]"},
		"columns without rows":  {"cases: [{name: <x>, columns: [x], " + rest + "}]\n", "cases[0].rows: Required"},
		"rows without columns":  {"cases: [{name: c, rows: [[1]], " + rest + "}]\n", "cases[0].columns: Required"},
		"a row is too short": {
			"cases: [{name: <x> <z>, columns: [x, z], rows: [[1]], " + rest + "}]\n",
			"each of the 2 columns",
		},
		"a column twice": {
			"cases: [{name: <x>, columns: [x, x], rows: [[1, 2]], " + rest + "}]\n",
			"cases[0].columns[1]: Duplicate",
		},
		"a column in the matrix too": {
			"cases: [{name: <x>, columns: [x], rows: [[1]], matrix: {x: [1]}, " + rest + "}]\n",
			"cases[0].matrix[x]: Duplicate",
		},
		"two cases with one name": {
			"cases: [{name: c, " + rest + "}, {name: <x>, columns: [x], rows: [[c]], " + rest + "}]\n",
			"cases[c].name: Duplicate",
		},
		"user and credential": {
			"users: {eve: {anonymous: true}}\ncases: [{name: c, user: eve, " + rest + "}]\n",
			"must not be set together with user",
		},
		"too many combinations in one case": {
			"cases: [{name: <a><b><c><d><e>, matrix: {a: &l [0,1,2,3,4,5,6,7,8,9], b: *l, c: *l, d: *l, e: *l}, " +
				rest + "}]\n",
			"cases[0].matrix[e]: Too many",
		},
		"too many cases in all": {
			"cases: [{name: x<a><b><c><d>, matrix: &m {a: &l [0,1,2,3,4,5,6,7,8,9], b: *l, c: *l, d: *l}, " + rest + "}, " +
				"{name: z<a><b><c><d>, matrix: *m, " + rest + "}]\n",
			"cases: Too many",
		},
		"a misspelled field of a case": {"cases: [{name: c, row: [[1]], " + rest + "}]\n", "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scenario.DecodeScenarios([]byte(scenarioHeader + c.body))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
}

// TestCorpusKeepsItsCases checks the minimum number of cases. Increase it when you add cases.
func TestCorpusKeepsItsCases(t *testing.T) {
	const floor = 7292
	files, err := filepath.Glob("../../../testdata/scenarios/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		all, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			total += max(len(s.Cases), 1) // an invalid configuration is one case
		}
	}
	if total < floor {
		t.Errorf("got %d cases; want at least %d", total, floor)
	}
}

// TestCorpusIsReadable checks that the lines of the corpus are short, so that diffs are readable.
func TestCorpusIsReadable(t *testing.T) {
	const columns = 120
	files, err := filepath.Glob("../../../testdata/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; len(strings.TrimRight(line, "\n")) > columns {
				t.Errorf("%s:%d: the line has more than %d columns", file, n, columns)
			}
		}
	}
}

// TestExpandLeavesFullCasesAlone checks that a case without shorthand is not changed.
func TestExpandLeavesFullCasesAlone(t *testing.T) {
	cases := expanded(t, "cases: [{name: c, credential: {user: {name: x, groups: [\"a > b < c\"]}}, "+
		"request: {verb: get}, expect: {decision: deny}}]\n")
	got, err := json.Marshal(cases["c"].Credential.User)
	if err != nil || cases["c"].Credential.User == nil ||
		!slices.Equal(cases["c"].Credential.User.Groups, []string{"a > b < c"}) {
		t.Errorf("got %s, %v", got, err)
	}
}
