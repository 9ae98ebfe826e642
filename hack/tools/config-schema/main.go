// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command config-schema prints the JSON schema of the configuration file. It reads the Go types of
// config/v1alpha1 and their comments with the parser of controller-gen. It must be run in the root
// directory of the repository.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

const (
	source = "./config/v1alpha1"
	kind   = "TenancyConfiguration"
	group  = "kubetenant.dev/v1alpha1"
	meta   = "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// duration matches the values that time.ParseDuration accepts.
const duration = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

func main() {
	schema, err := generate()
	if err != nil {
		fmt.Fprintln(os.Stderr, "config-schema:", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(schema); err != nil {
		fmt.Fprintln(os.Stderr, "config-schema:", err)
		os.Exit(1)
	}
}

func generate() ([]byte, error) {
	loaded, err := loader.LoadRoots(source)
	if err != nil {
		return nil, err
	}
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, err
	}
	parser := &crd.Parser{
		Collector:              &markers.Collector{Registry: registry},
		Checker:                &loader.TypeChecker{},
		IgnoreUnexportedFields: true,
	}
	crd.AddKnownTypes(parser)
	known := parser.PackageOverrides[meta]
	parser.PackageOverrides[meta] = func(p *crd.Parser, pkg *loader.Package) {
		known(p, pkg)
		p.Schemata[crd.TypeIdent{Package: pkg, Name: "Duration"}] = apiextensionsv1.JSONSchemaProps{
			Type:    "string",
			Pattern: duration,
		}
	}
	root := crd.TypeIdent{Package: loaded[0], Name: kind}
	parser.NeedFlattenedSchemaFor(root)
	// The loader checks types only as far as the schema requires it.
	if loader.PrintErrors(loaded, packages.TypeError) {
		return nil, errors.New("the types cannot be read")
	}
	text, err := json.Marshal(parser.FlattenedSchemata[root])
	if err != nil {
		return nil, err
	}
	schema := map[string]any{}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	strict(schema)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = kind
	schema["required"] = []string{"apiVersion", "kind"}
	properties := schema["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": group}
	properties["kind"] = map[string]any{"const": kind}
	out, err := json.MarshalIndent(schema, "", "  ")
	return append(out, '\n'), err
}

// strict converts an OpenAPI schema to a JSON schema that accepts the same configurations as a
// server. An object must not have unknown fields. An optional field may be null, which has the same
// meaning as an omitted field.
func strict(schema map[string]any) {
	for key := range schema {
		if strings.HasPrefix(key, "x-kubernetes-") {
			delete(schema, key)
		}
	}
	delete(schema, "nullable")
	delete(schema, "default")
	if items, ok := schema["items"].(map[string]any); ok {
		strict(items)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		strict(values)
	}
	if schema["type"] == "object" && schema["additionalProperties"] == nil {
		schema["additionalProperties"] = false
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for name, property := range properties {
		property := property.(map[string]any)
		strict(property)
		if !slices.Contains(required, any(name)) {
			allowNull(property)
		}
	}
}

func allowNull(schema map[string]any) {
	if name, ok := schema["type"].(string); ok {
		schema["type"] = []string{name, "null"}
	}
	if all, ok := schema["enum"].([]any); ok {
		schema["enum"] = append(all, nil)
	}
	if all, ok := schema["anyOf"].([]any); ok {
		schema["anyOf"] = append(all, map[string]any{"type": "null"})
	}
}
