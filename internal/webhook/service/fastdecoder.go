// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// fastDecoder decodes the JSON that kube-apiserver writes for TokenReviews and
// SubjectAccessReviews, which kube-apiserver sends for most requests. It accepts an input only if
// all members are known and unique, and strings are ASCII without escapes. The JSON module
// decodes any other input. If fastDecoder accepts an input, the JSON module returns the same
// result (FuzzFastDecoder).
//
// The methods report whether they accept the input.
type fastDecoder struct{ rest []byte }

// skipSpace skips white space.
func (q *fastDecoder) skipSpace() {
	for len(q.rest) > 0 && (q.rest[0] == ' ' || q.rest[0] == '\n' || q.rest[0] == '\r' || q.rest[0] == '\t') {
		q.rest = q.rest[1:]
	}
}

// accept skips white space and reads the character c.
func (q *fastDecoder) accept(c byte) bool {
	q.skipSpace()
	if len(q.rest) == 0 || q.rest[0] != c {
		return false
	}
	q.rest = q.rest[1:]
	return true
}

// atEnd reports whether only white space is left.
func (q *fastDecoder) atEnd() bool {
	q.skipSpace()
	return len(q.rest) == 0
}

// rawString reads a string without copying it.
func (q *fastDecoder) rawString() ([]byte, bool) {
	if !q.accept('"') {
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
func (q *fastDecoder) string(into *string) bool {
	text, ok := q.rawString()
	*into = string(text)
	return ok
}

// strings reads a list of strings.
func (q *fastDecoder) strings(into *[]string) bool {
	if !q.accept('[') {
		return false
	}
	*into = make([]string, 0, 4) // most callers have at most four groups
	for !q.accept(']') {
		if len(*into) > 0 && !q.accept(',') {
			return false
		}
		text, ok := q.rawString()
		if !ok {
			return false
		}
		*into = append(*into, string(text))
	}
	return true
}

// maxMembers is the maximum number of members of an object.
const maxMembers = 16

// object reads an object without duplicate names. The function member reads the value of each
// member.
func (q *fastDecoder) object(member func(name []byte) bool) bool {
	if !q.accept('{') {
		return false
	}
	var names [maxMembers][]byte
	for n := 0; !q.accept('}'); n++ {
		if n == maxMembers || n > 0 && !q.accept(',') {
			return false
		}
		name, ok := q.rawString()
		if !ok || slices.ContainsFunc(names[:n], func(before []byte) bool { return bytes.Equal(before, name) }) {
			return false
		}
		names[n] = name
		if !q.accept(':') || !member(name) {
			return false
		}
	}
	return true
}

// literal reads a value with exactly the given encoding.
func (q *fastDecoder) literal(value string) bool {
	q.skipSpace()
	rest, ok := bytes.CutPrefix(q.rest, []byte(value))
	q.rest = rest
	return ok
}
