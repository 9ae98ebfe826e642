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

// CheckUser returns an error if the name of a user or group is empty, contains control
// characters or invalid UTF-8, or begins or ends with white space. It allows slashes, spaces in
// the middle and letters of any script, because some identity providers use them.
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

// CheckNamespace returns an error if a namespace name is invalid.
func CheckNamespace(flag, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is not a valid namespace name: use lower-case letters, digits and \"-\"", flag, name)
	}
	return nil
}

// CheckObject returns an error if an object name is invalid.
func CheckObject(flag, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is not a valid object name: use lower-case letters, digits, \"-\" and \".\"", flag, name)
	}
	return nil
}

// ParseTenant parses a tenant ID. The error contains the name of the flag.
func ParseTenant(flag, name string) (tenant.ID, error) {
	id, err := tenant.Parse(name)
	if err != nil {
		return id, fmt.Errorf("%s %q: %w", flag, name, err)
	}
	return id, nil
}
