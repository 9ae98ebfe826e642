// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// TestWebhookExceptions checks that docs/webhook.md has a heading for each reason to skip cases in
// this deployment mode, and that cases are skipped for each of these reasons.
func TestWebhookExceptions(t *testing.T) {
	t.Parallel()
	exceptionsAreDocumented(t, "webhook.md", &webhookMode{}, exceptCertificates, exceptPasswords, exceptServiceAccounts,
		exceptFrontProxies, exceptImpersonation, exceptRules, exceptReviews,
		exceptPrivileged, exceptDerived)
}

// TestGatewayExceptions checks docs/gateway.md as [TestWebhookExceptions] checks docs/webhook.md.
func TestGatewayExceptions(t *testing.T) {
	t.Parallel()
	exceptionsAreDocumented(t, "gateway.md", &gatewayMode{}, exceptGatewayAdmission, exceptGatewayConfigured,
		exceptGatewayAccounts, exceptGatewayProxies, exceptGatewayNoSource, exceptGatewayLists,
		exceptGatewayCluster, exceptGatewayRules)
}

// exceptionsAreDocumented checks that the reasons to skip cases in a deployment mode are the given
// headings of a page. Reasons that apply to all deployment modes are not on the page.
func exceptionsAreDocumented(t *testing.T, name string, mode scenario.Mode, headings ...string) {
	t.Helper()
	page := readFile(t, "../../../../docs/"+name)
	files, err := scenario.Files([]string{"../../../../testdata/scenarios"})
	if err != nil {
		t.Fatal(err)
	}
	skipped, all := map[string]int{}, 0
	for _, file := range files {
		scenarios, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scenarios {
			if s.Invalid != "" {
				skipped[mode.Skip(s, nil)]++
			}
			for i := range s.Cases {
				all++
				if c := &s.Cases[i]; (&compiledIn{}).Skip(s, nil) == "" && (&compiledIn{}).Skip(s, c) == "" {
					skipped[mode.Skip(s, c)]++
				}
			}
		}
	}
	t.Logf("of %d cases: %v", all, skipped)
	delete(skipped, "")
	for _, heading := range headings {
		if skipped[heading] == 0 || !strings.Contains(page, "\n### "+heading+"\n") {
			t.Errorf("%q is the reason to skip %d cases, or is not in docs/%s", heading, skipped[heading], name)
		}
		delete(skipped, heading)
	}
	if len(skipped) > 0 {
		t.Errorf("cases are skipped for reasons without a heading: %v", skipped)
	}
}
