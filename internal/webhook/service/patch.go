// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime"
)

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// differ computes the changes of an object. It compares Go values. Fields that the Go type does not
// have, such as those of a newer version, do not change. An exception is a list whose length
// changes.
type differ struct {
	shapes *shapes
	text   []byte // the object before the changes, encoded
	out    []operation
}

// shapes caches how types are encoded as JSON. Safe for concurrent use.
type shapes struct{ known sync.Map } // maps reflect.Type to *shape

// shape describes how a struct type is encoded.
type shape struct {
	opaque bool // it has its own MarshalJSON
	fields []shapeField
	err    error
}

type shapeField struct {
	at   int
	name string // empty if the fields of the struct are inlined
}

// of returns how a struct type is encoded.
func (s *shapes) of(t reflect.Type) *shape {
	if known, ok := s.known.Load(t); ok {
		return known.(*shape)
	}
	out := &shape{opaque: t.Implements(reflect.TypeFor[json.Marshaler]())}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case out.opaque || name == "-" || !t.Field(i).IsExported():
			continue
		case name == "" && options != "inline" && !t.Field(i).Anonymous:
			out.err = errPatch
		}
		out.fields = append(out.fields, shapeField{i, name})
	}
	known, _ := s.known.LoadOrStore(t, out)
	return known.(*shape)
}

// errPatch reports that a change cannot be expressed as a JSON patch.
var errPatch = errors.New("cannot express the changes of the object as a JSON patch")

// patchOf returns the patch between two objects of the same type, or nil if they are equal. text is
// the encoded first object. It is needed because a patch can only add a field to a parent that
// exists.
func (s *shapes) patchOf(text []byte, was, is runtime.Object) ([]byte, error) {
	d := &differ{shapes: s, text: text}
	if reflect.TypeOf(was) != reflect.TypeOf(is) {
		return nil, errPatch
	}
	var err error
	switch was := was.(type) {
	case *customObject:
		is := is.(*customObject)
		err = d.compare([]string{"metadata"}, reflect.ValueOf(was.ObjectMeta), reflect.ValueOf(is.ObjectMeta))
		if err == nil && is.Content != nil {
			before, now := maps.Clone(was.UnstructuredContent()), maps.Clone(is.Content)
			delete(before, "metadata")
			delete(now, "metadata")
			err = d.compareKeys(nil, reflect.ValueOf(before), reflect.ValueOf(now))
		}
	case runtime.Unstructured:
		err = d.compareKeys(nil, reflect.ValueOf(was.UnstructuredContent()),
			reflect.ValueOf(is.(runtime.Unstructured).UnstructuredContent()))
	default:
		err = d.compare(nil, reflect.ValueOf(was).Elem(), reflect.ValueOf(is).Elem())
	}
	if err != nil || len(d.out) == 0 {
		return nil, err
	}
	return json.Marshal(d.out)
}

