// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/template"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/migrate"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// withoutEffect matches the fields that a conversion may ignore. A server or kubectl wrote these
// fields, or every value has the same effect (preventDeletion).
var withoutEffect = regexp.MustCompile(`^(apiVersion|kind|spec\.preventDeletion|` +
	`metadata\.(uid|resourceVersion|generation|creationTimestamp|managedFields|selfLink|finalizers)\b.*|` +
	`metadata\.annotations\["kubectl\.kubernetes\.io/last-applied-configuration"\].*|` +
	`status\.(observedGeneration|state|size|conditions|classes)\b.*|` +
	`status\.spaces\[\d+\]\.(uid|conditions|metadata|enforce)\b.*)$`)

// leaf is a value in a document with its path. set replaces the value in the document.
type leaf struct {
	path  string
	value any
	set   func(any)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// leavesOf returns the leaves of a value, except null values.
func leavesOf(path string, value any, set func(any)) (all []leaf) {
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := path + "." + key
			if !plain.MatchString(key) {
				at = fmt.Sprintf("%s[%q]", path, key)
			}
			all = append(all, leavesOf(strings.TrimPrefix(at, "."), value[key], func(v any) { value[key] = v })...)
		}
	case []any:
		for i := range value {
			all = append(all, leavesOf(fmt.Sprintf("%s[%d]", path, i), value[i], func(v any) { value[i] = v })...)
		}
	default:
		all = []leaf{{path, value, set}}
	}
	return all
}

