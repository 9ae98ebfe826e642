// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestWellFormed checks each code point at the beginning, in the middle and at the end of a name.
func TestWellFormed(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		hidden := unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
		joiner := r == 0x200c || r == 0x200d
		for name, want := range map[string]bool{
			string(r):               !hidden && !unicode.IsSpace(r),
			string(r) + "name":      !hidden && !unicode.IsSpace(r),
			"name" + string(r):      !hidden && !unicode.IsSpace(r),
			"na" + string(r) + "me": !hidden || joiner,
			"1" + string(r) + "me":  !hidden,
			"na" + string(r) + "-":  !hidden,
		} {
			if tenant.IsWellFormed(name) != want {
				t.Errorf("IsWellFormed(%q) = %t", name, !want)
			}
		}
		if value, want := "a"+string(r)+"b", !unicode.IsControl(r); tenant.IsWellFormedValue(value) != want {
			t.Errorf("IsWellFormedValue(%q) = %t", value, !want)
		}
		if value, want := "a"+string(r),
			!unicode.IsControl(r) && !unicode.IsSpace(r); tenant.IsWellFormedValue(value) != want {
			t.Errorf("IsWellFormedValue(%q) = %t", value, !want)
		}
	}
	for _, name := range []string{
		"", "alice", "Alice van Dam", "CN=a, O=b", "می\u200cخواهم", "ක්\u200dෂ", "alice@example.com", "oidc:a/b",
	} {
		if !tenant.IsWellFormed(name) {
			t.Errorf("%q is not well-formed", name)
		}
	}
	for _, name := range []string{"a\xff", "\xc0\xaf", "a\xed\xa0\x80"} {
		if tenant.IsWellFormed(name) || tenant.IsWellFormedValue(name) {
			t.Errorf("%q is well-formed", name)
		}
	}
}

// FuzzIsWellFormed checks that a well-formed name is UTF-8 without control characters, and stays
// the same when HTTP/1.1 trims a header value.
func FuzzIsWellFormed(f *testing.F) {
	for _, seed := range []string{" system:masters", "system:masters\t", "a\u200db", "\ufeffa", "a\u2028b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		at := tenant.IndexMalformed(name)
		if at >= len(name) || at >= 0 && tenant.IsWellFormed(name) {
			t.Fatalf("IndexMalformed(%q) = %d", name, at)
		}
		if at < 0 &&
			(textproto.TrimString(name) != name || strings.TrimSpace(name) != name ||
				strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name)) {
			t.Fatalf("%q is well-formed", name)
		}
	})
}

func TestLimits(t *testing.T) {
	many := slices.Repeat([]string{"g"}, 2001)
	large := strings.Repeat("x", 128<<10)
	for name, c := range map[string]struct {
		user user.DefaultInfo
		err  error
	}{
		"ordinary": {
			user.DefaultInfo{Name: "alice", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}, nil,
		},
		"maximum number of groups": {user.DefaultInfo{Name: "alice", Groups: many[:2000]}, nil},
		"one group too many":       {user.DefaultInfo{Name: "alice", Groups: many}, tenant.ErrLarge},
		"maximum size":             {user.DefaultInfo{Name: large}, nil},
		"one byte too large":       {user.DefaultInfo{Name: large, UID: "1"}, tenant.ErrLarge},
		"large groups":             {user.DefaultInfo{Name: "a", Groups: []string{large}}, tenant.ErrLarge},
		"a large extra":            {user.DefaultInfo{Name: "a", Extra: map[string][]string{"k": {large}}}, tenant.ErrLarge},
		"a large key":              {user.DefaultInfo{Name: "a", Extra: map[string][]string{large: nil}}, tenant.ErrLarge},
		"space before a name":      {user.DefaultInfo{Name: " alice"}, tenant.ErrForm},
		"space after a UID":        {user.DefaultInfo{Name: "a", UID: "1 "}, tenant.ErrForm},
		"space before a group":     {user.DefaultInfo{Name: "a", Groups: []string{"g", " system:masters"}}, tenant.ErrForm},
		"a key with a tab":         {user.DefaultInfo{Name: "a", Extra: map[string][]string{"k\t": nil}}, tenant.ErrForm},
		"a value with a newline": {
			user.DefaultInfo{Name: "a", Extra: map[string][]string{"k": {"v", "a\nb"}}}, tenant.ErrForm,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tenant.DefaultLimits().Check(&c.user); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
	}
	if err := (tenant.Limits{}).Check(&user.DefaultInfo{Name: "a"}); !errors.Is(err, tenant.ErrLarge) {
		t.Errorf("the zero limits: %v", err)
	}
}
