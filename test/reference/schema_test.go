// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/yamlfile"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(configv1alpha1.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// check validates a YAML configuration against the schema.
func check(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(document)
}

var (
	// block matches a block of YAML on a page.
	block = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$")
	// member matches the header of a file in a txtar archive.
	member = regexp.MustCompile(`(?m)^-- .* --$`)
)

// textsOf returns the texts in a file of the repository that may be YAML. These are the whole
// YAML file, the YAML blocks of a page, the members of an archive, or the strings in a Go file.
func textsOf(file string, data []byte) (all []string, err error) {
	switch filepath.Ext(file) {
	case ".yaml":
		return []string{string(data)}, nil
	case ".md":
		for _, m := range block.FindAllSubmatch(data, -1) {
			all = append(all, string(m[1]))
		}
	case ".txtar":
		return member.Split(string(data), -1), nil
	case ".go":
		parsed, err := parser.ParseFile(token.NewFileSet(), file, data, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					all = append(all, text)
				}
			}
			return true
		})
	}
	return all, nil
}

// configurationOf returns the configuration in a document, which is the document itself or the
// field config of a Scenario. It returns nil for any other document, and for a configuration that
// a server rejects.
func configurationOf(document []byte) []byte {
	var kind struct {
		metav1.TypeMeta
		Config map[string]any `json:"config"`
	}
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil
	}
	switch kind.Kind {
	case configv1alpha1.KindTenancyConfiguration:
	case "Scenario":
		if kind.Config == nil {
			return nil
		}
		kind.Config["apiVersion"] = tenantv1alpha1.GroupVersion
		kind.Config["kind"] = configv1alpha1.KindTenancyConfiguration
		document, _ = yaml.Marshal(kind.Config) // it was parsed from YAML
	default:
		return nil
	}
	if _, err := configv1alpha1.Decode(document); err != nil {
		return nil
	}
	return document
}