// compare adds the operations that change was to is at a path.
func (d *differ) compare(path []string, was, is reflect.Value) error {
	switch was.Kind() {
	case reflect.String:
		if was.String() == is.String() {
			return nil
		}
	case reflect.Struct:
		if shape := d.shapes.of(was.Type()); !shape.opaque {
			return d.compareFields(path, shape, was, is)
		}
	case reflect.Pointer, reflect.Interface:
		if !was.IsNil() && !is.IsNil() && was.Elem().Type() == is.Elem().Type() {
			switch was.Elem().Kind() {
			case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer, reflect.Interface:
				return d.compare(path, was.Elem(), is.Elem())
			}
			if !was.Elem().Equal(is.Elem()) { // a pointer to false or 0 is encoded too
				d.add(path, is.Elem())
			}
			return nil
		}
	case reflect.Map:
		if was.Len() == 0 && is.Len() == 0 {
			return nil
		}
		if was.Len() > 0 && is.Len() > 0 {
			return d.compareKeys(path, was, is)
		}
	case reflect.Slice:
		if was.Len() == 0 && is.Len() == 0 {
			return nil
		}
		if kind := was.Type().Elem().Kind(); was.Len() == is.Len() && (kind == reflect.Struct || kind == reflect.Interface) {
			for i := range was.Len() {
				if err := d.compare(append(path, strconv.Itoa(i)), was.Index(i), is.Index(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if reflect.DeepEqual(was.Interface(), is.Interface()) || empty(was) && empty(is) {
		return nil
	}
	return d.set(path, is)
}

// empty reports whether JSON omits a value.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// compareFields compares the fields of a struct. The fields of an inlined struct have the path of
// the outer struct.
func (d *differ) compareFields(path []string, shape *shape, was, is reflect.Value) error {
	if shape.err != nil {
		return shape.err
	}
	for _, f := range shape.fields {
		at := path
		if f.name != "" {
			at = append(path, f.name)
		}
		if err := d.compare(at, was.Field(f.at), is.Field(f.at)); err != nil {
			return err
		}
	}
	return nil
}

// compareKeys compares maps with string keys.
func (d *differ) compareKeys(path []string, was, is reflect.Value) error {
	if reflect.DeepEqual(was.Interface(), is.Interface()) {
		return nil
	}
	if before, is1 := was.Interface().(map[string]string); is1 {
		if now, is2 := is.Interface().(map[string]string); is2 {
			d.compareStrings(path, before, now)
			return nil
		}
	}
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{was, is} {
		for _, key := range m.MapKeys() {
			keys[key.String()] = key
		}
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		before, now := was.MapIndex(keys[name]), is.MapIndex(keys[name])
		switch at := append(path, name); {
		case !now.IsValid():
			d.out = append(d.out, operation{Op: "remove", Path: pointer(at)})
		case !before.IsValid():
			d.out = append(d.out, operation{Op: "add", Path: pointer(at), Value: now.Interface()})
		default:
			if err := d.compare(at, before, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareStrings is compareKeys for the most common maps, such as labels and annotations.
func (d *differ) compareStrings(path []string, was, is map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, has := is[name]; !has {
			d.out = append(d.out, operation{Op: "remove", Path: pointer(append(path, name))})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if before, had := was[name]; !had || before != is[name] {
			d.out = append(d.out, operation{Op: "add", Path: pointer(append(path, name)), Value: is[name]})
		}
	}
}

// set sets the value at a path, or removes it if it is empty.
func (d *differ) set(path []string, is reflect.Value) error {
	if empty(is) && is.Kind() != reflect.String {
		if d.has(path) {
			d.out = append(d.out, operation{Op: "remove", Path: pointer(path)})
		}
		return nil
	}
	d.add(path, is)
	return nil
}

// add adds a value at a path, and its missing parents.
func (d *differ) add(path []string, is reflect.Value) {
	for i := 1; i < len(path); i++ {
		if parent := path[:i]; !d.has(parent) {
			d.out = append(d.out, operation{Op: "add", Path: pointer(parent), Value: map[string]any{}})
		}
	}
	d.out = append(d.out, operation{Op: "add", Path: pointer(path), Value: is.Interface()})
}

// has reports whether the original object has a value at a path, or whether the patch adds one.
func (d *differ) has(path []string) bool {
	at := pointer(path)
	if slices.ContainsFunc(d.out, func(o operation) bool { return o.Path == at && o.Op == "add" }) {
		return true
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(d.text))
	for {
		token, err := decoder.ReadToken()
		if err != nil { // the end of the text
			return false
		}
		if string(decoder.StackPointer()) == at && token.Kind() != jsontext.Kind('}') {
			// A null is treated as a missing value.
			return decoder.PeekKind() != 'n'
		}
	}
}

// pointer encodes a path as in RFC 6901.
func pointer(path []string) string {
	var out strings.Builder
	for _, name := range path {
		out.WriteByte('/')
		out.WriteString(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return out.String()
}
