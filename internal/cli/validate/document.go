// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// document is a document of a YAML or JSON file, or an item of a List in such a document.
type document struct {
	node *yaml.Node
	// apiVersion and kind are empty if the document does not contain them.
	apiVersion, kind string
	// prefix is the path of an item in its List, such as "items[0].". It is empty for a whole
	// document.
	prefix string
}

// group returns the API group of the document.
func (d *document) group() string {
	group, _, found := strings.Cut(d.apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

// split returns the documents of a file. Each item of a List is a separate document. If the file is
// not valid YAML, split returns a finding and the documents before the error.
func split(data []byte) (all []document, syntax *Finding) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		node := &yaml.Node{}
		err := decoder.Decode(node)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, syntaxError(err)
		}
		if problem := mistagged(node); problem != nil {
			return all, problem
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue
		}
		d := newDocument(node.Content[0], "", "")
		items := valueOf(d.node, "items")
		if items == nil || items.Kind != yaml.SequenceNode || !strings.HasSuffix(d.kind, "List") {
			all = append(all, d)
			continue
		}
		for i, item := range items.Content {
			one := newDocument(item, d.apiVersion, strings.TrimSuffix(d.kind, "List"))
			one.prefix = fmt.Sprintf("items[%d].", i)
			all = append(all, one)
		}
	}
}

// mistagged returns the finding for the first value that does not match its YAML tag, such as
// !!int x, or nil. The decoder's own error is not used, because it quotes the value, which can be
// a secret.
func mistagged(node *yaml.Node) *Finding {
	if node.Kind == yaml.ScalarNode && node.Style&yaml.TaggedStyle != 0 {
		var value any
		if node.Decode(&value) != nil {
			return &Finding{
				Line:   node.Line,
				Column: node.Column,
				Reason: "the tag does not allow the value",
				Fix:    "remove the tag, which begins with !",
			}
		}
	}
	for _, child := range node.Content {
		if problem := mistagged(child); problem != nil {
			return problem
		}
	}
	return nil
}

// newDocument returns the document with the given root node. apiVersion and kind apply if the node
// has no kind. The API server omits both in the items of a typed list.
func newDocument(node *yaml.Node, apiVersion, kind string) document {
	d := document{node: node}
	if v := valueOf(node, "apiVersion"); v != nil {
		d.apiVersion = v.Value
	}
	if v := valueOf(node, "kind"); v != nil {
		d.kind = v.Value
	}
	if d.kind == "" && kind != "" {
		d.apiVersion, d.kind = apiVersion, kind
	}
	return d
}

// json returns the document as JSON.
func (d *document) json() ([]byte, error) {
	text, err := yaml.Marshal(d.node)
	if err != nil {
		return nil, err
	}
	return kyaml.YAMLToJSON(text)
}

// value returns the document, decoded in the same way as by the server.
func (d *document) value() (map[string]any, error) {
	text, err := d.json()
	if err != nil {
		return nil, err
	}
	var value map[string]any
	return value, kjson.UnmarshalCaseSensitivePreserveInts(text, &value)
}

// valueOf returns the value of a key in a map, or nil.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if node.Content[i].Value == key {
			if value := node.Content[i+1]; value.Kind != yaml.AliasNode {
				return value
			}
			return node.Content[i+1].Alias
		}
	}
	return nil
}

// at returns a finding with the position of a field, or of the nearest parent field if the
// document does not have the field.
func (d *document) at(field, reason, fix string) Finding {
	f := Finding{
		Line:   d.node.Line,
		Column: d.node.Column,
		Field:  strings.TrimPrefix(d.prefix+field, "."),
		Reason: reason,
		Fix:    fix,
	}
	f.Field = strings.TrimSuffix(f.Field, ".")
	node := d.node
	for rest := field; rest != ""; {
		var key *yaml.Node
		if key, node, rest = step(node, rest); key == nil {
			return f
		}
		f.Line, f.Column = key.Line, key.Column
	}
	return f
}

// step returns the key and the value of the first element of a path, and the rest of the path.
// Keys may contain dots, so the longest matching key is used. key is nil if the element does not
// exist.
func step(node *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	path = strings.TrimPrefix(path, ".")
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.SequenceNode:
		number, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i], rest
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			after, ok := afterKey(path, node.Content[i].Value)
			if ok && (key == nil || len(after) < len(rest)) {
				key = node.Content[i]
				value = node.Content[i+1]
				rest = after
			}
		}
		return key, value, rest
	}
	return nil, nil, ""
}

// afterKey returns the rest of a path after a key. The key may have the forms "key", "[key]" and
// `["key"]`.
func afterKey(path, key string) (rest string, ok bool) {
	for _, form := range []string{"[" + key + "]", `["` + key + `"]`} {
		if rest, ok := strings.CutPrefix(path, form); ok {
			return rest, true
		}
	}
	rest, ok = strings.CutPrefix(path, key)
	return rest, ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// duplicates returns a finding for each duplicate key of a map in the document.
func (d *document) duplicates() []Finding {
	var found []Finding
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		first := map[string]int{}
		for i, child := range node.Content {
			switch {
			case node.Kind == yaml.SequenceNode:
				walk(child, fmt.Sprintf("%s[%d]", path, i))
			case node.Kind == yaml.MappingNode && i%2 == 1:
				key := node.Content[i-1]
				where := strings.TrimPrefix(path+"."+key.Value, ".")
				if line, twice := first[key.Value]; twice && len(found) < maxProblems {
					found = append(found, Finding{
						Line:   key.Line,
						Column: key.Column,
						Field:  d.prefix + where,
						Reason: fmt.Sprintf("the key %q is already in line %d", key.Value, line),
						Fix:    "remove the duplicate key",
					})
				}
				first[key.Value] = key.Line
				walk(child, where)
			}
		}
	}
	walk(d.node, "")
	return found
}
