// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestMetricsExist checks that each metric in the dashboard, the alerts and some pages is in
// the metrics reference, and that each reason in their queries exists. It also checks that the
// dashboard or an alert uses each metric. test/reference checks that the reference contains the
// metrics of every process.
func TestMetricsExist(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` ").FindAllStringSubmatch(string(reference), -1) {
		known = append(known, row[1])
	}
	codes := []string{""}
	for _, r := range authz.Reasons() {
		codes = append(codes, r.Code())
	}
	// The condition KeystoneSynced has these reasons.
	codes = append(codes, v1alpha1.ReasonSynced, v1alpha1.ReasonDomainDisabled)
	named := regexp.MustCompile(`kubetenant_[a-z_]+`)
	// Each alternative of a regular expression must be a code.
	reasons := regexp.MustCompile(`[{,]\s*reason\s*[=!]~?\s*\\?"([^"\\]*)`)
	check := func(where, text string) {
		for _, matcher := range reasons.FindAllStringSubmatch(text, -1) {
			for code := range strings.SplitSeq(matcher[1], "|") {
				if !slices.Contains(codes, code) {
					t.Errorf("%s matches the reason %q, which is not a code", where, code)
				}
			}
		}
		for _, name := range named.FindAllString(text, -1) {
			if base := strings.TrimSuffix(name, "_bucket"); !slices.Contains(known, base) {
				t.Errorf("%s names %s, which is not one of %v", where, name, known)
			}
		}
	}
	data, err := deploy.Files.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			queries++
			if !named.MatchString(q.Expr) {
				t.Errorf("dashboard, %s: %q names no metric", p.Title, q.Expr)
			}
			check("dashboard, "+p.Title, q.Expr)
		}
	}
	if queries < 10 {
		t.Errorf("%d queries", queries)
	}
	alerts, err := deploy.Files.ReadFile("chart/templates/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := deploy.Files.ReadFile("gateway/templates/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts = append(alerts, gateway...)
	check("alerts", string(alerts))
	for _, name := range known {
		switch name {
		case "kubetenant_config_reloads_total", "kubetenant_config_last_reload_success_timestamp_seconds",
			"kubetenant_tenants":
			continue // only used in manual queries
		}
		if !strings.Contains(string(data)+string(alerts), name) {
			t.Errorf("%s is neither in the dashboard nor in an alert", name)
		}
	}
	for _, page := range []string{"webhook.md", "runbook.md", "reasons.md", "upgrade.md", "threat-model.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		check("docs/"+page, string(text))
	}
}
