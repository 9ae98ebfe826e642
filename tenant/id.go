// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"
	"strings"
)

// MaxLength is the maximum length of a tenant name, in bytes. A tenant name is a Kubernetes label
// value and has the same limit (k8s.io/apimachinery pkg/util/validation LabelValueMaxLength,
// v0.37.1).
const MaxLength = 63

// ErrInvalid reports that a text or an identity does not name a valid tenant. Callers test for it
// with [errors.Is].
var ErrInvalid = errors.New("invalid tenant")

// ID identifies one tenant. It is comparable with == and usable as a map key.
//
// The zero ID names no tenant. It owns nothing and may access nothing. Only [Parse], [System] and
// [ID.UnmarshalText] create other IDs, so an ID that is not zero is always valid.
type ID struct{ name string }

// System returns the system tenant. It owns the namespaces without a tenant label. Its callers may
// access the objects of every tenant.
func System() ID { return ID{name: systemName} }

const systemName = "system"

// Parse returns the tenant with the name s. A name is a non-empty Kubernetes label value. Its case
// is preserved.
//
// The names "all" and "tenant" are reserved in any case, and "system" in any case except lower
// case. The error wraps [ErrInvalid] and never contains s, which an attacker may have chosen.
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

// isReserved reports whether no tenant may have the name s, which is a label value and therefore
// ASCII. The length is compared first, because it excludes most names.
func isReserved(s string) bool {
	switch len(s) {
	case len("all"):
		return strings.EqualFold(s, "all")
	case len("tenant"): // as long as system
		return strings.EqualFold(s, "tenant") || strings.EqualFold(s, systemName)
	}
	return false
}

// isLabelValue implements validation.IsValidLabelValue of k8s.io/apimachinery for a non-empty value
// of permitted length. It uses no regular expression, because the boundary parses a tenant for each
// decision. A fuzz target compares the two functions.
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

// String returns the name, or "" for the zero ID. Parse(id.String()) returns id if id is not zero.
func (id ID) String() string { return id.name }

// Group returns the group that contains all callers of the tenant, "tenant:<id>", or "" for the
// zero ID.
func (id ID) Group() string {
	if id.IsZero() {
		return ""
	}
	return GroupPrefix + id.name
}

// MarshalText implements [encoding.TextMarshaler]. The text of the zero ID is empty.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.name), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts the same texts as [Parse], so it
// rejects the empty text.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
