// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"maps"
	"slices"
	"strings"
)

// Projection reduces objects to the part that belongs to a namespace. The zero value returns no
// part of any object. Safe for concurrent use.
type Projection struct {
	namespaceFrom Path
	fields        *node
}

// node is a node in the tree of the fields to copy. Each path to a field ends at a leaf.
type node struct {
	leaf     bool
	children map[Segment]*node
}

func (n *node) add(p Path) {
	if len(p) == 0 {
		n.leaf = true
		return
	}
	if n.children == nil {
		n.children = map[Segment]*node{}
	}
	child := n.children[p[0]]
	if child == nil {
		child = &node{}
		n.children[p[0]] = child
	}
	child.add(p[1:])
}

// New returns a projection that copies the given fields. It reads the namespace of an object, or of
// each entry of a list in the object, from the path namespaceFrom.
func New(namespaceFrom Path, fields []Path) *Projection {
	p := &Projection{namespaceFrom: namespaceFrom, fields: &node{}}
	for _, f := range fields {
		p.fields.add(f)
	}
	return p
}

// Part returns the part of an object that belongs to a namespace, or false if no part belongs to
// it. The result shares no memory with the object. It contains the strings, numbers and booleans
// at the listed fields. Its metadata contains the name, the resource version and the given
// namespace, and other fields only if they are listed. The result contains no apiVersion and no
// kind.
//
// A list on the path namespaceFrom is reduced to the entries for which this path leads to the
// namespace. Every other list is reduced to the entries that name no other namespace. A nested
// object that names another namespace is omitted, or reduced to its field on this path. An object
// has no part if its metadata has a namespace, or lacks a name or a resource version. It also has
// no part if the types of its fields do not match the path.
func (p *Projection) Part(object map[string]any, namespace string) (map[string]any, bool) {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	version, _ := metadata["resourceVersion"].(string)
	if namespace == "" || name == "" || version == "" || metadata["namespace"] != nil || len(p.namespaceFrom) == 0 {
		return nil, false
	}
	own, belongs := reduce(object, p.namespaceFrom, namespace)
	if !belongs {
		return nil, false
	}
	out, _ := p.fields.copyFields(own, p.namespaceFrom, namespace).(map[string]any)
	if out == nil {
		out = map[string]any{}
	}
	outMetadata, _ := out["metadata"].(map[string]any)
	if outMetadata == nil {
		outMetadata = map[string]any{}
	}
	outMetadata["name"], outMetadata["namespace"], outMetadata["resourceVersion"] = name, namespace, version
	out["metadata"] = outMetadata
	return out, true
}

// reduce returns a copy of value in which each list on the path contains only the entries from
// which the path leads to the namespace. It returns false if the path does not lead to the
// namespace.
func reduce(value any, path Path, namespace string) (any, bool) {
	if len(path) == 0 {
		text, _ := value.(string)
		return value, text == namespace
	}
	if !path[0].Each {
		object, _ := value.(map[string]any)
		child, belongs := reduce(object[path[0].Field], path[1:], namespace)
		if !belongs {
			return nil, false
		}
		out := maps.Clone(object)
		out[path[0].Field] = child
		return out, true
	}
	list, _ := value.([]any)
	var out []any
	for _, entry := range list {
		if entry, belongs := reduce(entry, path[1:], namespace); belongs {
			out = append(out, entry)
		}
	}
	return out, len(out) > 0
}

// copyFields returns a copy of the listed fields of value, or nil if value has none of them. The
// caller has already reduced the lists on the path namespaceFrom. path is the rest of this path
// from value, or nil if value is not on it.
func (n *node) copyFields(value any, path Path, namespace string) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		if path == nil && namesOtherNamespace(v, namespace) {
			return nil
		}
		foreign := namesOtherNamespace(v, namespace)
		for segment, child := range n.children {
			rest := after(path, segment)
			if segment.Each || foreign && rest == nil { // if the object names another namespace, only the path is followed
				continue
			}
			if field := child.copyFields(v[segment.Field], rest, namespace); field != nil {
				out[segment.Field] = field
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		each := Segment{Each: true}
		child, listed := n.children[each]
		if !listed {
			return nil
		}
		rest := after(path, each)
		var out []any
		for _, entry := range v {
			if rest == nil && containsOtherNamespace(entry, namespace) {
				continue
			}
			if entryPart := child.copyFields(entry, rest, namespace); entryPart != nil {
				out = append(out, entryPart)
			}
		}
		if len(out) > 0 {
			return out
		}
	case string, bool, int64, float64:
		if n.leaf {
			return v
		}
	}
	return nil
}

// after returns the rest of a path after its first segment. It returns nil if the path does not
// begin with the given segment.
func after(path Path, segment Segment) Path {
	if len(path) == 0 || path[0] != segment {
		return nil
	}
	return path[1:]
}

// namesOtherNamespace reports whether an object names another namespace. It checks each field
// with a name that ends in namespace or namespaces, in upper or lower case.
func namesOtherNamespace(object map[string]any, namespace string) bool {
	for key, field := range object {
		name := strings.ToLower(key)
		switch list, isList := field.([]any); {
		case strings.HasSuffix(name, "namespace") && field != any(namespace):
			return true
		case strings.HasSuffix(name, "namespaces") && (!isList ||
			slices.ContainsFunc(list, func(entry any) bool { return entry != any(namespace) })):
			return true
		}
	}
	return false
}

// containsOtherNamespace reports whether any object in value names another namespace.
func containsOtherNamespace(value any, namespace string) bool {
	switch v := value.(type) {
	case map[string]any:
		if namesOtherNamespace(v, namespace) {
			return true
		}
		for _, field := range v {
			if containsOtherNamespace(field, namespace) {
				return true
			}
		}
	case []any:
		for _, entry := range v {
			if containsOtherNamespace(entry, namespace) {
				return true
			}
		}
	}
	return false
}
