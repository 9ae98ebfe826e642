// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	"github.com/kubetenant/kubetenant/plugins"
)

// TestMatchesDomain checks that an entry "domain/*" matches only the keys of exactly that domain.
func TestMatchesDomain(t *testing.T) {
	for name, c := range map[string]struct {
		entry, key string
		want       bool
	}{
		"a key of the domain":         {"example.com/*", "example.com/a", true},
		"a key without a name":        {"example.com/*", "example.com/", true},
		"a subdomain":                 {"example.com/*", "x.example.com/a", false},
		"a longer domain":             {"example.com/*", "example.com.evil/a", false},
		"only the domain":             {"example.com/*", "example.com", false},
		"a key without a domain":      {"example.com/*", "a", false},
		"an entry without a wildcard": {"example.com/a", "example.com/a", false},
		"an empty domain":             {"/*", "/a", false},
		"only a wildcard":             {"*", "a", false},
		"a wildcard as the domain":    {"*/*", "example.com/a", false},
		"an entry with a value":       {"example.com/*=v", "example.com/a", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plugins.MatchesDomain(c.entry, c.key); got != c.want {
				t.Errorf("MatchesDomain(%s, %s) = %t", c.entry, c.key, got)
			}
		})
	}
}
