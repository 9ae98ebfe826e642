// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

const root = "../.."

// row contains the type and the description of a field in a table of the page.
type row struct{ kind, description string }

var fieldRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*?) \\| (.*) \\|$")

// page returns the fields of each type on a page. The keys are the name of the type and the name
// of the field.
func page(t *testing.T, name string) map[string]map[string]row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference", name))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]map[string]row{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		types[title] = map[string]row{}
		for _, m := range fieldRow.FindAllStringSubmatch(body, -1) {
			types[title][m[1]] = row{m[2], m[3]}
		}
	}
	return types
}

// field is an exported field of a struct, with its JSON name.
type field struct {
	name  string
	value reflect.Value
}

// fieldsOf returns the fields of a struct, including the fields of its inlined structs.
func fieldsOf(v reflect.Value) (all []field) {
	for f, value := range v.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Type == reflect.TypeFor[metav1.TypeMeta]() || !f.IsExported() || name == "-" {
			continue
		}
		if strings.Contains(options, "inline") {
			all = append(all, fieldsOf(value)...)
			continue
		}
		all = append(all, field{name, value})
	}
	return all
}

// elementOf returns the type of the values in a pointer, slice or map.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// ours reports whether a type is a struct of the configuration.
func ours(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[configv1alpha1.Settings]().PkgPath()
}

// structsOf adds the type t, and every configuration struct that its fields contain, to all.
func structsOf(t reflect.Type, all map[string]reflect.Type) {
	if t = elementOf(t); !ours(t) || all[t.Name()] != nil {
		return
	}
	all[t.Name()] = t
	for _, f := range fieldsOf(reflect.Zero(t)) {
		structsOf(f.value.Type(), all)
	}
}

// TestConfigurationPage checks that each field of the configuration and of the revocation file is
// on the page with its description. A field with a struct type must have a link to the
// description of the type.
func TestConfigurationPage(t *testing.T) {
	types := map[string]reflect.Type{}
	structsOf(reflect.TypeFor[configv1alpha1.TenancyConfiguration](), types)
	structsOf(reflect.TypeFor[configv1alpha1.Revocation](), types)
	sections, fields := page(t, "configuration.md"), 0
	for name, typ := range types {
		t.Run(name, func(t *testing.T) {
			for _, f := range fieldsOf(reflect.Zero(typ)) {
				fields++
				r, found := sections[name][f.name]
				words := strings.Fields(strings.TrimPrefix(r.description, f.name+" specifies "))
				switch element := elementOf(f.value.Type()); {
				case !found:
					t.Errorf("%s.%s is not on the page: run make generate", name, f.name)
				case !strings.HasPrefix(r.description, f.name+" specifies ") || len(words) < 3:
					t.Errorf("%s.%s: the comment must be %q and a description, not %q", name, f.name,
						f.name+" specifies", r.description)
				case element.Kind() == reflect.Struct && !strings.Contains(r.kind, "]("):
					t.Errorf("%s.%s: the type %s has no link", name, f.name, r.kind)
				}
			}
		})
	}
	if len(types) < 50 || fields < 200 {
		t.Errorf("found %d types with %d fields", len(types), fields)
	}
}

// TestConfigurationLinks checks that each link to a type leads to a section.
func TestConfigurationLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([\w.]*)#(\w+)\)`)
	for _, name := range []string{"configuration.md", "kinds.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs/reference", name))
		if err != nil {
			t.Fatal(err)
		}
		links := link.FindAllStringSubmatch(string(text), -1)
		if len(links) < 20 {
			t.Errorf("%s: found %d links", name, len(links))
		}
		for _, m := range links {
			target := m[1]
			if target == "" {
				target = name
			}
			found := false
			for title := range page(t, target) {
				found = found || strings.ToLower(title) == m[2]
			}
			if !found {
				t.Errorf("%s: %s has no section %s", name, target, m[2])
			}
		}
	}
}

// complete returns settings in which every section exists and no other field is set.
func complete() *configv1alpha1.Settings {
	s := &configv1alpha1.Settings{
		Gateway: &configv1alpha1.Gateway{Clusters: []configv1alpha1.GatewayCluster{{}}},
	}
	s.Admission.Attribution.WorkloadUser.Scheduling = &configv1alpha1.WorkloadScheduling{}
	s.Authentication.Sources = []configv1alpha1.Source{
		{
			X509:           &configv1alpha1.X509{},
			TokenFile:      &configv1alpha1.CredentialFile{},
			BasicAuthFile:  &configv1alpha1.CredentialFile{},
			FrontProxy:     &configv1alpha1.FrontProxy{},
			ServiceAccount: &configv1alpha1.ServiceAccount{},
			OIDC:           &configv1alpha1.OIDC{},
			Keystone:       &configv1alpha1.Keystone{Match: &configv1alpha1.TokenMatch{}},
			Webhook:        &configv1alpha1.Webhook{},
		},
	}
	return s
}

