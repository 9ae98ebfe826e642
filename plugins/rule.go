// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"slices"
	"strings"
)

// Policy says what becomes of a field of tenants' objects. The zero value forbids it.
type Policy int

const (
	// Forbid refuses every value.
	Forbid Policy = iota
	// AllowListed refuses what is not on the list.
	AllowListed
	// Ignore refuses nothing.
	Ignore
)

// Rule is the policy of one field.
type Rule struct {
	Policy Policy
	// Allowed is the list; what an entry means is its field's.
	Allowed []string
}

// Rules are the policies of a tenant, by the fields' names in a configuration. A field that
// is not there is forbidden.
type Rules map[string]Rule

// IsInFamily reports whether an entry of a list is "domain/*" and a key has exactly that domain.
func IsInFamily(entry, key string) bool {
	domain, is := strings.CutSuffix(entry, "/*")
	of, _, hasDomain := strings.Cut(key, "/")
	return is && hasDomain && domain != "" && domain == of
}

// Allows reports whether the rule lets pass what matches an entry of its list.
func (r Rule) Allows(matches func(entry string) bool) bool {
	return r.Policy == Ignore || r.Policy == AllowListed && slices.ContainsFunc(r.Allowed, matches)
}
