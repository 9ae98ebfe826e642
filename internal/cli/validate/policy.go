// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubetenant/kubetenant/authz/abac"
)

// policy returns the findings for a policy file, in the order of its lines.
func policy(data []byte) []Finding {
	var found []Finding
	seen := map[string]int{}
	number := 0
	for text := range bytes.Lines(data) {
		number++
		trimmed := bytes.TrimSpace(text)
		if len(trimmed) == 0 || trimmed[0] == '#' {
			continue
		}
		if first, twice := seen[string(trimmed)]; twice {
			found = append(found, Finding{
				Line:     number,
				Severity: Warning,
				Reason:   "the line is the same as line " + strconv.Itoa(first),
				Fix:      "remove one of the two",
			})
		}
		seen[string(trimmed)] = number
		_, err := abac.Parse(text)
		if err == nil || len(found) >= maxProblems {
			continue
		}
		reason := policyReason(err)
		found = append(found, Finding{
			Line:   number,
			Column: columnOf(text, reason),
			Reason: reason,
			Fix:    policyFix(reason),
		})
	}
	return found
}

// policyReason returns the text of an error on one line, without the names of Go types.
func policyReason(err error) string {
	var form *json.UnmarshalTypeError
	if !errors.As(err, &form) {
		return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "line 1: "), "\n", "; ")
	}
	want := "a map"
	switch form.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	}
	return form.Field[strings.LastIndexByte(form.Field, '.')+1:] + ": must be " + want
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// columnOf returns the column of the syntax error in text, or of a key that reason names. If there
// is neither, it returns 1.
func columnOf(text []byte, reason string) int {
	var v any
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(text, &v), &syntax) {
		return int(syntax.Offset)
	}
	var keys []string
	for _, m := range quoted.FindAllStringSubmatch(reason, -1) {
		keys = append(keys, m[1][strings.LastIndex(m[1], ".")+1:])
	}
	for _, key := range []string{
		"tenant", "space", "kind", "apiVersion", "user", "group", "resource", "spec", "readonly", "apiGroup", "namespace",
		"nonResourcePath",
	} {
		if strings.HasPrefix(reason, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if i := bytes.Index(text, []byte(`"`+key+`"`)); i >= 0 {
			return i + 1
		}
	}
	return 1
}

// policyFix returns the fix for a problem in a policy file, or "".
func policyFix(text string) string {
	if _, wanted, ok := strings.Cut(text, ": must be "); ok {
		return "write " + wanted
	}
	return fixOf(policyFixes(), text)
}

// policyFixes returns pairs of a substring of a message and the fix for this message. The first
// pair whose substring is in the message applies.
func policyFixes() [][2]string {
	return [][2]string{
		{"space is required", `add "space": the tenant whose objects the line is about, or "*"`},
		{"tenant: ", `write a tenant's name, "system" or "*"`},
		{"space: ", `write a tenant's name, "system" or "*"`},
		{
			"unknown field",
			"check the spelling and the case: " +
				"spec has user, group, tenant, space, readonly, apiGroup, resource, namespace, nonResourcePath",
		},
		{"duplicate field", "remove the duplicate key"},
		{"user or group is required", `add "user" or "group"; "*" is every caller of the tenant`},
		{"resource or nonResourcePath is required", `add "resource" or "nonResourcePath"; "*" is all`},
		{"may not be combined", `remove the "*"`},
		{"apiVersion must be", `write "apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy"`},
		{"old format", `use the format with "apiVersion", "kind" and "spec"`},
		{"64 KiB", "split the line"},
		{"JSON", "write one whole JSON object on each line, without a trailing comma"},
		{"invalid character", "write one whole JSON object on each line, without a trailing comma"},
		{"unexpected end", "write one whole JSON object on each line, without a trailing comma"},
	}
}
