// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads the project's YAML files (configurations, revocations and scenarios), and
// writes objects as YAML.
package yamlfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxBytes is the maximum size of a file, in bytes. The largest known files have less than a
// hundredth of this size. With this limit, a path that names a large log by mistake causes an
// error and does not exhaust the memory.
const maxBytes = 16 << 20

// Read returns the content of a regular file of at most 16 MiB.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return nil, fmt.Errorf("%s: must be a regular file of at most %d bytes", path, maxBytes)
	}
	return os.ReadFile(path) // #nosec G304 -- the operator names the file
}

// Documents returns the YAML documents in data. It omits empty documents.
func Documents(data []byte) ([][]byte, error) {
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(bytes.Trim(doc, "- \n\r\t")) > 0 {
			all = append(all, doc)
		}
	}
}

// Unmarshal decodes a document that must have the given API version and kind. problems are errors
// about unknown fields, including fields in the wrong case. All other fields are decoded even if
// there are problems. A duplicate field is returned as err.
func Unmarshal(data []byte, apiVersion, kind string, into any) (problems []error, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var typeMeta metav1.TypeMeta
	if err := json.Unmarshal(asJSON, &typeMeta); err != nil {
		return nil, err
	}
	if typeMeta.APIVersion != apiVersion || typeMeta.Kind != kind {
		return nil, fmt.Errorf("must have apiVersion %s and kind %s", apiVersion, kind)
	}
	return kjson.UnmarshalStrict(asJSON, into)
}

// Marshal returns objects as YAML documents, without metadata.creationTimestamp and status.
func Marshal(all ...any) (string, error) {
	var parts []string
	for _, obj := range all {
		object, err := Object(obj)
		if err != nil {
			return "", err
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "---\n"), nil
}

// Object returns the content of a Kubernetes object, without metadata.creationTimestamp and status.
func Object(obj any) (map[string]any, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(object, "status")
	return object, nil
}
