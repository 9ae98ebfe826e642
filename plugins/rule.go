// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"slices"
	"strings"
)

// Policy specifies how a field of a tenant's objects is checked. The zero value is [Forbid].
type Policy int

const (
	// Forbid denies every value.
	Forbid Policy = iota
	// AllowListed denies values that are not in [Rule.Allowed].
	AllowListed
	// Ignore allows every value.
	Ignore
)

// Rule is the policy of one field.
type Rule struct {
	Policy Policy
	// Allowed contains the values that [AllowListed] allows. Each field defines the format of its
	// entries.
	Allowed []string
}

// Rules are the rules for the objects of a tenant, keyed by the name of the field in the
// configuration. A field without a rule is forbidden.
type Rules map[string]Rule

// MatchesDomain reports whether an entry of a list has the form "domain/*" and key has exactly that
// domain.
func MatchesDomain(entry, key string) bool {
	domain, ok := strings.CutSuffix(entry, "/*")
	keyDomain, _, hasDomain := strings.Cut(key, "/")
	return ok && hasDomain && domain != "" && domain == keyDomain
}

// Allows reports whether the rule allows a value. matches reports whether the value matches an
// entry of the list.
func (r Rule) Allows(matches func(entry string) bool) bool {
	return r.Policy == Ignore || r.Policy == AllowListed && slices.ContainsFunc(r.Allowed, matches)
}
