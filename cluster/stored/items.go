// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

var errList = errors.New("the server's answer is not a list")

// eachItem calls f for each object in a JSON list, and returns the token of the next page. Only
// one object at a time is in memory.
func eachItem(list io.Reader, f func(item []byte) error) (next string, err error) {
	decoder := json.NewDecoder(list)
	if err := expect(decoder, json.Delim('{')); err != nil {
		return "", err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "items":
			err = eachElement(decoder, f)
		case "metadata":
			var metadata struct {
				Continue string `json:"continue"`
			}
			err = decoder.Decode(&metadata)
			next = metadata.Continue
		default:
			var other json.RawMessage
			err = decoder.Decode(&other)
		}
		if err != nil {
			return "", err
		}
	}
	return next, expect(decoder, json.Delim('}'))
}

func eachElement(decoder *json.Decoder, f func(item []byte) error) error {
	begin, err := decoder.Token()
	switch {
	case err != nil:
		return err
	case begin == nil: // null
		return nil
	case begin != json.Delim('['):
		return errList
	}
	for decoder.More() {
		var item json.RawMessage
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		if err := f(item); err != nil {
			return err
		}
	}
	return expect(decoder, json.Delim(']'))
}

func expect(decoder *json.Decoder, want json.Delim) error {
	got, err := decoder.Token()
	if err != nil {
		return err
	}
	if got != want {
		return errList
	}
	return nil
}

// hasRequests reports whether the objects of a resource can request resources that a TenantUsage
// reports.
func hasRequests(of schema.GroupResource) bool {
	switch of {
	case corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("persistentvolumeclaims"),
		schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}:
		return true
	}
	return false
}

// addItem adds an object to the measurement of the tenant that owns its namespace. It ignores
// objects in namespaces of no tenant or of the system tenant. If the requests of an object cannot
// be computed, addItem adds only the object and its size.
func (m *Measurer) addItem(
	found totals, of schema.GroupResource, item []byte, owners map[string]tenant.ID,
) error {
	var object struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(item, &object); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	owner := owners[object.Metadata.Namespace]
	if owner.IsZero() || owner.IsSystem() {
		return nil
	}
	total := found.get(owner)
	total.objects++
	total.bytes += int64(len(item))
	if !hasRequests(of) {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(item, &u.Object); err != nil {
		return nil
	}
	usage, err := quota.Usage(of, u, nil, time.Now())
	if err != nil {
		return nil
	}
	if classes, err := m.Classes(); err == nil {
		usage = classes.Extend(usage)
	}
	for name, quantity := range usage {
		if isRequested(name) {
			total.request(name, quantity)
		}
	}
	return nil
}
