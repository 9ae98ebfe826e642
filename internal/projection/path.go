// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package projection reduces a cluster-scoped object to the part that belongs to a namespace.
// This part consists of the configured fields, without the parts that name other namespaces.
package projection

import (
	"errors"
	"slices"
	"strings"
)

// Path is the path to a field in an object.
type Path []Segment

// Segment is one step of a path. It selects a field of an object, or each entry of a list.
type Segment struct {
	Field string
	Each  bool
}

// maxSegments is the maximum number of segments of a path.
const maxSegments = 32

var errPath = errors.New("must be field names that are separated by dots: " +
	"write list[*] for the entries of a list, and labels['example.com/key'] for a key that contains a dot")

// Parse parses a path such as spec.resources[*].namespace or metadata.labels['example.com/key'].
// Any other form is an error.
func Parse(text string) (Path, error) {
	var out Path
	for rest := text; rest != "" || len(out) == 0; {
		segment, after, ok := next(rest, out)
		if !ok || len(out) == maxSegments {
			return nil, errPath
		}
		out = append(out, segment)
		rest = after
	}
	return out, nil
}

// next returns the first segment of a text and the rest of the text. before contains the
// preceding segments of the path. If the text does not begin with a valid segment, ok is false.
func next(text string, before Path) (segment Segment, rest string, ok bool) {
	first := len(before) == 0
	if rest, found := strings.CutPrefix(text, "[*]"); found {
		return Segment{Each: true}, rest, !first
	}
	if quoted, found := strings.CutPrefix(text, "['"); found {
		key, rest, closed := strings.Cut(quoted, "']")
		return Segment{Field: key}, rest, closed && !first && key != "" && !strings.ContainsAny(key, `'\[]`)
	}
	if !first {
		if text, ok = strings.CutPrefix(text, "."); !ok {
			return Segment{}, "", false
		}
	}
	end := strings.IndexAny(text, ".[")
	if end < 0 {
		end = len(text)
	}
	name := text[:end]
	return Segment{Field: name}, text[end:], name != "" && !strings.ContainsFunc(name, isNotPartOfName)
}

func isNotPartOfName(r rune) bool {
	return r != '_' && r != '-' && r != '$' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// String returns the text that [Parse] parses to this path.
func (p Path) String() string {
	var out strings.Builder
	for i, s := range p {
		switch {
		case s.Each:
			out.WriteString("[*]")
		case s.Field == "" || strings.ContainsFunc(s.Field, isNotPartOfName):
			out.WriteString("['" + s.Field + "']")
		case i == 0:
			out.WriteString(s.Field)
		default:
			out.WriteString("." + s.Field)
		}
	}
	return out.String()
}

// Contains reports whether p is a proper prefix of other.
func (p Path) Contains(other Path) bool {
	return len(p) < len(other) && slices.Equal(p, other[:len(p)])
}

// EndsInList reports whether the last segment of p selects the entries of a list.
func (p Path) EndsInList() bool { return len(p) > 0 && p[len(p)-1].Each }
