// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import "fmt"

// AnyName in a list of tenants means every tenant except the system tenant.
const AnyName = "*"

// Set is a set of the tenants that a source may assert. [AnyName] adds all tenants except the
// system tenant. The zero Set is empty.
type Set struct {
	any bool
	ids map[ID]struct{}
}

// ParseSet returns the set of the listed names. The error wraps [ErrInvalid] and contains the index
// of the invalid name.
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

// Has reports whether id is in the set. It returns false for the zero ID. [AnyName] does not
// include the system tenant, which must be listed by name.
func (s Set) Has(id ID) bool {
	if id.IsZero() {
		return false
	}
	_, named := s.ids[id]
	return named || s.any && !id.IsSystem()
}
