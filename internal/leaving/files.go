// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// bufferSize is the number of bytes that the decoder reads to distinguish JSON from YAML.
const bufferSize = 4096

// errNoObject reports that a file contains no object of a checked kind.
var errNoObject = errors.New("no ClusterRoleBinding, RoleBinding or Namespace to check")

// IsExport reports whether a file contains output of "kubectl get", which is a list or an object
// of a checked kind. A file that also contains a TenancyConfiguration or a Revocation, or that
// cannot be parsed, is not an export.
func IsExport(data []byte) bool {
	exported, hasConfiguration := false, false
	err := each(data, func(meta metav1.TypeMeta, _ json.RawMessage) error {
		exported = exported || isList(meta) || newObject(meta) != nil
		hasConfiguration = hasConfiguration || meta.Kind == configv1alpha1.KindTenancyConfiguration ||
			meta.Kind == configv1alpha1.KindRevocation
		return nil
	})
	return exported && !hasConfiguration && err == nil
}

// FindingsInExport returns the findings about the objects in a file. It skips objects of kinds
// that are not checked. It returns an error if the file cannot be parsed or contains no object to
// check.
func FindingsInExport(data []byte, systemNamespaces []string) ([]Finding, error) {
	all := newCollection(systemNamespaces)
	checked := 0
	err := eachItem(data, func(meta metav1.TypeMeta, text json.RawMessage) error {
		object := newObject(meta)
		if object == nil {
			return nil
		}
		if err := json.Unmarshal(text, object); err != nil {
			return fmt.Errorf("%s: %w", meta.Kind, err)
		}
		checked++
		all.add(object)
		return nil
	})
	if err == nil && checked == 0 {
		err = errNoObject
	}
	return all.findings(), err
}

func isList(meta metav1.TypeMeta) bool { return strings.HasSuffix(meta.Kind, "List") }

// newObject returns an empty object of a checked kind, or nil for other kinds.
func newObject(meta metav1.TypeMeta) runtime.Object {
	group, _, _ := strings.Cut(meta.APIVersion, "/")
	switch {
	case group == rbacv1.GroupName && meta.Kind == "ClusterRoleBinding":
		return &rbacv1.ClusterRoleBinding{}
	case group == rbacv1.GroupName && meta.Kind == "RoleBinding":
		return &rbacv1.RoleBinding{}
	case meta.APIVersion == "v1" && meta.Kind == "Namespace":
		return &corev1.Namespace{}
	}
	return nil
}

// eachItem calls f with each object in a file. For a list, it calls f with each item instead.
func eachItem(data []byte, f func(metav1.TypeMeta, json.RawMessage) error) error {
	return each(data, func(meta metav1.TypeMeta, text json.RawMessage) error {
		if !isList(meta) {
			return f(meta, text)
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("%s: %w", meta.Kind, err)
		}
		for _, item := range list.Items {
			itemMeta := metav1.TypeMeta{}
			if err := json.Unmarshal(item, &itemMeta); err != nil {
				return fmt.Errorf("%s: %w", meta.Kind, err)
			}
			if itemMeta.Kind == "" { // the API server omits the kind of the items in a typed list
				itemMeta = metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: strings.TrimSuffix(meta.Kind, "List")}
			}
			if err := f(itemMeta, item); err != nil {
				return err
			}
		}
		return nil
	})
}

// each calls f with each document in a file. It skips empty documents.
func each(data []byte, f func(metav1.TypeMeta, json.RawMessage) error) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), bufferSize)
	for {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(text) == 0 || string(text) == "null" {
			continue
		}
		meta := metav1.TypeMeta{}
		if err := json.Unmarshal(text, &meta); err != nil {
			return err
		}
		if err := f(meta, text); err != nil {
			return err
		}
	}
}
