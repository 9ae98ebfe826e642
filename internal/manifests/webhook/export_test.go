package webhook

// DenyingPolicies is denyingPolicies for tests.
func DenyingPolicies() []string { return denyingPolicies() }
