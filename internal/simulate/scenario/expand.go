// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxCases is the maximum number of cases in an expanded scenario.
const maxCases = 10000

// placeholder matches <name> in a string of a case. Placeholders have the same syntax as in
// Gherkin.
var placeholder = regexp.MustCompile(`<([A-Za-z][A-Za-z0-9]*)>`)

// shorthand contains the definitions in a file that its cases can use by name.
type shorthand struct {
	users, templates, values map[string]any
	used                     map[string]bool
}

// expand converts a document to JSON in which each case is complete. The result contains no
// users, templates, values, matrix, columns or rows. docs/scenarios.md describes the format.
func expand(doc []byte) ([]byte, error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &file); err != nil {
		return nil, err
	}
	s := &shorthand{used: map[string]bool{}}
	for key, into := range map[string]*map[string]any{"users": &s.users, "templates": &s.templates, "values": &s.values} {
		value, ok := file[key]
		if !ok {
			continue
		}
		if *into, ok = value.(map[string]any); !ok {
			return nil, field.Invalid(field.NewPath(key), value, "must be a map")
		}
		delete(file, key)
	}
	if cases, ok := file["cases"].([]any); ok {
		if file["cases"], err = s.expandAll(cases); err != nil {
			return nil, err
		}
	}
	if err := s.unused(); err != nil {
		return nil, err
	}
	return json.Marshal(file)
}

// unused returns an error for a definition that no case uses.
func (s *shorthand) unused() error {
	for key, defined := range map[string]map[string]any{"users": s.users, "templates": s.templates, "values": s.values} {
		for _, name := range slices.Sorted(maps.Keys(defined)) {
			if path := field.NewPath(key).Key(name); !s.used[path.String()] {
				return field.Invalid(path, name, "no case uses it")
			}
		}
	}
	return nil
}

