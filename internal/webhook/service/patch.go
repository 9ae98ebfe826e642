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

// differ computes the JSON patch between two Go values. The patch does not touch fields that the Go
// type does not have, such as those of a newer version. However, if the length of a list changes,
// the patch replaces the list, which drops such fields in its items.
type differ struct {
	encodings  *encodings
	text       []byte // the object before the changes, encoded
	operations []operation
}

// encodings caches the JSON encodings of struct types. It is safe for concurrent use.
type encodings struct{ known sync.Map } // maps reflect.Type to *structEncoding

// structEncoding describes the JSON encoding of a struct type.
type structEncoding struct {
	opaque bool // the type has its own MarshalJSON
	fields []encodedField
	err    error
}

type encodedField struct {
	index int
	name  string // empty if the fields of the struct are inlined
}

// lookup returns the JSON encoding of a struct type.
func (s *encodings) lookup(t reflect.Type) *structEncoding {
	if known, ok := s.known.Load(t); ok {
		return known.(*structEncoding)
	}
	out := &structEncoding{opaque: t.Implements(reflect.TypeFor[json.Marshaler]())}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case out.opaque || name == "-" || !t.Field(i).IsExported():
			continue
		case name == "" && options != "inline" && !t.Field(i).Anonymous:
			out.err = errPatch
		}
		out.fields = append(out.fields, encodedField{i, name})
	}
	known, _ := s.known.LoadOrStore(t, out)
	return known.(*structEncoding)
}

// errPatch is the error for a change that cannot be expressed as a JSON patch.
var errPatch = errors.New("cannot express the changes of the object as a JSON patch")

// patchOf returns the patch between two objects of the same type, or nil if they are equal. text is
// the JSON text of the old object. It shows which parents exist, because a patch can add a field
// only to an existing parent.
func (s *encodings) patchOf(text []byte, oldObj, newObj runtime.Object) ([]byte, error) {
	d := &differ{encodings: s, text: text}
	if reflect.TypeOf(oldObj) != reflect.TypeOf(newObj) {
		return nil, errPatch
	}
	var err error
	switch oldObj := oldObj.(type) {
	case *customObject:
		newObj := newObj.(*customObject)
		err = d.compare([]string{"metadata"}, reflect.ValueOf(oldObj.ObjectMeta), reflect.ValueOf(newObj.ObjectMeta))
		if err == nil && newObj.Content != nil {
			before, now := maps.Clone(oldObj.UnstructuredContent()), maps.Clone(newObj.Content)
			delete(before, "metadata")
			delete(now, "metadata")
			err = d.compareKeys(nil, reflect.ValueOf(before), reflect.ValueOf(now))
		}
	case runtime.Unstructured:
		err = d.compareKeys(nil, reflect.ValueOf(oldObj.UnstructuredContent()),
			reflect.ValueOf(newObj.(runtime.Unstructured).UnstructuredContent()))
	default:
		err = d.compare(nil, reflect.ValueOf(oldObj).Elem(), reflect.ValueOf(newObj).Elem())
	}
	if err != nil || len(d.operations) == 0 {
		return nil, err
	}
	return json.Marshal(d.operations)
}

