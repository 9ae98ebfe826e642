// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
)

// handwritten is the folder with the last CustomResourceDefinitions that were written by hand.
const handwritten = "testdata/handwritten"

// A change is an accepted difference between a generated definition and the handwritten one.
type change struct {
	where  string // the end of a path; * matches one element
	reason string
}

// changes returns the accepted differences. No difference makes a generated definition accept a
// value of an old field that the handwritten definition rejects.
func changes() []change {
	const condition = "/status/properties/conditions/items/properties"
	const (
		upstream = "metav1.Condition has stricter limits; all conditions of the project comply"
		status   = "the schema of a quantity has a pattern; the server alone writes the status"
		sign     = "the schema of a quantity has a fixed pattern, which allows a minus; a rule refuses it"
	)
	return []change{
		{"/metadata/annotations", "controller-gen records its version"},
		{"/spec/names/shortNames", "short names are newer than the handwritten definitions"},
		{"/spec/properties/takenBack", "the field is newer than the handwritten definitions"},
		{"/spec/properties/fairUse", "the field is newer than the handwritten definitions"},
		{"/spec/properties/roles", "the field is newer than the handwritten definitions"},
		{condition + "/type/pattern", upstream},
		{condition + "/type/maxLength", upstream},
		{condition + "/reason/pattern", upstream},
		{condition + "/reason/minLength", upstream},
		{condition + "/reason/maxLength", upstream},
		{condition + "/message/maxLength", upstream},
		{condition + "/observedGeneration/minimum", upstream},
		{"/status/properties/used/additionalProperties/pattern", status},
		{"/status/properties/*/items/properties/used/additionalProperties/pattern", status},
		{"/spec/properties/hard/additionalProperties/pattern", sign},
		{"/spec/properties/hard/x-kubernetes-validations", sign},
		{"/spec/properties/quota/additionalProperties/pattern", sign},
		{"/spec/properties/quota/x-kubernetes-validations", sign},
	}
}

// TestDefinitionsAreAsStrict checks that the generated definitions differ from the handwritten
// ones only as changes allows. It does not compare descriptions.
func TestDefinitionsAreAsStrict(t *testing.T) {
	files, err := filepath.Glob(handwritten + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := deploy.Definitions()
	newer := []string{"publications.yaml", "tenantusages.yaml"} // not in the handwritten definitions
	if len(files)+len(newer) != len(all) {
		t.Fatalf("%d definitions of %q; want as many as %q and %q", len(all), slices.Sorted(maps.Keys(all)), files, newer)
	}
	used := map[change]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences(name, parse(t, string(text)), parse(t, all[name])) {
			i := slices.IndexFunc(changes(), func(c change) bool { return endsWith(d.path, c.where) })
			if i < 0 {
				t.Errorf("%s: %v; the handwritten definition has %v", d.path, d.is, d.was)
				continue
			}
			used[changes()[i]] = true
		}
	}
	for _, c := range changes() {
		if !used[c] {
			t.Errorf("nothing differs at %s: remove the change", c.where)
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// endsWith reports whether the last elements of a path match a pattern.
func endsWith(p, pattern string) bool {
	elements, wanted := strings.Split(p, "/"), strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	if len(elements) < len(wanted) {
		return false
	}
	matched, err := path.Match(strings.Join(wanted, "/"), strings.Join(elements[len(elements)-len(wanted):], "/"))
	return err == nil && matched
}

type difference struct {
	path    string
	was, is any
}

// differences returns the paths at which two values differ. It ignores the descriptions of schemas,
// the order of required fields, and empty subresources.
func differences(at string, was, is any) (all []difference) {
	switch was := was.(type) {
	case map[string]any:
		is, ok := is.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(was)
		maps.Copy(keys, is)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if ignored(at, key, was[key], is[key]) {
				continue
			}
			all = append(all, differences(at+"/"+key, was[key], is[key])...)
		}
		return all
	case []any:
		is, ok := is.([]any)
		if !ok || len(is) != len(was) {
			break
		}
		if path.Base(at) == "required" {
			was, is = sorted(was), sorted(is)
		}
		for i := range was {
			all = append(all, differences(fmt.Sprintf("%s/%d", at, i), was[i], is[i])...)
		}
		return all
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return []difference{{at, was, is}}
}

// ignored reports whether differences ignores the values of a key.
func ignored(at, key string, was, is any) bool {
	switch {
	case path.Base(at) == "properties":
		return false // key is the name of a field
	case key == "description":
		return !strings.Contains(at, "additionalPrinterColumns") || (was == nil) == (is == nil)
	case key == "subresources":
		empty, ok := is.(map[string]any)
		return was == nil && ok && len(empty) == 0
	}
	return false
}

func sorted(all []any) []any {
	return slices.SortedFunc(slices.Values(all), func(a, b any) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}