func (s *shorthand) expandAll(cases []any) ([]any, error) {
	var all []any
	for i, value := range cases {
		path := field.NewPath("cases").Index(i)
		c, ok := value.(map[string]any)
		if !ok {
			return nil, field.Invalid(path, value, "must be a map")
		}
		rows, err := rowsOf(c, path)
		if err != nil {
			return nil, err
		}
		if len(all)+len(rows) > maxCases {
			return nil, field.TooMany(field.NewPath("cases"), len(all)+len(rows), maxCases)
		}
		for _, row := range rows {
			row, err := s.fillRow(row, path)
			if err != nil {
				return nil, err
			}
			one, err := s.expandCase(c, row, path)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// rowsOf returns the values of the placeholders for each case that c expands to. There is one case
// for each combination of the lists in matrix and the rows in rows. A null in a row means that the
// placeholder has no value. A case without matrix and rows expands to one case without values.
func rowsOf(c map[string]any, path *field.Path) ([]map[string]any, error) {
	all, err := tableOf(c, path)
	if err != nil {
		return nil, err
	}
	matrix, ok := c["matrix"].(map[string]any)
	if value, set := c["matrix"]; set && !ok {
		return nil, field.Invalid(path.Child("matrix"), value, "must be a map of lists")
	}
	for _, name := range slices.Sorted(maps.Keys(matrix)) {
		path := path.Child("matrix").Key(name)
		list, ok := matrix[name].([]any)
		if !ok || len(list) == 0 {
			return nil, field.Invalid(path, matrix[name], "must be a list, not empty")
		}
		if len(list)*len(all) > maxCases {
			return nil, field.TooMany(path, len(list)*len(all), maxCases)
		}
		next := make([]map[string]any, 0, len(list)*len(all))
		for _, row := range all {
			if _, ok := row[name]; ok {
				return nil, field.Duplicate(path, name)
			}
			for _, value := range list {
				combined := maps.Clone(row)
				combined[name] = value
				next = append(next, combined)
			}
		}
		all = next
	}
	return all, nil
}

// tableOf returns the rows of a case. Each row is keyed by column name.
func tableOf(c map[string]any, path *field.Path) ([]map[string]any, error) {
	columns, err := columnsOf(c, path)
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return []map[string]any{{}}, nil
	}
	rows, ok := c["rows"].([]any)
	if !ok || len(rows) == 0 {
		return nil, field.Required(path.Child("rows"), "a case with columns needs rows")
	}
	all := make([]map[string]any, 0, len(rows))
	for i, row := range rows {
		cells, ok := row.([]any)
		if !ok || len(cells) != len(columns) {
			return nil, field.Invalid(path.Child("rows").Index(i), row,
				fmt.Sprintf("must be a list with a value for each of the %d columns", len(columns)))
		}
		values := make(map[string]any, len(columns))
		for n, name := range columns {
			values[name] = cells[n]
		}
		all = append(all, values)
	}
	return all, nil
}

// columnsOf returns the names of the columns of a case.
func columnsOf(c map[string]any, path *field.Path) ([]string, error) {
	columns, ok := c["columns"].([]any)
	if !ok {
		if value, set := c["columns"]; set {
			return nil, field.Invalid(path.Child("columns"), value, "must be a list of names")
		}
		if _, set := c["rows"]; set {
			return nil, field.Required(path.Child("columns"), "a case with rows needs columns")
		}
		return nil, nil
	}
	var names []string
	for i, value := range columns {
		name, ok := value.(string)
		if !ok || name == "" {
			return nil, field.Invalid(path.Child("columns").Index(i), value, "must be the name of a placeholder")
		}
		if slices.Contains(names, name) {
			return nil, field.Duplicate(path.Child("columns").Index(i), name)
		}
		names = append(names, name)
	}
	return names, nil
}

// fillRow replaces the placeholders in the cells of a row. The cells may refer only to the
// section values of the file.
func (s *shorthand) fillRow(row map[string]any, path *field.Path) (map[string]any, error) {
	f := &filling{shorthand: s, filled: map[string]bool{}}
	filled := make(map[string]any, len(row))
	for name, cell := range row {
		value, _, err := f.fill(cell, path)
		if err != nil {
			return nil, err
		}
		filled[name] = value
	}
	return filled, nil
}

// expandCase returns a case with the values of one row.
func (s *shorthand) expandCase(c, row map[string]any, path *field.Path) (map[string]any, error) {
	f := &filling{shorthand: s, row: row, filled: map[string]bool{}}
	c = maps.Clone(c)
	for _, key := range []string{"matrix", "columns", "rows"} {
		delete(c, key)
	}
	if err := f.resolve(c, path); err != nil {
		return nil, err
	}
	value, _, err := f.fill(c, path)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(row)) {
		if !f.filled[name] {
			return nil, field.Invalid(path, name, "the case does not use this placeholder")
		}
	}
	one, _ := value.(map[string]any)
	return one, nil
}

// filling is the expansion of one case with the values of one row.
type filling struct {
	*shorthand
	row    map[string]any
	filled map[string]bool
}

// resolve replaces the name of a user with the user's credential, and merges a template with the
// objects of a write. It changes c, but not the maps inside c.
func (f *filling) resolve(c map[string]any, path *field.Path) error {
	credential, ok, err := f.named("users", f.users, c["user"], path.Child("user"))
	if err != nil {
		return err
	}
	delete(c, "user")
	if ok {
		if _, ok := c["credential"]; ok {
			return field.Forbidden(path.Child("credential"), "must not be set together with user")
		}
		c["credential"] = credential
	}
	admit, _ := c["admit"].(map[string]any)
	template, ok, err := f.named("templates", f.templates, admit["template"], path.Child("admit", "template"))
	if err != nil {
		return err
	}
	if admit == nil {
		return nil
	}
	admit = maps.Clone(admit)
	c["admit"] = admit
	delete(admit, "template")
	for _, key := range []string{"object", "oldObject"} {
		change, isSet := admit[key]
		if !isSet || !ok {
			continue
		}
		if change, _, err = f.fill(change, path.Child("admit", key)); err != nil {
			return err
		}
		admit[key] = merge(template, change)
	}
	return nil
}

// named returns the definition that a field refers to by name. The name may be a placeholder. It
// returns false if the field has no value.
func (f *filling) named(key string, defined map[string]any, name any, path *field.Path) (any, bool, error) {
	name, _, err := f.fill(name, path)
	if err != nil || name == nil {
		return nil, false, err
	}
	text, isText := name.(string)
	value, ok := defined[text]
	if !isText || !ok {
		return nil, false, field.NotFound(path, name)
	}
	f.used[field.NewPath(key).Key(text).String()] = true
	return value, true, nil
}

// fill replaces the placeholders in value. It returns false if the whole value is a placeholder
// that has no value in the row. The caller then omits the field.
func (f *filling) fill(value any, path *field.Path) (any, bool, error) {
	switch value := value.(type) {
	case string:
		return f.fillText(value, path)
	case []any:
		all := make([]any, 0, len(value))
		for i, item := range value {
			filled, ok, err := f.fill(item, path.Index(i))
			if err != nil {
				return nil, false, err
			}
			if ok {
				all = append(all, filled)
			}
		}
		return all, true, nil
	case map[string]any:
		all := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			filled, ok, err := f.fill(value[key], path.Child(key))
			if err != nil {
				return nil, false, err
			}
			if ok {
				all[key] = filled
			}
		}
		return all, true, nil
	default:
		return value, true, nil
	}
}

func (f *filling) fillText(text string, path *field.Path) (any, bool, error) {
	found := placeholder.FindAllStringSubmatchIndex(text, -1)
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(text) {
		return f.value(text[1:len(text)-1], path)
	}
	var filled strings.Builder
	end := 0
	for _, at := range found {
		value, _, err := f.value(text[at[2]:at[3]], path)
		if err != nil {
			return nil, false, err
		}
		filled.WriteString(text[end:at[0]])
		if value != nil {
			fmt.Fprint(&filled, value)
		}
		end = at[1]
	}
	filled.WriteString(text[end:])
	return filled.String(), true, nil
}

// value returns the value of a placeholder, and reports whether the placeholder has a value.
func (f *filling) value(name string, path *field.Path) (any, bool, error) {
	f.filled[name] = true
	if value, ok := f.row[name]; ok {
		return value, value != nil, nil
	}
	value, ok := f.values[name]
	if !ok {
		return nil, false, field.NotFound(path, "<"+name+">")
	}
	f.used[field.NewPath("values").Key(name).String()] = true
	return value, true, nil
}

// merge applies change to a template as a JSON merge patch (RFC 7396).
func merge(template, change any) any {
	changes, ok := change.(map[string]any)
	if !ok {
		return change
	}
	merged, _ := template.(map[string]any)
	merged = maps.Clone(merged)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = merge(merged[key], value)
		}
	}
	return merged
}
