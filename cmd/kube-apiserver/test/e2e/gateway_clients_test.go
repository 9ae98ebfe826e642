// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// TestGatewayClients runs clients of other projects through the gateway, and on upstream's server
// with the same rights.
func TestGatewayClients(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(*testing.T, *serverPair){
		"kubectl":                 kubectlCommands,
		"helm":                    helmRelease,
		"informers":               runInformers,
		"an operator":             runOperators,
		"every resource and verb": sendAllVerbs,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run(t, startPairWith(t, "gateway", "--gateway"))
		})
	}
}
