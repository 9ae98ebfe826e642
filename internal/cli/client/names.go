// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

// CheckUser refuses a user's or a group's name that no identity can have: empty, with
// control characters or with space around it. Slashes, spaces and letters of any script are
// names of some providers.
func CheckUser(flag, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s must not be empty", flag)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%s %q must not start or end with a space", flag, name)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return fmt.Errorf("%s %q contains characters that are not allowed in names", flag, name)
	}
	return nil
}

// CheckNamespace refuses what cannot be a namespace's name.
func CheckNamespace(flag, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is not a valid namespace name: use lower-case letters, digits and \"-\"", flag, name)
	}
	return nil
}

// CheckObject refuses what cannot be an object's name.
func CheckObject(flag, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is not a valid object name: use lower-case letters, digits, \"-\" and \".\"", flag, name)
	}
	return nil
}

// ParseTenant returns the tenant that a flag names.
func ParseTenant(flag, name string) (tenant.ID, error) {
	id, err := tenant.Parse(name)
	if err != nil {
		return id, fmt.Errorf("%s %q: %w", flag, name, err)
	}
	return id, nil
}
