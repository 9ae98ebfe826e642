// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// quick decodes the JSON that kube-apiserver writes for TokenReviews and SubjectAccessReviews,
// which it sends for each request. All members are known and unique, and strings are ASCII without
// escapes. quick rejects any other input, valid or not, and the decoder then handles it. If quick
// accepts an input, the decoder returns the same result (FuzzQuick).
//
// Its methods report whether they accept the input.
type quick struct{ rest []byte }

// space skips white space.
func (q *quick) space() {
	for len(q.rest) > 0 && (q.rest[0] == ' ' || q.rest[0] == '\n' || q.rest[0] == '\r' || q.rest[0] == '\t') {
		q.rest = q.rest[1:]
	}
}

// take reads one character.
func (q *quick) take(c byte) bool {
	q.space()
	if len(q.rest) == 0 || q.rest[0] != c {
		return false
	}
	q.rest = q.rest[1:]
	return true
}

// end reports whether the input ends here.
func (q *quick) end() bool {
	q.space()
	return len(q.rest) == 0
}

// text reads a string without copying it.
func (q *quick) text() ([]byte, bool) {
	if !q.take('"') {
		return nil, false
	}
	for i, c := range q.rest {
		switch {
		case c == '"':
			text := q.rest[:i]
			q.rest = q.rest[i+1:]
			return text, true
		case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

// string reads a string.
func (q *quick) string(into *string) bool {
	text, is := q.text()
	*into = string(text)
	return is
}

// strings reads a list of strings.
func (q *quick) strings(into *[]string) bool {
	if !q.take('[') {
		return false
	}
	*into = make([]string, 0, 4) // most callers have at most four groups
	for !q.take(']') {
		if len(*into) > 0 && !q.take(',') {
			return false
		}
		text, is := q.text()
		if !is {
			return false
		}
		*into = append(*into, string(text))
	}
	return true
}

// maxMembers limits the members of an object.
const maxMembers = 16

// object reads an object whose members have different names. The function member reads the value of
// each member.
func (q *quick) object(member func(name []byte) bool) bool {
	if !q.take('{') {
		return false
	}
	var names [maxMembers][]byte
	for n := 0; !q.take('}'); n++ {
		if n == maxMembers || n > 0 && !q.take(',') {
			return false
		}
		name, is := q.text()
		if !is || slices.ContainsFunc(names[:n], func(before []byte) bool { return bytes.Equal(before, name) }) {
			return false
		}
		names[n] = name
		if !q.take(':') || !member(name) {
			return false
		}
	}
	return true
}

// exactly reads a value that has exactly this encoding.
func (q *quick) exactly(value string) bool {
	q.space()
	rest, is := bytes.CutPrefix(q.rest, []byte(value))
	q.rest = rest
	return is
}
