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
		return fmt.Errorf("%s is empty: name somebody", flag)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%s %q has space around it: leave that out", flag, name)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return fmt.Errorf("%s %q has characters that no name has: leave them out", flag, name)
	}
	return nil
}

// CheckNamespace refuses what cannot be a namespace's name.
func CheckNamespace(flag, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is no namespace: names are lower-case letters, digits and -", flag, name)
	}
	return nil
}

// CheckObject refuses what cannot be an object's name.
func CheckObject(flag, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s %q is no object's name: names are of lower-case letters, digits, - and dots", flag, name)
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
