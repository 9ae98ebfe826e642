// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"os"
	"strings"
	"testing"
)

// TestTroubleshootingContainsErrors checks that docs/troubleshooting.md contains the beginning of
// the message of each error that callers receive.
func TestTroubleshootingContainsErrors(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []error{
		errCluster, errPage, errAdmission, errNoTenant, errTenantName, errUnmapped, errReserved, errForm, errExtra,
		errAccountGroup, errGatewayName,
		errRedirect, errGatewayUnauthorized, errImpersonate, errUnreachable, errClusterTimeout, errStopping, errConfigChanged,
	} {
		words := refusal.Error()
		if len(words) > 40 { // the page may omit the rest
			words = words[:40]
		}
		if !strings.Contains(string(text), words) {
			t.Errorf("the page does not contain %q", refusal)
		}
	}
}
