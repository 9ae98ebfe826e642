// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

const policyPrefix = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":`

// TestPolicy checks that each problem in a line is reported at its key with a fix. Line numbers
// include empty lines and comments.
func TestPolicy(t *testing.T) {
	checkFindings(t, validate.ABAC, map[string]finding{
		"good": {
			"# comment\n\n# comment\n" + policyPrefix +
				`{"user":"alice","tenant":"acme","space":"*","resource":"pods"}}` + "\n" +
				`{"user":"alice"}`,
			nil,
		},
		"no space": {
			policyPrefix + `{"user":"alice","tenant":"acme","resource":"pods"}}`,
			[]string{
				`1:1: space is required if tenant is set: otherwise the line would apply to the system tenant's space | add ` +
					`"space": the ` +
					`tenant whose objects the line is about, or "*"`,
			},
		},
		"invalid tenant": {
			"\n" + policyPrefix + `{"user":"alice","tenant":"a b","space":"acme","resource":"pods"}}`,
			[]string{`2:97: tenant: invalid tenant: not a valid label value | write a tenant's name, "system" or "*"`},
		},
		"number for a string": {
			policyPrefix + `{"user":"alice","tenant":5,"space":"acme","resource":"pods"}}`,
			[]string{"1:97: tenant: must be a string | write a string"},
		},
		"number in the old format": {
			`{"user":"alice","namespace":5}`, []string{"1:17: namespace: must be a string | write a string"},
		},
		"string for a boolean": {
			policyPrefix + `{"user":"alice","readonly":"yes","resource":"pods"}}`,
			[]string{"1:97: readonly: must be true or false | write true or false"},
		},
		"list for a map": {
			`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":[]}`,
			[]string{"1:74: spec: must be a map | write a map"},
		},
		"invalid space": {
			policyPrefix + `{"user":"alice","tenant":"acme","space":"all","resource":"pods"}}`,
			[]string{`1:113: space: invalid tenant: reserved name | write a tenant's name, "system" or "*"`},
		},
		"unknown field": {
			policyPrefix + `{"user":"alice","verbs":["get"],"resource":"pods"}}`,
			[]string{
				`1:97: unknown field "spec.verbs" | check the spelling and the case: spec has user, group, tenant, space, ` +
					`readonly, apiGroup, resource, namespace, nonResourcePath`,
			},
		},
		"duplicate field": {
			policyPrefix + `{"user":"alice","user":"bob","resource":"pods"}}`,
			[]string{`1:82: duplicate field "spec.user" | remove the duplicate key`},
		},
		"no user or group": {
			policyPrefix + `{"resource":"pods"}}`,
			[]string{`1:74: spec: user or group is required | add "user" or "group"; "*" is every caller of the tenant`},
		},
		"no resource": {
			policyPrefix + `{"user":"alice"}}`,
			[]string{`1:74: spec: resource or nonResourcePath is required | add "resource" or "nonResourcePath"; "*" is all`},
		},
		"wildcard and a name": {
			policyPrefix + `{"user":"*","group":"dev","resource":"pods"}}`,
			[]string{
				`1:89: "*" may not be combined with a user or group name: the line would apply to every caller | ` +
					`remove the "*"`,
			},
		},
		"wrong API version": {
			`{"apiVersion":"v1","kind":"Policy","spec":{"user":"alice","resource":"pods"}}`,
			[]string{
				`1:2: apiVersion must be abac.authorization.kubernetes.io/v1beta1 and kind Policy, ` +
					`or both must be omitted for the old format | write "apiVersion": "abac.authorization.kubernetes.io/v1beta1", ` +
					`"kind": "Policy"`,
			},
		},
		"unsupported field in the old format": {
			`{"user":"alice","apiGroup":"apps"}`,
			[]string{
				`1:1: the old format may not have apiGroup or nonResourcePath | use the format with "apiVersion", ` +
					`"kind" and "spec"`,
			},
		},
		"too long": {`{"user":"` + strings.Repeat("a", 70000) + `"}`, []string{"1:1: longer than 64 KiB | split the line"}},
		"not an object": {
			`["alice"]`, []string{"1:1: not a JSON object | write one whole JSON object on each line, without a trailing comma"},
		},
		"trailing comma": {
			`{"user":"alice"},`,
			[]string{
				"1:17: invalid character ',' after top-level value | write one whole JSON object on each line, " +
					"without a trailing comma",
			},
		},
		"incomplete object": {
			`{"user":"alice"`,
			[]string{"1:15: unexpected end of JSON input | write one whole JSON object on each line, without a trailing comma"},
		},
		"duplicate line": {
			`{"user":"alice"}` + "\n" + `{"user":"bob"}` + "\n  " + `{"user":"alice"}` + "\n",
			[]string{"3:1: warning: the line is the same as line 1 | remove one of the two"},
		},
	})
}

// TestMaxProblems checks that at most a hundred problems are reported for a file.
func TestMaxProblems(t *testing.T) {
	var text strings.Builder
	for i := range 150 {
		fmt.Fprintf(&text, "{%d\n", i)
	}
	if got := found(t, file(t, "file", text.String()), validate.ABAC); len(got) != 100 {
		t.Errorf("%d problems, want 100", len(got))
	}
}
