// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
)

// TestParseTarget checks that arguments have the same meaning as in kubectl auth can-i.
func TestParseTarget(t *testing.T) {
	for name, c := range map[string]struct {
		args        []string
		subresource string
		want        target
		wrong       error // nil if the arguments are valid, errAny for any error
	}{
		"a type":            {[]string{"pods"}, "", target{resource: "pods"}, nil},
		"a type and a name": {[]string{"pods", "log"}, "", target{resource: "pods", name: "log"}, nil},
		"TYPE/NAME":         {[]string{"pods/log"}, "", target{resource: "pods", name: "log", slash: true}, nil},
		"a type with a group": {
			[]string{"events.events.k8s.io/e"}, "", target{resource: "events.events.k8s.io", name: "e", slash: true}, nil,
		},
		"a subresource": {[]string{"pods"}, "exec", target{resource: "pods", subresource: "exec"}, nil},
		"a subresource of an object": {
			[]string{"pods/web-1"}, "log", target{
				resource:    "pods",
				name:        "web-1",
				subresource: "log",
				slash:       true,
			}, nil,
		},
		"a name with a slash": {
			[]string{"signers/example.com/a"}, "", target{resource: "signers", name: "example.com/a", slash: true}, nil,
		},
		"a name with a slash by itself": {
			[]string{"signers", "example.com/a"}, "", target{resource: "signers", name: "example.com/a"}, nil,
		},
		"a path":                   {[]string{"/metrics"}, "", target{path: "/metrics"}, nil},
		"a path and a subresource": {[]string{"/metrics"}, "log", target{}, errSubresource},
		"a path and a name":        {[]string{"/metrics", "x"}, "", target{}, errAny},
		"two names":                {[]string{"pods/a", "b"}, "", target{}, errTwoNames},
		"no name":                  {[]string{"pods/"}, "", target{}, errTwoNames},
		"an empty name":            {[]string{"pods", ""}, "", target{}, errAny},
		"no type":                  {[]string{""}, "", target{}, errAny},
		"nothing":                  {nil, "", target{}, errAny},
		"too many":                 {[]string{"pods", "a", "b"}, "", target{}, errTwoNames},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTarget(c.args, c.subresource)
			isWrong := errors.Is(err, c.wrong) || err != nil && errors.Is(c.wrong, errAny)
			if got != c.want || !isWrong {
				t.Errorf("%+v, %v; want %+v, %v", got, err, c.want, c.wrong)
			}
		})
	}
}

// errAny matches any error in a table.
var errAny = errors.New("any error")

// FuzzParseTarget checks that an error comes with the zero target. A result must have either a
// path or a resource without a slash.
func FuzzParseTarget(f *testing.F) {
	f.Add("pods/log", "", "")
	f.Add("pods", "web-1", "log")
	f.Add("/metrics", "", "x")
	f.Fuzz(func(t *testing.T, first, second, subresource string) {
		args := []string{first}
		if second != "" {
			args = append(args, second)
		}
		got, err := parseTarget(args, subresource)
		if err != nil {
			if got != (target{}) {
				t.Errorf("%q, %q: an error and %+v", first, second, got)
			}
			return
		}
		if got.subresource != subresource || strings.Contains(got.resource, "/") || (got.path != "") == (got.resource != "") {
			t.Errorf("%q, %q, %q: %+v", first, second, subresource, got)
		}
	})
}
