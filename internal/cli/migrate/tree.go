// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// document is an object of another project as a tree. Every leaf is either consumed by a conversion
// or reported. [node.reportUnhandled] reports the leaves that no conversion has read. Therefore, an
// unknown field is never lost.
type document struct {
	// location names the document in a report.
	location string
	result   *Result
	// handled contains the paths that were consumed or reported, each including its subfields.
	handled map[string]bool
}

func newDocument(location string, content map[string]any, r *Result) node {
	d := &document{location: location, result: r, handled: map[string]bool{}}
	return node{document: d, value: content, isSet: true}
}

// node is a value of a document. isSet is false for a field that the document does not set.
type node struct {
	*document
	path  string
	value any
	isSet bool
}

// plainKey matches a key that needs no quotes in a path.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// get returns a field of an object. Reading a field of an empty object consumes the object.
func (n node) get(key string) node {
	m, ok := n.value.(map[string]any)
	if ok && len(m) == 0 {
		n.consume()
	}
	child := node{document: n.document, path: fieldPath(n.path, key)}
	child.value, child.isSet = m[key]
	child.isSet = child.isSet && child.value != nil
	return child
}

// fieldPath returns the path of a field of the object at a path.
func fieldPath(object, key string) string {
	if !plainKey.MatchString(key) {
		return object + "[" + strconv.Quote(key) + "]"
	}
	if object == "" {
		return key
	}
	return object + "." + key
}

// find returns the field at a path of plain keys.
func (n node) find(path string) node {
	for key := range strings.SplitSeq(path, ".") {
		n = n.get(key)
	}
	return n
}

// keys returns the names of an object's fields, sorted. An empty object is consumed.
func (n node) keys() []string {
	m, ok := n.value.(map[string]any)
	if ok && len(m) == 0 {
		n.consume()
	}
	return slices.Sorted(maps.Keys(m))
}

// items returns the elements of a list. An empty list is consumed.
func (n node) items() (all []node) {
	list, ok := n.value.([]any)
	if ok && len(list) == 0 {
		n.consume()
	}
	for i := range list {
		all = append(all, n.at(i))
	}
	return all
}

// at returns an element of a list. The index must be valid.
func (n node) at(i int) node {
	list, _ := n.value.([]any)
	return node{
		document: n.document,
		path:     fmt.Sprintf("%s[%d]", n.path, i),
		value:    list[i],
		isSet:    list[i] != nil,
	}
}

// text consumes a string and returns it. If the field is not a string, text returns "" and the
// field is reported with the rest.
func (n node) text() string {
	s, ok := n.value.(string)
	if ok {
		n.consume()
	}
	return s
}

// flag consumes a boolean and returns it. isFlag is false if the field is not a boolean.
func (n node) flag() (value, isFlag bool) {
	value, isFlag = n.value.(bool)
	if isFlag {
		n.consume()
	}
	return value, isFlag
}

// consume marks the value and its subfields as handled. Either a conversion represents them, or
// they have no meaning outside the server that wrote them.
func (n node) consume() {
	if n.isSet {
		n.handled[n.path] = true
	}
}

// reportUnconverted reports that the value and its subfields are not converted.
func (n node) reportUnconverted(format string, args ...any) {
	if !n.isSet {
		return
	}
	n.handled[n.path] = true
	n.result.reportUnconverted(n.location, "%s: %s", n.path, fmt.Sprintf(format, args...))
}

// isHandled reports whether the value itself was consumed or reported.
func (n node) isHandled() bool { return n.handled[n.path] }

// reasons contains the reason why a field is not converted, with advice, by the field's path
// without indexes. A field without a reason has the reason of the nearest parent field.
type reasons map[string]string

// unknownField is the reason for a field without another reason.
const unknownField = "the field or its value is not supported; look up its effect and set it up by hand"

// index matches the part of a path that is not the name of a field.
var index = regexp.MustCompile(`\[[0-9]+\]`)

func (all reasons) forPath(path string) string {
	path = index.ReplaceAllString(path, "")
	for {
		if reason, ok := all[path]; ok {
			return reason
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return unknownField
		}
		path = path[:i]
	}
}

// hasSubfield reports whether a subfield of a path has its own reason.
func (all reasons) hasSubfield(path string) bool {
	path = index.ReplaceAllString(path, "") + "."
	for known := range all {
		if strings.HasPrefix(known, path) {
			return true
		}
	}
	return false
}

// reportUnhandled reports the values that were neither consumed nor reported. It reports the highest
// path without any value that was read.
func (n node) reportUnhandled(reasonsByPath reasons) {
	unread, _ := n.unhandled(reasonsByPath)
	for _, u := range unread {
		u.reportUnconverted("%s", reasonsByPath.forPath(u.path))
	}
}

// unhandled returns the highest unread values at or below n. isWhole reports whether nothing at or below
// n was read.
func (n node) unhandled(reasonsByPath reasons) (unread []node, isWhole bool) {
	if n.isHandled() || n.value == nil {
		return nil, false
	}
	children := n.children()
	if len(children) == 0 {
		return []node{n}, true
	}
	isWhole = true
	for _, child := range children {
		below, whole := child.unhandled(reasonsByPath)
		unread = append(unread, below...)
		isWhole = isWhole && whole
	}
	// A report about spec or status as a whole would not name the fields.
	if isWhole && strings.ContainsAny(n.path, ".[") && !reasonsByPath.hasSubfield(n.path) {
		return []node{n}, true
	}
	return unread, isWhole
}

// children returns the fields of an object or the elements of a list, except those that are null.
func (n node) children() (all []node) {
	switch value := n.value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			all = append(all, n.get(key))
		}
	case []any:
		for i := range value {
			all = append(all, n.at(i))
		}
	}
	return slices.DeleteFunc(all, func(child node) bool { return !child.isSet })
}
