// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The errors for an identity that is malformed or too large. Callers test for them with
// [errors.Is]. An error of kind [ErrForm] names the part of the identity and the rule that it
// violates. It contains no part of a name.
var (
	ErrForm  = errors.New("a name begins or ends with white space, or contains an invisible character")
	ErrLarge = errors.New("the identity exceeds the limits")
)

// DefaultLimits returns limits that are sufficient for large directories. Active Directory allows
// 1,015 groups in an access token. With these limits, each of 2,000 groups may have a name of 64
// bytes.
func DefaultLimits() Limits { return Limits{Bytes: 128 << 10, Groups: 2000} }

// Limits specify the maximum size of an identity. The zero value allows only an empty identity.
type Limits struct {
	// Bytes is the maximum total size of the name, the UID, the groups, and the extra keys and
	// values.
	Bytes int
	// Groups is the maximum number of groups.
	Groups int
}

// OrDefault returns l, or [DefaultLimits] for the zero value.
func (l Limits) OrDefault() Limits {
	if l == (Limits{}) {
		return DefaultLimits()
	}
	return l
}

// Check returns [ErrLarge] if u exceeds the limits. It returns an error of kind [ErrForm] if a
// name or an extra value of u is not well-formed. A well-formed name does not change in an HTTP
// header, from which white space is trimmed (RFC 9110, section 5.5). Names that only look alike,
// because of similar letters or Unicode compositions, are different names.
func (l Limits) Check(u user.Info) error {
	groups := u.GetGroups()
	size := len(u.GetName()) + len(u.GetUID())
	err := CheckForm("the user name", u.GetName())
	if err == nil {
		err = CheckForm("the UID", u.GetUID())
	}
	for _, group := range groups {
		if size += len(group); err == nil && size <= l.Bytes {
			err = CheckForm("a group", group)
		}
	}
	for key, values := range u.GetExtra() {
		if size += len(key); err == nil && size <= l.Bytes {
			err = CheckForm("an extra key", key)
		}
		for _, value := range values {
			if size += len(value); err == nil && size <= l.Bytes && !IsWellFormedValue(value) {
				err = &formError{"a value of an extra", brokenRule(value, -1)}
			}
		}
	}
	if size > l.Bytes || len(groups) > l.Groups {
		return ErrLarge
	}
	return err
}

// CheckForm returns nil if a name is well-formed ([IsWellFormed]). Otherwise, it returns an
// error of kind [ErrForm]. The error begins with the parameter what, such as "the user name",
// and describes the rule that the name violates. It does not contain the name.
func CheckForm(what, name string) error {
	at := IndexMalformed(name)
	if at < 0 {
		return nil
	}
	return &formError{what, brokenRule(name, at)}
}

// formError is an error of kind ErrForm.
type formError struct{ what, rule string }

func (e *formError) Error() string { return e.what + " " + e.rule }

// Is implements the interface that [errors.Is] uses.
func (e *formError) Is(target error) bool { return target == ErrForm }

// brokenRule returns the rule that a text violates. If the text violates several rules, the rule
// about the encoding comes first, and the rule about white space second. at is the index of an
// invisible character, or -1 if the text may contain invisible characters.
func brokenRule(text string, at int) string {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8"
	case strings.TrimSpace(text) != text:
		return "begins or ends with white space"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "contains a control character"
	case at >= 0:
		return "contains an invisible character"
	}
	return "is malformed"
}

// IsWellFormed reports whether all servers read a name in the same way. The name of a user or a
// group, a UID and an extra key must be well-formed. A well-formed name is UTF-8 without white
// space at either end. It does not contain a control character (Cc), a line or paragraph
// separator (Zl, Zp) or a filler (Other_Default_Ignorable_Code_Point). Format characters (Cf)
// are not allowed either, except the two joiners between letters, which Persian and Indic names
// need. The empty name is well-formed.
func IsWellFormed(name string) bool { return IndexMalformed(name) < 0 }

// IsWellFormedValue reports whether the value of an extra is UTF-8, has no white space at either
// end, and has no control character. Unlike a name, the value may contain other invisible
// characters, because no decision depends on them.
func IsWellFormedValue(value string) bool {
	return utf8.ValidString(value) && strings.TrimSpace(value) == value && !strings.ContainsFunc(value, unicode.IsControl)
}

// IndexMalformed returns the byte index of the first rune that makes a name malformed, or -1 if the
// name is well-formed.
func IndexMalformed(name string) int {
	for i := range len(name) {
		// Most names are visible ASCII. This loop is sufficient for them.
		if c := name[i]; c <= ' ' || c >= 0x7f {
			return indexMalformed(name)
		}
	}
	return -1
}

func indexMalformed(name string) int {
	trailing := len(strings.TrimRightFunc(name, unicode.IsSpace))
	before := rune(-1)
	for i, r := range name {
		width := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, width = utf8.DecodeRuneInString(name[i:])
		}
		switch {
		case r == utf8.RuneError && width == 1: // not UTF-8
			return i
		case unicode.IsSpace(r) && (i == 0 || i >= trailing),
			unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point):
			return i
		case unicode.Is(unicode.Cf, r):
			after, _ := utf8.DecodeRuneInString(name[i+width:])
			if !isJoiner(r) || !unicode.In(before, unicode.L, unicode.M) || !unicode.In(after, unicode.L, unicode.M) {
				return i
			}
		}
		before = r
	}
	return -1
}

// isJoiner reports whether r is the zero width joiner or non-joiner.
func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }
