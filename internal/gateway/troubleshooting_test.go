// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"os"
	"strings"
	"testing"
)

// TestTroubleshootingNamesRefusals: what the gateway refuses somebody by stands in
// docs/troubleshooting.md, in the words that are answered.
func TestTroubleshootingNamesRefusals(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []error{
		errCluster, errPage, errAdmission, errSomebody, errTenantName, errUnmapped, errReserved, errForm, errExtra,
		errAccountGroup, errOwn,
		errRedirect, errRefusesUs, errImpersonate, errUnreachable, errTooSlow, errStopping, errReplaced,
	} {
		words := refusal.Error()
		if len(words) > 40 { // how it goes on may be left out
			words = words[:40]
		}
		if !strings.Contains(string(text), words) {
			t.Errorf("it does not say %q", refusal)
		}
	}
}
