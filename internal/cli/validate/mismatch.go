// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/cli/nearest"
	"github.com/kubetenant/kubetenant/tenant"
)

// mismatch is a field that a Go type does not have, or a field with a value of the wrong type.
type mismatch struct {
	field string
	// known contains the fields of the type at this position. It is nil if the value has the wrong
	// type.
	known []string
	// want and got describe the type of the value. If got is empty, the type is correct, but the
	// value is invalid.
	want, got string
}

// finding returns the finding for the mismatch, at the position of the field.
func (m *mismatch) finding(d *document) Finding {
	if m.known == nil && m.got == "" {
		return d.at(m.field, "must be "+m.want, "write "+m.want)
	}
	if m.known == nil {
		return d.at(m.field, "must be "+m.want+", but is "+m.got, "write "+m.want)
	}
	name := m.field[strings.LastIndexAny(m.field, ".]")+1:]
	reason, fix := unknownField(name, m.known)
	return d.at(m.field, reason, fix)
}

// maxListed is the maximum number of fields that a fix lists.
const maxListed = 15

// unknownField returns the reason and the fix for a field that does not exist.
func unknownField(name string, known []string) (reason, fix string) {
	reason = fmt.Sprintf("unknown field %q", name)
	all := slices.Sorted(slices.Values(known))
	better := nearest.Name(name, all)
	switch {
	case better != "":
		return fmt.Sprintf("%s; did you mean %q?", reason, better), "write " + better
	case len(all) == 0:
		return reason, "remove it: no fields are allowed here"
	case len(all) <= maxListed:
		return reason, "remove it, or write one of the fields " + strings.Join(all, ", ")
	}
	return reason, "remove it: " + fmt.Sprintf("none of the %d fields here has a similar name", len(all))
}

// mismatches compares a decoded value at a path with a Go type, and returns each mismatch.
func mismatches(t reflect.Type, value any, path string) []mismatch {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return nil
	}
	if decodesItself(t) {
		return undecodable(t, value, path)
	}
	other := func(want string) []mismatch { return []mismatch{{field: path, want: want, got: formOf(value)}} }
	if t == reflect.TypeFor[[]byte]() {
		t = reflect.TypeFor[string]() // base64
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			return other("a map")
		}
		return mapMismatches(t, object, path)
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return other("a list")
		}
		var all []mismatch
		for i, item := range list {
			all = append(all, mismatches(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i))...)
		}
		return all
	case reflect.String:
		if _, ok := value.(string); !ok {
			return other("a string")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return other("true or false")
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, ok := value.(int64)
		f, _ := value.(float64) // a number of more than 64 bits decodes to a float64
		isLarge := math.Abs(f) >= math.MaxInt64
		if !ok && !isLarge {
			return other("a whole number")
		}
		if isLarge || reflect.Zero(t).OverflowInt(n) {
			return []mismatch{{field: path, want: fmt.Sprintf("a whole number of at most %d bits", t.Bits())}}
		}
	}
	return nil
}

func mapMismatches(t reflect.Type, object map[string]any, path string) []mismatch {
	var all []mismatch
	fields := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		where := strings.TrimPrefix(path+"."+key, ".")
		fieldType, ok := fields[key]
		switch {
		case t.Kind() == reflect.Map:
			all = append(all, mismatches(t.Elem(), object[key], where)...)
		case ok:
			all = append(all, mismatches(fieldType, object[key], where)...)
		default:
			all = append(all, mismatch{field: where, known: slices.Collect(maps.Keys(fields))})
		}
	}
	return all
}

// fieldsOf returns the types of the fields of a struct, keyed by JSON name.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && (field.Anonymous || options == "inline"):
			maps.Copy(all, fieldsOf(field.Type))
		case name != "" && name != "-":
			all[name] = field.Type
		}
	}
	return all
}

// decodesItself reports whether a type has its own JSON or text decoding method.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// undecodable returns a mismatch if the decoding method of a type rejects a value.
func undecodable(t reflect.Type, value any, path string) []mismatch {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err == nil {
		return nil
	}
	want := "a valid value" // the error may contain the value or names of Go types
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		want = "a quantity, for example 10 or 500Mi"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		want = "a time, for example 2026-01-31T12:00:00Z"
	case reflect.TypeFor[metav1.Duration]():
		want = "a duration, for example 30s or 1h30m"
	case reflect.TypeFor[tenant.ID]():
		want = "the name of a tenant"
	}
	return []mismatch{{field: path, want: want}}
}

// formOf describes the type of a decoded value. The description does not contain the value.
func formOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	}
	return "empty"
}
