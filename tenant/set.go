// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import "fmt"

// AnyName stands in a list of tenants for every tenant but the system tenant.
const AnyName = "*"

// Set is a set of tenants that a source may mint: names, or [AnyName] for any but system.
// The zero Set is empty.
type Set struct {
	any bool
	ids map[ID]struct{}
}

// ParseSet returns the set of the listed names. The error wraps [ErrInvalid] and names the index.
func ParseSet(names []string) (Set, error) {
	s := Set{ids: make(map[ID]struct{}, len(names))}
	for i, name := range names {
		if name == AnyName {
			s.any = true
			continue
		}
		id, err := Parse(name)
		if err != nil {
			return Set{}, fmt.Errorf("tenant %d: %w", i, err)
		}
		s.ids[id] = struct{}{}
	}
	return s, nil
}

// Has reports whether id is in the set; never for the zero ID. [AnyName] does not cover the
// system tenant: that must be named.
func (s Set) Has(id ID) bool {
	if id.IsZero() {
		return false
	}
	_, named := s.ids[id]
	return named || s.any && !id.IsSystem()
}
