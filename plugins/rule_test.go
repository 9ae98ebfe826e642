// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	"github.com/kubetenant/kubetenant/plugins"
)

// TestMatchesDomain checks that an entry "domain/*" matches only the keys of exactly that domain.
func TestMatchesDomain(t *testing.T) {
	for _, c := range []struct {
		entry, key string
		want       bool
	}{
		{"example.com/*", "example.com/a", true},
		{"example.com/*", "example.com/", true},
		{"example.com/*", "x.example.com/a", false},
		{"example.com/*", "example.com.evil/a", false},
		{"example.com/*", "example.com", false},
		{"example.com/*", "a", false},
		{"example.com/a", "example.com/a", false},
		{"/*", "/a", false},
		{"*", "a", false},
		{"*/*", "example.com/a", false},
		{"example.com/*=v", "example.com/a", false},
	} {
		if got := plugins.MatchesDomain(c.entry, c.key); got != c.want {
			t.Errorf("MatchesDomain(%s, %s) = %t", c.entry, c.key, got)
		}
	}
}
