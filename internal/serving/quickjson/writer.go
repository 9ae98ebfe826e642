// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package quickjson writes the same bytes as encoding/json, without reflection and with few
// allocations (docs/design/benchmarks.md). It is for objects that are written for each request.
// Each use MUST have a test that compares the output with that of encoding/json.
package quickjson

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Writer appends to Text. It does not check that the calls form a valid document. A document starts
// with Begin, and any other call before Begin panics. String, Strings, Int and Map omit empty
// values, as omitempty does. Bool, Any and User do not. The zero value is ready for use by one
// goroutine at a time.
type Writer struct{ Text []byte }

// Begin begins an object, which is the document or the value after a call of Name.
func (w *Writer) Begin() { w.Text = append(w.Text, '{') }

// End ends an object.
func (w *Writer) End() { w.Text = append(w.Text, '}') }

// next writes a comma if a value precedes the next value in its object or list.
func (w *Writer) next() {
	if last := w.Text[len(w.Text)-1]; last != '{' && last != '[' {
		w.Text = append(w.Text, ',')
	}
}

// special contains the bytes that encoding/json escapes or may escape in a string.
var special = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, byte(c)) >= 0
	}
	return is
}()

// Quote writes a string.
func (w *Writer) Quote(text string) {
	for i := range len(text) {
		if special[text[i]] {
			quoted, _ := json.Marshal(text) // never fails, because invalid UTF-8 is replaced
			w.Text = append(w.Text, quoted...)
			return
		}
	}
	w.Text = append(append(append(w.Text, '"'), text...), '"')
}

// Name writes the name of a member. The caller must write its value next.
func (w *Writer) Name(name string) {
	w.next()
	w.Quote(name)
	w.Text = append(w.Text, ':')
}

// Bool writes a member, even if its value is false.
func (w *Writer) Bool(name string, value bool) {
	w.Name(name)
	w.Text = strconv.AppendBool(w.Text, value)
}

// Int writes a member, unless its value is 0.
func (w *Writer) Int(name string, value int64) {
	if value != 0 {
		w.Name(name)
		w.Text = strconv.AppendInt(w.Text, value, 10)
	}
}

// String writes a member, unless its value is empty.
func (w *Writer) String(name, value string) {
	if value != "" {
		w.Name(name)
		w.Quote(value)
	}
}

// Strings writes a member, unless its value is empty.
func (w *Writer) Strings(name string, values []string) {
	if len(values) > 0 {
		w.Name(name)
		w.list(values)
	}
}

// list writes a list of strings, or null if values is nil.
func (w *Writer) list(values []string) {
	if values == nil {
		w.Text = append(w.Text, "null"...)
		return
	}
	w.Text = append(w.Text, '[')
	for _, value := range values {
		w.next()
		w.Quote(value)
	}
	w.Text = append(w.Text, ']')
}

// Any writes a member with encoding/json. It writes nothing and returns the error if encoding/json
// fails.
func (w *Writer) Any(name string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		w.Name(name)
		w.Text = append(w.Text, text...)
	}
	return err
}

// Map writes a member that is an object with sorted keys, unless members is empty. The function
// value writes each value.
func Map[V any](w *Writer, name string, members map[string]V, value func(*Writer, V)) {
	if len(members) == 0 {
		return
	}
	w.Name(name)
	w.Begin()
	if len(members) == 1 { // no allocation for sorting
		for key, v := range members {
			w.Name(key)
			value(w, v)
		}
	} else {
		for _, key := range slices.Sorted(maps.Keys(members)) {
			w.Name(key)
			value(w, members[key])
		}
	}
	w.End()
}

// User writes a member whose value is a UserInfo of authentication.k8s.io/v1.
func User[V ~[]string](w *Writer, member, name, uid string, groups []string, extra map[string]V) {
	w.Name(member)
	w.Begin()
	w.String("username", name)
	w.String("uid", uid)
	w.Strings("groups", groups)
	Map(w, "extra", extra, func(w *Writer, values V) { w.list(values) })
	w.End()
}
