// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

const (
	// objectBytes is the maximum size of one object. etcd accepts 1.5 MiB by default.
	objectBytes = 4 << 20
	// listTimeout is the timeout for reading a whole list.
	listTimeout = time.Minute
)

var (
	errTooLarge = errors.New("the objects of the cluster are too large")
	errForm     = errors.New("the response of the cluster is not what was requested")
)

// limitedReader is a reader that fails after remaining bytes. Before each object, remaining is set
// to objectBytes.
type limitedReader struct {
	io.Reader
	remaining   int
	reservation *memoryReservation // reserves the bytes that are read; nil for no reservation
}

func (m *limitedReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.remaining -= n; m.remaining < 0 {
		return 0, errTooLarge
	}
	if m.reservation != nil {
		if err := m.reservation.add(n); err != nil {
			return 0, err
		}
	}
	return n, err
}

// namespacePart returns the part of a JSON object that belongs to a namespace. It returns false
// if there is none, or the object is malformed.
func (v *ObjectView) namespacePart(raw []byte, namespace string) (map[string]any, bool) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, false
	}
	out, belongs := v.Projection.Part(object, namespace)
	if !belongs {
		return nil, false
	}
	out["apiVersion"], out["kind"] = GroupVersion.String(), v.kind()
	return out, true
}

func (h *Objects) request(v *ObjectView) *rest.Request {
	prefix := "/apis/" + v.Source.Group
	if v.Source.Group == "" {
		prefix = "/api"
	}
	return h.Client.Get().AbsPath(prefix, v.Source.Version).Resource(v.Source.Resource).
		SetHeader("Accept", "application/json")
}

// read returns an object, and reserves its size in held.
func (h *Objects) read(
	ctx context.Context, v *ObjectView, name, resourceVersion string, held *memoryReservation,
) ([]byte, error) {
	r := h.request(v).Name(name)
	if resourceVersion != "" {
		r = r.Param("resourceVersion", resourceVersion)
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return io.ReadAll(&limitedReader{Reader: body, remaining: objectBytes, reservation: held})
}

// readAll calls the function each with every object, and returns the resource version of the list.
// It holds one object at a time.
func (h *Objects) readAll(
	ctx context.Context, v *ObjectView, resourceVersion string, match metav1.ResourceVersionMatch, each func([]byte) error,
) (string, error) {
	r := h.request(v)
	for name, value := range map[string]string{
		"resourceVersion":      resourceVersion,
		"resourceVersionMatch": string(match),
	} {
		if value != "" {
			r = r.Param(name, value)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout) // also for the list at the beginning of a watch
	defer cancel()
	body, err := r.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	return readList(body, each)
}

// readList calls the function each with every item of a JSON list, and returns the list's resource
// version.
func readList(body io.Reader, each func(raw []byte) error) (resourceVersion string, err error) {
	in := &limitedReader{Reader: body, remaining: objectBytes}
	dec := json.NewDecoder(in)
	if err := expect(dec, json.Delim('{')); err != nil {
		return "", err
	}
	complete := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", err
		}
		in.remaining = objectBytes
		switch key {
		case "items":
			if err := readItems(dec, in, each); err != nil {
				return "", err
			}
			complete = true
		case "metadata":
			var m metav1.ListMeta
			if err := dec.Decode(&m); err != nil || m.Continue != "" {
				return "", errForm
			}
			resourceVersion = m.ResourceVersion
		default:
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return "", err
			}
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return "", err
	}
	if !complete || resourceVersion == "" {
		return "", errForm
	}
	return resourceVersion, nil
}

func readItems(dec *json.Decoder, in *limitedReader, each func(raw []byte) error) error {
	if err := expect(dec, json.Delim('[')); err != nil {
		return err
	}
	for dec.More() {
		in.remaining = objectBytes
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if err := each(raw); err != nil {
			return err
		}
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	if err == nil && token != want {
		return errForm
	}
	return err
}

// event is an event of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// openWatch opens a watch of the objects that begins after a resource version. next returns the
// next event, and closed closes the watch.
func (h *Objects) openWatch(
	ctx context.Context, v *ObjectView, resourceVersion string, o *options,
) (next func() (*event, error), closed func(), err error) {
	r := h.request(v).Param("watch", "true").Param("resourceVersion", resourceVersion).
		Param("allowWatchBookmarks", strconv.FormatBool(o.AllowWatchBookmarks))
	if o.TimeoutSeconds != nil {
		r = r.Param("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return nil, nil, err
	}
	in := &limitedReader{Reader: body}
	dec := json.NewDecoder(in)
	return func() (*event, error) {
		in.remaining = objectBytes
		e := &event{}
		return e, dec.Decode(e)
	}, func() { _ = body.Close() }, nil
}

func stringAt(object map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		object, _ = object[key].(map[string]any)
	}
	text, _ := object[path[len(path)-1]].(string)
	return text
}

func nameOf(object map[string]any) string { return stringAt(object, "metadata", "name") }

func labelsOf(object map[string]any) labels.Set {
	metadata, _ := object["metadata"].(map[string]any)
	all, _ := metadata["labels"].(map[string]any)
	out := labels.Set{}
	for key := range all {
		out[key] = stringAt(all, key)
	}
	return out
}
