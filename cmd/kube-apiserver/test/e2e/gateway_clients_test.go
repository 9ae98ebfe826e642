// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// TestGatewayClients runs clients of other projects through the gateway, and on upstream's server
// with the same rights.
func TestGatewayClients(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(*testing.T, *both){
		"kubectl":                 dayWithKubectl,
		"helm":                    releaseByHelm,
		"informers":               informAll,
		"an operator":             operateBoth,
		"every resource and verb": sweepAll,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run(t, startBeside(t, "gateway", "--gateway"))
		})
	}
}