// compare adds the operations that change oldValue to newValue at a path.
func (d *differ) compare(path []string, oldValue, newValue reflect.Value) error {
	switch oldValue.Kind() {
	case reflect.String:
		if oldValue.String() == newValue.String() {
			return nil
		}
	case reflect.Struct:
		if encoding := d.encodings.lookup(oldValue.Type()); !encoding.opaque {
			return d.compareFields(path, encoding, oldValue, newValue)
		}
	case reflect.Pointer, reflect.Interface:
		if !oldValue.IsNil() && !newValue.IsNil() && oldValue.Elem().Type() == newValue.Elem().Type() {
			switch oldValue.Elem().Kind() {
			case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer, reflect.Interface:
				return d.compare(path, oldValue.Elem(), newValue.Elem())
			}
			if !oldValue.Elem().Equal(newValue.Elem()) { // unlike a value, a pointer to false or 0 is not omitted
				d.add(path, newValue.Elem())
			}
			return nil
		}
	case reflect.Map:
		if oldValue.Len() == 0 && newValue.Len() == 0 {
			return nil
		}
		if oldValue.Len() > 0 && newValue.Len() > 0 {
			return d.compareKeys(path, oldValue, newValue)
		}
	case reflect.Slice:
		if oldValue.Len() == 0 && newValue.Len() == 0 {
			return nil
		}
		if kind := oldValue.Type().Elem().Kind(); oldValue.Len() == newValue.Len() &&
			(kind == reflect.Struct || kind == reflect.Interface) {
			for i := range oldValue.Len() {
				if err := d.compare(append(path, strconv.Itoa(i)), oldValue.Index(i), newValue.Index(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if reflect.DeepEqual(oldValue.Interface(), newValue.Interface()) || empty(oldValue) && empty(newValue) {
		return nil
	}
	return d.set(path, newValue)
}

// empty reports whether the JSON encoding omits a value.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// compareFields compares the fields of a struct. The fields of an inlined struct have the path of
// the outer struct.
func (d *differ) compareFields(path []string, encoding *structEncoding, oldValue, newValue reflect.Value) error {
	if encoding.err != nil {
		return encoding.err
	}
	for _, f := range encoding.fields {
		at := path
		if f.name != "" {
			at = append(path, f.name)
		}
		if err := d.compare(at, oldValue.Field(f.index), newValue.Field(f.index)); err != nil {
			return err
		}
	}
	return nil
}

// compareKeys compares maps with string keys.
func (d *differ) compareKeys(path []string, oldValue, newValue reflect.Value) error {
	if reflect.DeepEqual(oldValue.Interface(), newValue.Interface()) {
		return nil
	}
	if before, ok1 := oldValue.Interface().(map[string]string); ok1 {
		if now, ok2 := newValue.Interface().(map[string]string); ok2 {
			d.compareStrings(path, before, now)
			return nil
		}
	}
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{oldValue, newValue} {
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
		before, now := oldValue.MapIndex(keys[name]), newValue.MapIndex(keys[name])
		switch at := append(path, name); {
		case !now.IsValid():
			d.operations = append(d.operations, operation{Op: "remove", Path: pointer(at)})
		case !before.IsValid():
			d.operations = append(d.operations, operation{Op: "add", Path: pointer(at), Value: now.Interface()})
		default:
			if err := d.compare(at, before, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareStrings is compareKeys for map[string]string, such as labels and annotations, without
// reflection.
func (d *differ) compareStrings(path []string, oldMap, newMap map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(oldMap)) {
		if _, ok := newMap[name]; !ok {
			d.operations = append(d.operations, operation{Op: "remove", Path: pointer(append(path, name))})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(newMap)) {
		if before, ok := oldMap[name]; !ok || before != newMap[name] {
			d.operations = append(d.operations, operation{Op: "add", Path: pointer(append(path, name)), Value: newMap[name]})
		}
	}
}

// set adds the operation that sets the value at a path. If the value is empty and not a string, the
// operation removes the path.
func (d *differ) set(path []string, value reflect.Value) error {
	if empty(value) && value.Kind() != reflect.String {
		if d.hasPath(path) {
			d.operations = append(d.operations, operation{Op: "remove", Path: pointer(path)})
		}
		return nil
	}
	d.add(path, value)
	return nil
}

// add adds the operations that create the missing parents of a path and set its value.
func (d *differ) add(path []string, value reflect.Value) {
	for i := 1; i < len(path); i++ {
		if parent := path[:i]; !d.hasPath(parent) {
			d.operations = append(d.operations, operation{Op: "add", Path: pointer(parent), Value: map[string]any{}})
		}
	}
	d.operations = append(d.operations, operation{Op: "add", Path: pointer(path), Value: value.Interface()})
}

// hasPath reports whether the old object has a value at a path, or whether the patch adds one.
func (d *differ) hasPath(path []string) bool {
	at := pointer(path)
	if slices.ContainsFunc(d.operations, func(o operation) bool { return o.Path == at && o.Op == "add" }) {
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