// isReported reports whether a report names the leaf or a value that contains it.
func isReported(reports []string, location, path string) bool {
	return slices.ContainsFunc(reports, func(line string) bool {
		line, ok := strings.CutPrefix(line, location+": ")
		if strings.HasPrefix(line, "the whole Tenant: ") {
			return true
		}
		rest := strings.TrimPrefix(path, line[:min(len(line), commonPath(line, path))])
		return ok && commonPath(line, path) > 0 && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// commonPath returns the length of the path at the beginning of a report line, if the path of
// the leaf begins with it. Otherwise, it returns 0.
func commonPath(line, path string) int {
	for n := min(len(path), len(line)); n > 0; n-- {
		if strings.HasPrefix(line, path[:n]+": ") {
			return n
		}
	}
	return 0
}

// mutations returns values that differ from value. If a conversion represents a leaf, at least
// one of these values changes the result.
func mutations(value any) []any {
	switch value := value.(type) {
	case bool:
		return []any{!value}
	case string:
		return []any{value + "x", "0", "-", ""}
	}
	return []any{float64(0), float64(1), "x"}
}

// checkLeaves checks that each leaf of a Tenant is reported, or changes the result of the
// migration. It returns the number of leaves that change the result.
func checkLeaves(t *testing.T, text []byte) (represented int) {
	t.Helper()
	document := map[string]any{}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	metadata, _ := document["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	run := func() (*migrate.Result, error) {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		return migrate.From()["capsule"](text, migrate.Options{})
	}
	base, err := run()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leavesOf("", document, nil) {
		if withoutEffect.MatchString(l.path) || isReported(base.Unconverted, "tenant "+name, l.path) {
			continue
		}
		if !slices.ContainsFunc(mutations(l.value), func(v any) bool {
			l.set(v)
			defer l.set(l.value)
			changed, err := run()
			return err != nil || !reflect.DeepEqual(changed, base)
		}) {
			t.Errorf("%s is neither reported nor represented:\n%s", l.path, text)
		}
		represented++
	}
	return represented
}

// TestCapsuleEveryField checks that each field of a Tenant, known or unknown, is represented or
// reported with its path.
func TestCapsuleEveryField(t *testing.T) {
	text, err := os.ReadFile("testdata/capsule-every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if n := checkLeaves(t, text); n < 40 {
		t.Errorf("%d leaves are represented; want at least 40", n)
	}
	r := converted(t, "capsule", string(text))
	checkFiles(t, r.Files)
	if golden := "testdata/capsule-every-field.left"; os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(strings.Join(r.Unconverted, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/capsule-every-field.left")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "not carried over", string(want), strings.Join(r.Unconverted, "\n")+"\n")
	for _, line := range r.Unconverted {
		if !strings.Contains(line, "; ") {
			t.Errorf("report without a reason and advice: %s", line)
		}
	}
}

// checkFiles checks that the server accepts the files of a migration from Capsule.
func checkFiles(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if name == "configuration/tenancy.yaml" {
			if _, err := configv1alpha1.Decode([]byte(text)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			continue
		}
		for document := range strings.SplitSeq(text, "---\n") {
			var err error
			if strings.Contains(name, "templates") {
				err = checkTemplate([]byte(document))
			} else {
				err = yaml.UnmarshalStrict([]byte(document), &v1alpha1.Tenant{})
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, document)
			}
		}
	}
}

// checkTemplate checks a NamespaceTemplate as the server does.
func checkTemplate(document []byte) error {
	stored := &v1alpha1.NamespaceTemplate{}
	if err := yaml.UnmarshalStrict(document, stored); err != nil {
		return err
	}
	parsed, err := template.Parse(stored)
	if err != nil {
		return err
	}
	return parsed.Validate()
}

// FuzzCapsule checks that each leaf of any Tenant is represented or reported, and that the server
// accepts the converted files.
func FuzzCapsule(f *testing.F) {
	for _, spec := range []string{
		`{ owners: [ { kind: User, name: alice, x: y } ], namespaceOptions: { quota: 70000 } }`,
		`{ additionalRoleBindings: [ { clusterRoleName: a/b, subjects: [ { kind: ServiceAccount, name: x, ` +
			`namespace: a } ] } ] }`,
		`{ resourceQuotas: { scope: Namespace, items: [ { hard: { pods: "-1" } }, { hard: { pods: "${tenant}" } }, ` +
			`{ scopes: [ Terminating ] } ] } }`,
		`{ networkPolicies: { items: [ { podSelector: { matchExpressions: [ { key: capsule.clastix.io/tenant, ` +
			`operator: Exists } ] } } ] } }`,
		`{ storageClasses: { allowed: [ "{tenant}", "*", "" ] }, imagePullPolicies: [ Never, "" ], nodeSelector: { a: b } }`,
		`{ owners: {}, cordoned: "true", limitRanges: [], "a.b": { "c[0]": 1 } }`,
	} {
		f.Add("apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: { name: oil }\n" +
			"status: { namespaces: [ a ] }\nspec: " + spec + "\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := migrate.From()["capsule"]([]byte(text), migrate.Options{})
		if err != nil {
			return
		}
		checkFiles(t, r.Files)
		one := map[string]any{}
		if strings.Contains(text, "\n---") || yaml.Unmarshal([]byte(text), &one) != nil || one["kind"] != "Tenant" ||
			len(text) > 1000 {
			return
		}
		checkLeaves(t, []byte(text))
	})
}

// TestCapsuleRandomFields checks that each field is represented or reported if random fields of
// a Tenant have other values, types and names.
func TestCapsuleRandomFields(t *testing.T) {
	every, err := os.ReadFile("testdata/capsule-every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	values := []any{
		nil,
		"",
		"oil",
		"system",
		"x y",
		"*",
		"${tenant}",
		true,
		false,
		0.0,
		-1.0,
		1e12,
		[]any{},
		[]any{"a", 1.0, nil},
		map[string]any{},
		map[string]any{"name": "x", "kind": "User", "a/b": "c"},
	}
	for range rounds {
		document := map[string]any{}
		if err := yaml.Unmarshal(every, &document); err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(12) {
			change(random, document, values)
		}
		document["apiVersion"], document["kind"] = "capsule.clastix.io/v1beta2", "Tenant"
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		r, err := migrate.From()["capsule"](text, migrate.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		checkFiles(t, r.Files)
		checkLeaves(t, text)
		if t.Failed() {
			return
		}
	}
}

// rounds is the number of random Tenants. Each Tenant is converted several hundred times.
const rounds = 15

// change replaces a random part of a value, or renames a field.
func change(random *rand.Rand, value any, values []any) {
	other := values[random.IntN(len(values))]
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return
		}
		keys := slices.Sorted(maps.Keys(value))
		key := keys[random.IntN(len(keys))]
		switch random.IntN(12) {
		case 0:
			value[key] = other
		case 1:
			delete(value, key)
		case 2:
			value[key+"X"] = value[key]
			delete(value, key)
		default:
			change(random, value[key], values)
		}
	case []any:
		if len(value) == 0 {
			return
		}
		i := random.IntN(len(value))
		switch random.IntN(6) {
		case 0:
			value[i] = other
		case 1:
			value[i] = value[random.IntN(len(value))]
		default:
			change(random, value[i], values)
		}
	}
}
