// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// quick reads the JSON that kube-apiserver writes of the two reviews that come with each request to
// it: no member is unknown or stands twice, and texts are ASCII without escapes. It judges nothing:
// whatever else there is, wrong or not, it does not recognise, and leaves to the decoder, which it
// agrees with where it does (FuzzQuick).
//
// Its methods report whether they have recognised what they read.
type quick struct{ rest []byte }

// space passes over white space.
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

// end is behind the last value.
func (q *quick) end() bool {
	q.space()
	return len(q.rest) == 0
}

// text reads a text, without a copy.
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

// string reads a text.
func (q *quick) string(into *string) bool {
	text, is := q.text()
	*into = string(text)
	return is
}

// strings reads a list of texts.
func (q *quick) strings(into *[]string) bool {
	if !q.take('[') {
		return false
	}
	*into = make([]string, 0, 4) // as many groups as most have
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

// maxMembers is how many members of an object are recognised.
const maxMembers = 16

// object reads an object of members with different names, each of which member recognises.
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

// exactly reads a value that is written in one way.
func (q *quick) exactly(value string) bool {
	q.space()
	rest, is := bytes.CutPrefix(q.rest, []byte(value))
	q.rest = rest
	return is
}
