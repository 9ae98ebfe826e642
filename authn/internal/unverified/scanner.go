// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package unverified

import (
	"errors"
	"slices"
)

// scanner walks over a JSON object that is known to be valid, looks for duplicate members, and
// hands on the members of the outermost object. It is a quarter of the work of a decoder, and every
// token that is not remembered goes through it.
type scanner struct {
	data  []byte
	at    int
	claim func(key string, raw []byte)
}

// object walks over the object that begins here. A duplicate is told at the end, so that the issuer
// is known whatever stands before it.
func (s *scanner) object(depth int) error {
	if depth > maxDepth {
		return ErrMalformed
	}
	var seen names
	var problem error
	s.at++
	for s.space() != '}' {
		key := text(s.literal())
		if seen.has(key) || depth == 0 && isVariant(key) {
			problem = ErrDuplicate
		}
		s.space() // before the colon
		s.at++
		s.space()
		begin := s.at
		switch err := s.value(depth + 1); {
		case errors.Is(err, ErrDuplicate):
			problem = err
		case err != nil: // and where it stands is not known
			return err
		}
		if depth == 0 {
			s.claim(key, s.data[begin:s.at])
		}
		if s.space() == ',' {
			s.at++
		}
	}
	s.at++
	return problem
}

func (s *scanner) value(depth int) error {
	switch s.space() {
	case '{':
		return s.object(depth)
	case '[':
		return s.array(depth)
	case '"':
		s.literal()
	default:
		for s.at < len(s.data) && !slices.Contains([]byte(",]} \t\r\n"), s.data[s.at]) {
			s.at++
		}
	}
	return nil
}

func (s *scanner) array(depth int) error {
	if depth > maxDepth {
		return ErrMalformed
	}
	var problem error
	s.at++
	for s.space() != ']' {
		switch err := s.value(depth + 1); {
		case errors.Is(err, ErrDuplicate):
			problem = err
		case err != nil:
			return err
		}
		if s.space() == ',' {
			s.at++
		}
	}
	s.at++
	return problem
}

// space passes over white space and returns what follows.
func (s *scanner) space() byte {
	for {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
}

// literal passes over a string and returns it with its quotes.
func (s *scanner) literal() []byte {
	begin := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[begin:s.at]
}

// names are the names of one object's members.
type names struct {
	few  []string
	many map[string]struct{}
}

// fewNames is up to how many names are compared one by one, which is faster than hashing them; an
// object with a hundred thousand members must not be slow either.
const fewNames = 32

// has reports whether the name was seen before, and remembers it.
func (n *names) has(name string) bool {
	if n.many == nil && len(n.few) < fewNames {
		if slices.Contains(n.few, name) {
			return true
		}
		n.few = append(n.few, name)
		return false
	}
	if n.many == nil {
		n.many = make(map[string]struct{}, 2*fewNames)
		for _, seen := range n.few {
			n.many[seen] = struct{}{}
		}
	}
	_, seen := n.many[name]
	n.many[name] = struct{}{}
	return seen
}
