// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// TestGatewayClients checks that clients of other projects have the same outcomes through the
// gateway as on upstream's server, except for the differences by design.
func TestGatewayClients(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(*testing.T, *serverPair){
		"kubectl":                 kubectlCommands,
		"helm":                    helmRelease,
		"informers":               runInformers,
		"operator":                runOperators,
		"every resource and verb": sendAllVerbs,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run(t, startPair(t, "gateway", "--gateway"))
		})
	}
}