// TestSchemaAccepts checks that each configuration in the repository that a server accepts is valid
// under the schema.
func TestSchemaAccepts(t *testing.T) {
	schema, found := compile(t), map[string]int{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte("TenancyConfiguration")) && !bytes.Contains(data, []byte("Scenario")) {
			return err
		}
		texts, err := textsOf(file, data)
		if err != nil {
			return err
		}
		for _, text := range texts {
			documents, err := yamlfile.Documents([]byte(text))
			if err != nil {
				continue // not YAML
			}
			for _, document := range documents {
				configuration := configurationOf(document)
				if configuration == nil {
					continue
				}
				found[filepath.Ext(file)]++
				if err := check(t, schema, configuration); err != nil {
					t.Errorf("%s: %v\n%s", file, err, configuration)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for extension, want := range map[string]int{
		".yaml":  100,
		".md":    10,
		".go":    10,
		".txtar": 3,
	} {
		t.Run(extension, func(t *testing.T) {
			if found[extension] < want {
				t.Errorf("found %d configurations in *%s", found[extension], extension)
			}
		})
	}
}

// TestSchemaAcceptsPublished checks that the effective configuration of a server, with each section
// and each default, is valid under the schema.
func TestSchemaAcceptsPublished(t *testing.T) {
	settings := complete()
	settings.Authentication.Sources = nil // a valid source has only one kind
	settings.Gateway.Clusters[0].Tenants = []string{"*"}
	configv1alpha1.Default(settings)
	published := configv1alpha1.Published{Settings: *settings}
	object, err := published.ConfigMap("kube-system")
	if err != nil {
		t.Fatal(err)
	}
	if err := check(t, compile(t), []byte(object.Data["tenancy.yaml"])); err != nil {
		t.Error(err)
	}
}

// TestSchemaRefuses checks that the schema rejects configurations that each have one problem.
func TestSchemaRefuses(t *testing.T) {
	schema := compile(t)
	const valid = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"
	if err := check(t, schema, []byte(valid)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"another kind":            "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n",
		"another version":         "apiVersion: kubetenant.dev/v1\nkind: TenancyConfiguration\n",
		"no kind":                 "apiVersion: kubetenant.dev/v1alpha1\n",
		"unknown section":         valid + "authorisation: {}\n",
		"unknown field":           valid + "authorization: { mod: Shadow }\n",
		"unknown value":           valid + "authorization: { mode: shadow }\n",
		"field in another case":   valid + "authorization: { Mode: Shadow }\n",
		"an unknown nested field": valid + "authentication: { sources: [ { name: p, frontProxy: { x: 1 } } ] }\n",
		"a source without a name": valid + "authentication: { sources: [ { frontProxy: {} } ] }\n",
		"a number for a duration": valid + "service: { drain: 10 }\n",
		"a duration with no unit": valid + "service: { drain: \"10\" }\n",
		"text for a number":       valid + "service: { tenantMetrics: \"10\" }\n",
		"a fraction":              valid + "service: { tenantMetrics: 1.5 }\n",
		"text for a list":         valid + "authorization: { systemNamespaces: kube-system }\n",
		"an invalid quantity":     valid + "admission: { quota: { default: { pods: many } } }\n",
	} {
		t.Run(name, func(t *testing.T) {
			if check(t, schema, []byte(text)) == nil {
				t.Errorf("accepted:\n%s", text)
			}
		})
	}
}

// TestSchemaComplete compares the types of the configuration with the schema. The schema of a
// struct must have exactly the fields of the struct. The schema of an enumeration must have its
// values. The schema of a duration or a quantity must have a pattern.
func TestSchemaComplete(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(configv1alpha1.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apiVersion", "kind"} {
		delete(schema["properties"].(map[string]any), name)
	}
	objects, enums, durations := 0, 0, 0
	var walk func(at string, typ reflect.Type, schema map[string]any)
	walk = func(at string, typ reflect.Type, schema map[string]any) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case typ == reflect.TypeFor[metav1.Duration]():
			durations++
			if schema["pattern"] == nil {
				t.Errorf("%s: a duration without a pattern", at)
			}
		case typ == reflect.TypeFor[resource.Quantity]():
			if schema["pattern"] == nil {
				t.Errorf("%s: a quantity without a pattern", at)
			}
		case typ.Kind() == reflect.Slice:
			items, _ := schema["items"].(map[string]any)
			walk(at+"[]", typ.Elem(), items)
		case typ.Kind() == reflect.Map:
			values, _ := schema["additionalProperties"].(map[string]any)
			walk(at+"{}", typ.Elem(), values)
		case typ.Kind() == reflect.Struct:
			objects++
			if schema["additionalProperties"] != false {
				t.Errorf("%s: unknown fields are accepted", at)
			}
			properties, _ := schema["properties"].(map[string]any)
			fields := fieldsOf(reflect.Zero(typ))
			if len(fields) != len(properties) {
				t.Errorf("%s: %d fields, and %d in the schema: run make generate", at, len(fields), len(properties))
			}
			for _, f := range fields {
				property, ok := properties[f.name].(map[string]any)
				if !ok || property["description"] == nil {
					t.Errorf("%s.%s: no description in the schema: run make generate", at, f.name)
				}
				walk(at+"."+f.name, f.value.Type(), property)
			}
		case strings.HasPrefix(typ.PkgPath(), "github.com/kubetenant/"):
			enums++
			if schema["enum"] == nil {
				t.Errorf("%s: the values of a %s are not in the schema: add +kubebuilder:validation:Enum", at, typ.Name())
			}
		}
	}
	walk("", reflect.TypeFor[configv1alpha1.TenancyConfiguration](), schema)
	if objects < 80 || enums < 40 || durations < 7 {
		t.Errorf("found %d objects, %d enumerations, %d durations", objects, enums, durations)
	}
}
