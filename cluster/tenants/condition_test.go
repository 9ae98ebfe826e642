// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubetenant/kubetenant/cluster/tenants"
)

// TestConditionMessage checks that messages have at most 32768 bytes of valid UTF-8, which the
// server accepts.
func TestConditionMessage(t *testing.T) {
	const limit = 32768
	for _, text := range []string{"", "x", strings.Repeat("x", limit)} {
		if got := tenants.ConditionMessage(text); got != text {
			t.Errorf("a message of %d bytes was changed to %d bytes", len(text), len(got))
		}
	}
	for shift := range 3 {
		got := tenants.ConditionMessage(strings.Repeat("x", shift) + strings.Repeat("\u20ac", limit))
		if len(got) > limit || len(got) < limit-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, " ...") {
			t.Errorf("a longer message has %d bytes and ends with %q", len(got), got[len(got)-8:])
		}
	}
}
