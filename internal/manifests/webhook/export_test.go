// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

// DenyingPolicies is denyingPolicies for tests.
func DenyingPolicies() []string { return denyingPolicies() }
