// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the project with real kube-apiservers.
package e2e

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// sharedMode is a deployment mode whose scenarios share servers.
type sharedMode interface {
	scenario.Mode
	// key returns the same value for scenarios that can run on the same server.
	key(*scenario.Scenario) (string, error)
	close() error
}

func TestScenarios(t *testing.T) {
	bin := binaries(t)
	testScenarios(
		t,
		func(keys *scenario.Keys, dir string) sharedMode { return &compiledIn{bin: bin, keys: keys, dir: dir} },
	)
}

// TestWebhookScenarios checks that scenarios have the expected results on an unmodified
// kube-apiserver with the webhook service.
func TestWebhookScenarios(t *testing.T) {
	bin := binaries(t)
	testScenarios(t, func(keys *scenario.Keys, dir string) sharedMode {
		return &webhookMode{compiledIn{bin: bin, keys: keys, dir: dir}}
	})
}

// scenarioFile is a scenario and the path of its file.
type scenarioFile struct {
	file string
	*scenario.Scenario
}

// corpus returns the scenarios that run on servers. It omits scenarios with an invalid
// configuration, which the library's tests cover, except the first scenario of each file.
func corpus(t *testing.T) []scenarioFile {
	t.Helper()
	files, err := scenario.Files([]string{"../../../../testdata/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	var all []scenarioFile
	for _, file := range files {
		scenarios, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range scenarios {
			if s.Invalid == "" || i == 0 {
				all = append(all, scenarioFile{file, s})
			}
		}
	}
	return all
}

// maxGroupCases is the number of cases after which a group is full. The next scenarios run on
// another server, in parallel.
const maxGroupCases = 900

// testScenarios runs the corpus in groups. The scenarios of a group share a server, except those of
// ownServer.
func testScenarios(t *testing.T, open func(keys *scenario.Keys, dir string) sharedMode) {
	keys, err := scenario.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	keyed := open(keys, "")
	type group struct {
		name  string
		cases int
		all   []scenarioFile
	}
	var groups []*group
	last, numbers := map[string]*group{}, map[string]int{}
	for _, s := range corpus(t) {
		if keyed.Skip(s.Scenario, nil) != "" {
			continue
		}
		name, key := "own", "own"
		if shared(s.Scenario) {
			name = string(s.Delegate)
			if key, err = keyed.key(s.Scenario); err != nil {
				t.Fatalf("%s: %s: %v", s.file, s.Metadata.Name, err)
			}
		}
		g := last[key]
		if g == nil || g.cases > maxGroupCases {
			numbers[name]++
			g = &group{name: fmt.Sprintf("%s-%d", name, numbers[name])}
			groups, last[key] = append(groups, g), g
		}
		g.all, g.cases = append(g.all, s), g.cases+len(s.Cases)
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			mode := open(keys, t.TempDir())
			t.Cleanup(func() {
				if err := mode.close(); err != nil {
					t.Error(err)
				}
			})
			for _, s := range g.all {
				t.Run(filepath.Base(s.file)+"/"+s.Metadata.Name, func(t *testing.T) { testScenario(t, mode, s) })
			}
		})
	}
}

func testScenario(t *testing.T, mode scenario.Mode, s scenarioFile) {
	err := scenario.Run(t.Context(), mode, s.file, s.Scenario, func(r scenario.Result) {
		if r.Status == scenario.Failed {
			t.Errorf("%s: expected %s, got %s", r.Case, r.Expected, r.Got)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryKindOfSourceAtStart checks that the scenarios of ownServer, which do not reload their
// configuration, contain every kind of source.
func TestEveryKindOfSourceAtStart(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for _, s := range corpus(t) {
		if !slices.Contains(ownServer, s.Metadata.Name) {
			continue
		}
		for _, src := range s.Config.Authentication.Sources {
			for _, kind := range kindsOf(&src) {
				kinds[kind] = true
			}
		}
	}
	for field := range reflect.TypeFor[configv1alpha1.Source]().Fields() {
		if field.Type.Kind() == reflect.Pointer && !kinds[field.Name] {
			t.Errorf("no scenario of ownServer has a source of kind %s", field.Name)
		}
	}
}

// kindsOf returns the kinds that are set in a source. A valid source has exactly one.
func kindsOf(src *configv1alpha1.Source) []string {
	var kinds []string
	for field, value := range reflect.ValueOf(src).Elem().Fields() {
		if field.Type.Kind() == reflect.Pointer && !value.IsNil() {
			kinds = append(kinds, field.Name)
		}
	}
	return kinds
}
