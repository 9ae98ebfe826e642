// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"
	"strings"
)

// MaxLength is the longest tenant name, in bytes: the limit of a Kubernetes label value
// (k8s.io/apimachinery pkg/util/validation LabelValueMaxLength, v0.37.1), because the name is one.
const MaxLength = 63

// ErrInvalid says that a text or an identity names no valid tenant.
// Callers test for it with [errors.Is].
var ErrInvalid = errors.New("invalid tenant")

// ID names one tenant. It is comparable with == and usable as a map key.
//
// The zero ID names no tenant; it owns nothing and may reach nothing. Only [Parse] and [System]
// make another one, so an ID that is not zero is always valid.
type ID struct{ name string }

// System returns the system tenant: it owns all that no tenant owns and may reach every space.
func System() ID { return ID{name: systemName} }

const systemName = "system"

// Parse returns the tenant that s names: a non-empty Kubernetes label value, case kept.
//
// Reserved, in any spelling of case, are "all", "tenant" and every spelling of "system" but
// "system" itself. The error wraps [ErrInvalid] and never repeats s, which may be attacker's bytes.
func Parse(s string) (ID, error) {
	switch {
	case s == systemName:
		return System(), nil
	case s == "":
		return ID{}, fmt.Errorf("%w: empty", ErrInvalid)
	case len(s) > MaxLength:
		return ID{}, fmt.Errorf("%w: longer than %d bytes", ErrInvalid, MaxLength)
	case !isLabelValue(s):
		return ID{}, fmt.Errorf("%w: not a valid label value", ErrInvalid)
	case isReserved(s):
		return ID{}, fmt.Errorf("%w: reserved name", ErrInvalid)
	}
	return ID{name: s}, nil
}

// isReserved reports whether a label value, which is ASCII, is a name that no tenant may have. Its
// length tells most apart.
func isReserved(s string) bool {
	switch len(s) {
	case len("all"):
		return strings.EqualFold(s, "all")
	case len("tenant"): // as long as system
		return strings.EqualFold(s, "tenant") || strings.EqualFold(s, systemName)
	}
	return false
}

// isLabelValue is k8s.io/apimachinery's validation.IsValidLabelValue for a non-empty value
// within its length, without the regular expression: the boundary parses a tenant with each
// decision. A fuzz target holds the two equal.
func isLabelValue(s string) bool {
	if !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := 1; i < len(s)-1; i++ {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// IsZero reports whether id names no tenant.
func (id ID) IsZero() bool { return id.name == "" }

// IsSystem reports whether id is the system tenant.
func (id ID) IsSystem() bool { return id.name == systemName }

// String returns the name, empty for the zero ID. Parse(id.String()) gives id back.
func (id ID) String() string { return id.name }

// Group returns the RBAC group of all callers of the tenant, "tenant:<id>"; empty for the zero ID.
func (id ID) Group() string {
	if id.IsZero() {
		return ""
	}
	return GroupPrefix + id.name
}

// MarshalText implements [encoding.TextMarshaler]; the zero ID is the empty text.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.name), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] by [Parse]; the empty text is refused.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
