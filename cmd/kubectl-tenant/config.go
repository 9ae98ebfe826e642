package main

import (
	"fmt"
	"os"

	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// readPolicy returns the policy file that a configuration names; nil where it names none.
func readPolicy(c *v1alpha1.Settings) (*abac.Policy, error) {
	if c.Authorization.ABAC == nil {
		return nil, nil
	}
	path := c.Authorization.ABAC.Path
	data, err := os.ReadFile(path) // #nosec G304 -- the operator's own configuration names it
	if err != nil {
		return nil, err
	}
	policy, err := abac.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policy, nil
}
