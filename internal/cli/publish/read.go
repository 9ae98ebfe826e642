// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
)

// Read returns the objects in a file. An object without a namespace gets the given namespace. If
// fixed is true, an object with a different namespace is an error.
func Read(data []byte, namespace string, fixed bool) ([]*Object, error) {
	docs, err := yamlfile.Documents(data)
	if err != nil {
		return nil, err
	}
	var all []*Object
	for i, doc := range docs {
		u := &unstructured.Unstructured{}
		asJSON, err := yaml.YAMLToJSONStrict(doc)
		if err == nil {
			err = u.UnmarshalJSON(asJSON)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		items := []unstructured.Unstructured{*u}
		if u.IsList() {
			list, err := u.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", i+1, err)
			}
			items = list.Items
		}
		for j := range items {
			if err := named(&items[j], namespace, fixed); err != nil {
				return nil, fmt.Errorf("document %d: %w", i+1, err)
			}
			all = append(all, &Object{Content: &items[j]})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no object in it")
	}
	return all, nil
}

// named sets the namespace of an object that has none, and returns an error if a required field is
// missing.
func named(u *unstructured.Unstructured, namespace string, fixed bool) error {
	if u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	switch {
	case u.GetAPIVersion() == "" || u.GetKind() == "":
		return errors.New("apiVersion and kind must be set")
	case u.GetName() == "":
		return errors.New("metadata.name must be set")
	case fixed && u.GetNamespace() != namespace:
		return fmt.Errorf("the namespace of %s is %q, but -n is %q", u.GetKind(), u.GetNamespace(), namespace)
	}
	return nil
}
