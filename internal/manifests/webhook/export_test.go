// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

// DenyingPolicies exports denyingPolicies to tests.
func DenyingPolicies() []string { return denyingPolicies() }