// defaultOf matches the default in a description.
var defaultOf = regexp.MustCompile(`Defaults to (.+?)\.(?: |$)`)

// derived matches a default that is not a value, such as a rule or the absence of a value.
var derived = regexp.MustCompile(`^(no |none$|every |the |tokens that |names )`)

// valueTypes returns the structs that are a single value, such as an entry of a list.
// [configv1alpha1.Default] sets them as a whole.
func valueTypes() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[configv1alpha1.FieldRule](),
		reflect.TypeFor[configv1alpha1.GroupResource](),
		reflect.TypeFor[configv1alpha1.ObjectVerb](),
	}
}

// TestConfigurationDefaults compares each default that a description states with the default that
// applies.
func TestConfigurationDefaults(t *testing.T) {
	settings := complete()
	configv1alpha1.Default(settings)
	sections, stated := page(t, "configuration.md"), 0
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
			return
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
			return
		}
		if !ours(v.Type()) || slices.Contains(valueTypes(), v.Type()) {
			return
		}
		for _, f := range fieldsOf(v) {
			name := v.Type().Name() + "." + f.name
			text := ""
			if m := defaultOf.FindStringSubmatch(sections[v.Type().Name()][f.name].description); m != nil {
				text = m[1]
			}
			if text != "" {
				stated++
			}
			if problem := compareDefault(f.value, text); problem != "" {
				t.Errorf("%s: the description states the default %q: %s", name, text, problem)
			}
			walk(f.value)
		}
	}
	walk(reflect.ValueOf(settings))
	if stated < 80 {
		t.Errorf("found %d defaults", stated)
	}
}

// compareDefault returns the difference between a stated default and the default of a field, or "".
func compareDefault(v reflect.Value, stated string) string {
	switch value := v.Interface().(type) {
	case *metav1.Duration:
		if value == nil {
			break
		}
		if d, err := time.ParseDuration(stated); err != nil || d != value.Duration {
			return fmt.Sprintf("it is %s", value.Duration)
		}
		return ""
	case *configv1alpha1.FieldRule:
		switch {
		case value == nil:
			return compareText(stated, string(configv1alpha1.FieldForbid))
		case len(value.Allowed) == 0:
			return compareText(stated, string(value.Policy))
		}
		return compareNames(stated, value.Allowed)
	case []configv1alpha1.GroupResource:
		var names []string
		for _, r := range value {
			names = append(names, strings.TrimSuffix(r.Resource+"."+r.Group, "."))
		}
		if names != nil {
			return compareNames(stated, names)
		}
	case []configv1alpha1.ObjectVerb:
		var names []string
		for _, r := range value {
			names = append(names, r.Verb, r.Namespace+"/"+r.Name)
		}
		return compareNames(stated, names)
	case []string:
		if value != nil {
			return compareNames(stated, value)
		}
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Bool, v.Kind() == reflect.Int, v.Kind() == reflect.Int64:
		return compareText(stated, fmt.Sprint(v.Interface()))
	case v.Kind() == reflect.String && v.String() == `(?s).*`:
		return compareText(stated, "every group")
	case v.Type() == reflect.TypeFor[configv1alpha1.GateMode](): // v is the default with a gateway
		return compareText(stated, v.String()+" if gateway is set, otherwise to Off")
	case v.Kind() == reflect.String && v.String() != "":
		return compareText(stated, v.String())
	case v.IsZero() && stated != "" && !derived.MatchString(stated):
		return "there is none"
	}
	return ""
}

func compareText(stated, actual string) string {
	if stated != actual {
		return "it is " + actual
	}
	return ""
}

// compareNames returns an entry of a list that the stated default does not contain, or "". If an
// entry is a pattern with alternatives, the stated default must contain each alternative.
func compareNames(stated string, names []string) string {
	for _, name := range names {
		if prefix, pattern, found := strings.Cut(name, "("); found {
			alternatives, _, _ := strings.Cut(pattern, ")")
			if problem := compareNames(stated, strings.Split(alternatives, "|")); problem != "" {
				return prefix + ": " + problem
			}
			continue
		}
		if !regexp.MustCompile(`(^|[\s\[",])` + regexp.QuoteMeta(name) + `($|[\s\]",.])`).MatchString(stated) {
			return "it has " + name
		}
	}
	return ""
}
