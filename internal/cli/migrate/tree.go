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

// document is an object of another project as a tree. A conversion must consume or report each
// leaf. [node.reportUnhandled] reports the remaining leaves, so that an unknown field is never
// lost.
type document struct {
	// location is the name of the document in a report.
	location string
	result   *Result
	// handled contains the paths that were consumed or reported. An entry includes all
	// subfields.
	handled map[string]bool
}

func newDocument(location string, content map[string]any, r *Result) node {
	d := &document{location: location, result: r, handled: map[string]bool{}}
	return node{document: d, value: content, isSet: true}
}

// node is a value in a document. isSet is false for a field that the document does not contain.
type node struct {
	*document
	path  string
	value any
	isSet bool
}

// plainKey matches a key that needs no quotes in a path.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// get returns a field of an object. If the object is empty, get consumes it.
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

// fieldPath returns the path of the field key of an object. object is the path of the object.
func fieldPath(object, key string) string {
	if !plainKey.MatchString(key) {
		return object + "[" + strconv.Quote(key) + "]"
	}
	if object == "" {
		return key
	}
	return object + "." + key
}

// find returns the field at a path of keys that need no quotes, separated by dots.
func (n node) find(path string) node {
	for key := range strings.SplitSeq(path, ".") {
		n = n.get(key)
	}
	return n
}

// keys returns the sorted names of an object's fields. If the object is empty, keys consumes it.
func (n node) keys() []string {
	m, ok := n.value.(map[string]any)
	if ok && len(m) == 0 {
		n.consume()
	}
	return slices.Sorted(maps.Keys(m))
}

// items returns the elements of a list. If the list is empty, items consumes it.
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

// at returns the element of a list with the given index. The index must be valid.
func (n node) at(i int) node {
	list, _ := n.value.([]any)
	return node{
		document: n.document,
		path:     fmt.Sprintf("%s[%d]", n.path, i),
		value:    list[i],
		isSet:    list[i] != nil,
	}
}

// text consumes a string and returns it. If the value is not a string, text returns "" and does
// not consume the value, so that it is reported later.
func (n node) text() string {
	s, ok := n.value.(string)
	if ok {
		n.consume()
	}
	return s
}

// flag consumes a boolean and returns it. If the value is not a boolean, isFlag is false, and
// the value is not consumed.
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

// reportUnconverted reports that the value and its subfields are not converted, and marks them as
// handled.
func (n node) reportUnconverted(format string, args ...any) {
	if !n.isSet {
		return
	}
	n.handled[n.path] = true
	n.result.reportUnconverted(n.location, "%s: %s", n.path, fmt.Sprintf(format, args...))
}

// isHandled reports whether the value itself was consumed or reported.
func (n node) isHandled() bool { return n.handled[n.path] }

// reasons contains why fields are not converted, with advice. The keys are the paths of the
// fields, without indexes. A field without its own reason has the reason of the nearest parent
// field.
type reasons map[string]string

// unknownField is the reason for a field if neither the field nor a parent has a reason.
const unknownField = "the field or its value is not supported; look up its effect and set it up by hand"

// index matches the index of a list element in a path.
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

// reportUnhandled reports the values that were neither consumed nor reported. If no value below a
// path was handled, it reports that path instead of each value.
func (n node) reportUnhandled(reasonsByPath reasons) {
	unread, _ := n.unhandled(reasonsByPath)
	for _, u := range unread {
		u.reportUnconverted("%s", reasonsByPath.forPath(u.path))
	}
}

// unhandled returns the topmost unhandled values at or below n. isWhole reports whether no value at
// or below n was handled.
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
	// A report for spec or status as a whole would not name the fields.
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
