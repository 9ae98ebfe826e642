// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

const scenarioHeader = "apiVersion: kubetenant.dev/v1alpha1\nkind: Scenario\nmetadata: { name: s }\n"

func TestDecodeScenarios(t *testing.T) {
	good := scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, expect: { unauthenticated: true } } ]\n"
	all, err := scenario.DecodeScenarios([]byte("---\n" + good + "---\n" + good))
	if err != nil || len(all) != 2 || all[0].Delegate != scenario.DelegateRBAC {
		t.Errorf("DecodeScenarios() = %v, %v; want two behind RBAC", all, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"---\n", "no scenario"},
		"a misspelt field": {good + "---\n" + scenarioHeader + "case: []\n", "document 2: unknown field"},
		"neither cases":    {scenarioHeader, "exactly one of cases and invalid"},
		"a name twice": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, expect: { unauthenticated: true } }, " +
				"{ name: c, credential: { anonymous: true }, expect: { unauthenticated: true } } ]\n",
			"Duplicate",
		},
		"two credentials": {
			scenarioHeader +
				"cases: [ { name: c, credential: { anonymous: true, bearerToken: x }, expect: { unauthenticated: true } } ]\n",
			"exactly one kind",
		},
		"no expectation": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, expect: {} } ]\n",
			"one of user, unauthenticated and refused must be set",
		},
		"decision of nothing": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, expect: { decision: deny } } ]\n",
			"one of user, unauthenticated and refused must be set",
		},
		"a request undecided": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, request: { verb: get, path: / }, expect: " +
				"{ unauthenticated: true } } ]\n",
			"decision or notAllowed",
		},
		"an unknown decision": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, request: { verb: get, path: / }, expect: " +
				"{ decision: maybe } } ]\n",
			"Unsupported value",
		},
		"an unknown delegate": {
			scenarioHeader +
				"delegate: Root\ncases: [ { name: c, credential: { anonymous: true }, expect: { unauthenticated: true } } ]\n",
			"delegate",
		},
		"an update of nothing": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, admit: { operation: UPDATE }, expect: " +
				"{ admitted: true } } ]\n",
			"object and oldObject",
		},
		"an unknown operation": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, admit: { operation: PATCH }, expect: " +
				"{ admitted: true } } ]\n",
			"Unsupported value",
		},
		"an unknown patch": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, admit: { operation: CREATE, object: {}, " +
				"via: post }, expect: { admitted: true } } ]\n",
			"via",
		},
		"admitted and denied": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, admit: { operation: CREATE, object: {} }, " +
				"expect: { admitted: true, denied: x } } ]\n",
			"either denied or admitted",
		},
		"a request and a write": {
			scenarioHeader + "cases: [ { name: c, credential: { anonymous: true }, request: { verb: get }, admit: " +
				"{ operation: CREATE, object: {} }, expect: { admitted: true } } ]\n",
			"must not be set together with request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scenario.DecodeScenarios([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("DecodeScenarios() = %v; want %q", err, c.want)
			}
		})
	}
}

func FuzzDecodeScenarios(f *testing.F) {
	files, err := filepath.Glob("../../../testdata/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 4096)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := scenario.DecodeScenarios(data)
		if (len(all) == 0) == (err == nil) {
			t.Fatalf("DecodeScenarios() = %d, %v; want one of them", len(all), err)
		}
	})
}
