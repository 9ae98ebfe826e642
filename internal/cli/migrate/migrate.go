// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package migrate converts the files of other projects to files of this project. It omits and
// reports anything that this project cannot express, or that would allow more than before. A
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
	// Files are the files to write, by their paths in the folder. Objects of the cluster and files
	// of the server are in different folders.
	Files map[string]string
	// Unconverted lists the parts that were not converted, with their positions. It contains no secret.
	Unconverted []string
	// Next lists the remaining steps.
	Next []string
}

// reportUnconverted reports a part that was not converted.
func (r *Result) reportUnconverted(location, format string, args ...any) {
	r.Unconverted = append(r.Unconverted, location+": "+fmt.Sprintf(format, args...))
}

// Options contain values that the files lack.
type Options struct {
	// Dir is the folder of the written files, as the next steps name it.
	Dir string
	// GroupsPrefix is the groups prefix of the keystone source.
	GroupsPrefix string
}

// From returns the supported kinds of files, each with its conversion.
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

// Kinds returns the names of [From].
func Kinds() []string { return slices.Sorted(maps.Keys(From())) }

// separator matches a line that separates YAML documents. A document must not contain a separator
// that the reader ignores.
var separator = regexp.MustCompile(`(?m)^(---|\.\.\.)`)

// documents returns the objects of a file in YAML or JSON, including the items of Lists. Duplicate
// fields and ignored text are errors.
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

// expandList appends an object, or the items of a List. An item without a kind gets its kind from the
// List.
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
			itemObject["apiVersion"], itemObject["kind"] = object["apiVersion"], kind
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
