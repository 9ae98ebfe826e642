// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate converts the files of other projects to files of this project. It omits and
// reports each part that this project cannot express, or that would allow more than before. A
// migration never adds a right.
package migrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Result is the result of a conversion.
type Result struct {
	// Files contains the files to write, keyed by their path in the output folder. Objects for
	// the cluster and files for the server are in different folders.
	Files map[string]string
	// Unconverted describes each part of the input that was not converted, with its location. It
	// contains no secret.
	Unconverted []string
	// Next contains the steps that the user must take after the migration.
	Next []string
}

// reportUnconverted records that a part of the input was not converted.
func (r *Result) reportUnconverted(location, format string, args ...any) {
	r.Unconverted = append(r.Unconverted, location+": "+fmt.Sprintf(format, args...))
}

// Options contains values that are not in the input files.
type Options struct {
	// Dir is the path of the output folder that is used in the next steps.
	Dir string
	// GroupsPrefix is the groupsPrefix of the keystone source, with which its group names begin.
	GroupsPrefix string
}

// From returns the conversion functions, keyed by the kind of file.
func From() map[string]func([]byte, Options) (*Result, error) {
	return map[string]func([]byte, Options) (*Result, error){
		"arktos-tokens": func(data []byte, _ Options) (*Result, error) {
			return arktosCredentials(data, "tokens.csv", "tokenFile")
		},
		"arktos-passwords": func(data []byte, _ Options) (*Result, error) {
			return arktosCredentials(data, "passwords.csv", "basicAuthFile")
		},
		"arktos-policy":     func(data []byte, _ Options) (*Result, error) { return arktosPolicy(data) },
		"k8s-keystone-auth": keystoneAuth,
		"capsule":           capsule,
	}
}

// Kinds returns the sorted keys of [From].
func Kinds() []string { return slices.Sorted(maps.Keys(From())) }

// separator matches the beginning of a line that may separate YAML documents. [documents]
// rejects a document with a separator that the YAML reader does not recognize.
var separator = regexp.MustCompile(`(?m)^(---|\.\.\.)`)

// documents returns the objects in a YAML or JSON file, including the items of Lists. It returns
// an error for duplicate fields, and for text that the YAML reader would ignore.
func documents(data []byte) ([]map[string]any, error) {
	var all []map[string]any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		text = bytes.TrimPrefix(bytes.TrimSpace(text), []byte("---\n"))
		if separator.Match(text) {
			return nil, fmt.Errorf("document %d: each --- must be on a line of its own", number)
		}
		asJSON, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &value); err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if value == nil {
			continue
		}
		if all, err = expandList(all, value); err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
	}
}

var (
	errNoObject  = errors.New("it is not an object")
	errListField = errors.New("a List may only have apiVersion, kind, metadata and items")
)

// expandList appends an object to all. For a List, it appends the items. An item without
// apiVersion and kind gets both from the List.
func expandList(all []map[string]any, value any) ([]map[string]any, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errNoObject
	}
	kind, _ := object["kind"].(string)
	kind, isList := strings.CutSuffix(kind, "List")
	items, hasItems := object["items"].([]any)
	if !isList || !hasItems {
		return append(all, object), nil
	}
	for key := range object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, key) {
			return nil, errListField
		}
	}
	for _, item := range items {
		itemObject, ok := item.(map[string]any)
		if ok && itemObject["kind"] == nil && itemObject["apiVersion"] == nil && kind != "" {
			itemObject["apiVersion"] = object["apiVersion"]
			itemObject["kind"] = kind
		}
		var err error
		if all, err = expandList(all, item); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}
