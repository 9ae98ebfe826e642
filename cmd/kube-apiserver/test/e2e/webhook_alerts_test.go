// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertCase contains series with which an alert fires at the time at, and series with which it does
// not.
type alertCase struct {
	alert, at   string
	fires, rest map[string]string
}

// alertCases returns the test cases for the alerts of the webhook service. Timestamps in the series
// are seconds since the start of the test.
func alertCases() []alertCase {
	const current, info, leading = "kubetenant_webhook_state_current", "kubetenant_config_info",
		"kubetenant_controller_leading"
	const keystone = "kubetenant_keystone_sync_"
	day := func(n string) string { return n + "+0x10000" }
	return []alertCase{
		{
			"KubetenantWebhookDown",
			"5m",
			map[string]string{current + `{pod="a"}`: day("0"), current + `{pod="b"}`: day("0")},
			map[string]string{current + `{pod="a"}`: day("1"), current + `{pod="b"}`: day("0")},
		},
		{
			"KubetenantWebhookStale",
			"10m",
			map[string]string{current + `{pod="a"}`: day("1"), current + `{pod="b"}`: day("0")},
			map[string]string{current + `{pod="a"}`: day("1")},
		},
		{
			"KubetenantWebhookReplicasDiffer",
			"10m",
			map[string]string{
				info + `{pod="a",hash="1",mode="Enforce"}`: day("1"),
				info + `{pod="b",hash="1",mode="Shadow"}`:  day("1"),
			},
			map[string]string{
				info + `{pod="a",hash="1",mode="Enforce"}`: day("1"),
				info + `{pod="b",hash="1",mode="Enforce"}`: day("1"),
				// A gateway has its own configuration, so its hash may differ.
				info + `{pod="gateway",hash="2",mode="Enforce"}`:    day("1"),
				`kubetenant_gateway_cluster_current{pod="gateway"}`: day("1"),
			},
		},
		{
			"KubetenantWebhookSlow",
			"30m",
			map[string]string{
				`kubetenant_webhook_request_duration_seconds_bucket{path="/authorize",le="0.25"}`: "0+10x10000",
				`kubetenant_webhook_request_duration_seconds_bucket{path="/authorize",le="1"}`:    "0+20x10000",
				`kubetenant_webhook_request_duration_seconds_bucket{path="/authorize",le="+Inf"}`: "0+20x10000",
			},
			map[string]string{
				`kubetenant_webhook_request_duration_seconds_bucket{path="/authorize",le="0.25"}`: "0+20x10000",
				`kubetenant_webhook_request_duration_seconds_bucket{path="/authorize",le="+Inf"}`: "0+20x10000",
			},
		},
		{
			"KubetenantWebhookErrors",
			"30m",
			map[string]string{`kubetenant_webhook_requests_total{path="/authorize",code="503"}`: "0+1x10000"},
			map[string]string{
				`kubetenant_webhook_requests_total{path="/authorize",code="200"}`: "0+1x10000",
				`kubetenant_webhook_requests_total{path="/authorize",code="429"}`: "0+1x10000",
			},
		},
		{
			"KubetenantAuditStreamsFail",
			"10m",
			map[string]string{`kubetenant_audit_stream_records_total{pod="a",stream="tenant",result="dropped"}`: "0+1x10000"},
			map[string]string{
				`kubetenant_audit_stream_records_total{pod="a",stream="tenant",result="written"}`: "0+1x10000",
				`kubetenant_audit_stream_records_total{pod="b",stream="tenant",result="failed"}`:  "0+1x10000",
				`kubetenant_gateway_cluster_current{pod="b",cluster="eu1"}`:                       "1+0x10000",
			},
		},
		{
			"KubetenantWebhookThrottled",
			"1h",
			map[string]string{`kubetenant_webhook_requests_total{path="/authorize",code="429"}`: "0+1x10000"},
			map[string]string{`kubetenant_webhook_requests_total{path="/authorize",code="503"}`: "0+1x10000"},
		},
		{
			"KubetenantWebhookCertificateExpires",
			"2h",
			map[string]string{"kubetenant_webhook_certificate_expiration_timestamp_seconds": day("1200000")},
			map[string]string{"kubetenant_webhook_certificate_expiration_timestamp_seconds": day("1300000")},
		},
		{
			"KubetenantWebhookClientCertificateExpires",
			"2h",
			map[string]string{"kubetenant_webhook_client_certificate_expiration_timestamp_seconds": day("2500000")},
			map[string]string{"kubetenant_webhook_client_certificate_expiration_timestamp_seconds": day("1e15")},
		},
		{
			"KubetenantConfigurationRefused",
			"24h",
			map[string]string{`kubetenant_config_last_reload_successful{path="p"}`: "1 1 1 0x10000"},
			map[string]string{`kubetenant_config_last_reload_successful{path="p"}`: "0 0 0 1x10000"},
		},
		{
			"KubetenantControllerDown",
			"10m",
			map[string]string{
				leading + `{name="kubetenant-controller"}`:   day("0"),
				leading + `{name="kubetenant-certificates"}`: day("1"),
			},
			map[string]string{
				leading + `{name="kubetenant-controller",pod="a"}`: day("1"),
				leading + `{name="kubetenant-controller",pod="b"}`: day("0"),
			},
		},
		{
			"KubetenantDefinitionMissing", "10m",
			map[string]string{`kubetenant_definition_missing{resource="tenants"}`: day("1")},
			map[string]string{`kubetenant_definition_missing{resource="tenants"}`: day("0")},
		},
		{
			"KubetenantPublicationLate",
			"1h",
			map[string]string{`kubetenant_publication_oldest_change_timestamp_seconds{publication="ca"}`: day("1")},
			map[string]string{`kubetenant_publication_oldest_change_timestamp_seconds{publication="ca"}`: day("0")},
		},
		{
			"KubetenantKeystoneNotRead",
			"40m",
			map[string]string{ // the previous leader has never read Keystone
				keystone + `last_success_timestamp_seconds{pod="a"}`: day("1"),
				keystone + `interval_seconds{pod="a"}`:               day("300"),
				keystone + `last_success_timestamp_seconds{pod="b"}`: day("0"),
				keystone + `interval_seconds{pod="b"}`:               day("0"),
			},
			map[string]string{ // the interval is one hour, so the alert does not fire yet
				keystone + `last_success_timestamp_seconds{pod="a"}`: day("1"),
				keystone + `interval_seconds{pod="a"}`:               day("3600"),
			},
		},
		{
			"KubetenantKeystoneNotRead",
			"24h",
			map[string]string{
				keystone + "last_success_timestamp_seconds": day("1"),
				keystone + "interval_seconds":               day("3600"),
			},
			map[string]string{ // no process synchronizes with a Keystone
				keystone + "last_success_timestamp_seconds": day("0"),
				keystone + "interval_seconds":               day("0"),
			},
		},
		{
			"KubetenantKeystoneNotRead",
			"24h",
			map[string]string{ // the last read was after 10 hours
				keystone + "last_success_timestamp_seconds": "0+60x600 36000x10000",
				keystone + "interval_seconds":               day("300"),
			},
			map[string]string{ // another process has led since then
				keystone + `last_success_timestamp_seconds{pod="a"}`: "0+60x600 36000x10000",
				keystone + `last_success_timestamp_seconds{pod="b"}`: "0+60x10000",
				keystone + `interval_seconds{pod="b"}`:               day("300"),
			},
		},
		{
			"KubetenantFlowSchemasIncomplete",
			"1h",
			map[string]string{
				`kubetenant_flow_schema_problems{reason="Foreign",pod="a"}`:     day("1"),
				`kubetenant_flow_schema_problems{reason="WriteFailed",pod="a"}`: day("0"),
			},
			map[string]string{
				`kubetenant_flow_schema_problems{reason="Foreign",pod="a"}`:     day("0"),
				`kubetenant_flow_schema_problems{reason="Unavailable",pod="a"}`: "1x20 0x10000",
			},
		},
		{
			"KubetenantKeystoneNotSynced",
			"2h",
			map[string]string{
				keystone + `tenants{reason="Synced"}`:        day("7"),
				keystone + `tenants{reason="DomainChanged"}`: day("1"),
			},
			map[string]string{
				keystone + `tenants{reason="Synced"}`:         day("7"),
				keystone + `tenants{reason="DomainDisabled"}`: day("1"),
				keystone + `tenants{reason="WriteFailed"}`:    "1x30 0x10000",
			},
		},
		{
			"KubetenantSweepIncomplete",
			"2h",
			map[string]string{"kubetenant_controller_sweep_lacking": day("2")},
			map[string]string{"kubetenant_controller_sweep_lacking": day("0")},
		},
		{
			"KubetenantUsageNotWritten",
			"2h",
			map[string]string{`kubetenant_usage_errors_total{pod="a",operation="spool"}`: "0+1x10000"},
			map[string]string{`kubetenant_usage_errors_total{pod="a",operation="spool"}`: day("5")},
		},
		{
			"KubetenantUsageNotDelivered",
			"2h",
			map[string]string{
				`kubetenant_usage_records_total{pod="a",result="failed"}`: "0+1x10000",
				`kubetenant_usage_records_total{pod="a",result="sent"}`:   day("5"),
			},
			map[string]string{
				`kubetenant_usage_records_total{pod="a",result="failed"}`: "0+1x10000",
				`kubetenant_usage_records_total{pod="a",result="sent"}`:   "0+1x10000",
			},
		},
		{
			"KubetenantUsageDropped",
			"2h",
			map[string]string{`kubetenant_usage_records_total{pod="a",result="dropped"}`: "0+1x10000"},
			map[string]string{`kubetenant_usage_records_total{pod="a",result="sent"}`: "0+1x10000"},
		},
		{
			"KubetenantUsageNotMeasured",
			"12h",
			map[string]string{"kubetenant_usage_measure_errors_total": "0+1x10000"},
			map[string]string{"kubetenant_usage_measure_errors_total": day("1")},
		},
		{
			"KubetenantCertificatesDown",
			"30m",
			map[string]string{leading + `{name="kubetenant-certificates"}`: day("0")},
			map[string]string{leading + `{name="kubetenant-certificates"}`: day("1")},
		},
		{
			"KubetenantCopyAuthority",
			"2h",
			map[string]string{"kubetenant_webhook_authority_copy_due_timestamp_seconds": day("5100000")},
			map[string]string{"kubetenant_webhook_authority_copy_due_timestamp_seconds": day("1e15")},
		},
	}
}

// TestWebhookAlerts checks with Prometheus' promtool that the generated rules are valid, and that
// each alert fires only in the expected test cases.
func TestWebhookAlerts(t *testing.T) {
	t.Parallel()
	testAlerts(t, filepath.Join(generateManifests(t), "cluster", "monitoring.yaml"), alertCases())
}

// TestWebhookAlertsOfTheGateway checks the gateway's alerts as [TestWebhookAlerts] does.
func TestWebhookAlertsOfTheGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "tenancy.yaml")
	writeFile(t, config, "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"+
		"gateway: { clusters: [ { name: eu1, tenants: [acme], reader: { kubeConfigFile: r }, "+
		"impersonator: { kubeConfigFile: i } } ] }\n")
	run(t, "kubetenant-gateway", "generate", "--monitoring", "--config", config, "--image", "example.com/gateway:1",
		"--out", filepath.Join(dir, "out"))
	testAlerts(t, filepath.Join(dir, "out", "monitoring.yaml"), gatewayAlertCases())
}

// TestWebhookDashboardQueries checks that Prometheus' promtool parses every query of the dashboard.
func TestWebhookDashboardQueries(t *testing.T) {
	t.Parallel()
	data := readFile(t, "../../../../deploy/dashboard.json")
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(data), &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			rules = append(rules, map[string]string{"record": "query:" + strconv.Itoa(len(rules)), "expr": q.Expr})
		}
	}
	if len(rules) < 30 {
		t.Errorf("%d queries", len(rules))
	}
	group := map[string]any{"name": "dashboard", "rules": rules}
	text, err := json.Marshal(map[string]any{"groups": []any{group}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, path, string(text))
	run(t, "promtool", "check", "rules", path)
}

// testAlerts tests the alerts in a file. Each alert must have at least one test case.
func testAlerts(t *testing.T, path string, cases []alertCase) {
	t.Helper()
	data := readFile(t, path)
	var rule struct {
		Spec struct {
			Groups []struct {
				Name  string           `json:"name"`
				Rules []map[string]any `json:"rules"`
			} `json:"groups"`
		}
	}
	documents := strings.Split(data, "\n---\n")
	if err := yaml.Unmarshal([]byte(documents[len(documents)-1]), &rule); err != nil || len(rule.Spec.Groups) != 1 {
		t.Fatalf("%v, %v", rule, err)
	}
	dir := t.TempDir()
	write := func(name string, v any) string {
		text, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	run(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", write("rules.yaml", rule.Spec))
	var names []string
	runbook := readFile(t, "../../../../docs/runbook.md")
	for _, r := range rule.Spec.Groups[0].Rules {
		name := r["alert"].(string)
		names = append(names, name)
		checkAlert(t, name, r, runbook)
	}
	var tests []map[string]any
	untested := slices.Clone(names)
	for _, c := range cases {
		if !slices.Contains(names, c.alert) {
			t.Errorf("there is no alert %s", c.alert)
		}
		if len(c.rest) == 0 {
			t.Errorf("%s has no series that do not raise it", c.alert)
		}
		untested = slices.DeleteFunc(untested, func(name string) bool { return name == c.alert })
		for _, side := range []struct {
			series map[string]string
			count  int
		}{{c.fires, 1}, {c.rest, 0}} {
			var input []map[string]string
			for series, values := range side.series {
				input = append(input, map[string]string{"series": series, "values": values})
			}
			want := []map[string]any{}
			if side.count > 0 {
				want = append(want, map[string]any{"labels": `{alertname="` + c.alert + `"}`, "value": 1})
			}
			tests = append(tests, map[string]any{
				"name":         c.alert,
				"interval":     "1m",
				"input_series": input,
				"promql_expr_test": []map[string]any{
					{
						"expr":        `count by (alertname) (ALERTS{alertname="` + c.alert + `",alertstate="firing"})`,
						"eval_time":   c.at,
						"exp_samples": want,
					},
				},
			})
		}
	}
	if len(untested) > 0 {
		t.Errorf("alerts that no case raises: %v", untested)
	}
	run(t, "promtool", "test", "rules", write("tests.yaml",
		map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": tests}))
}

// checkAlert checks that an alert has the required labels and annotations, contains the namespace,
// and has a section in the runbook.
func checkAlert(t *testing.T, name string, rule map[string]any, runbook string) {
	t.Helper()
	labels, _ := rule["labels"].(map[string]any)
	annotations, _ := rule["annotations"].(map[string]any)
	expr, _ := rule["expr"].(string)
	for _, key := range []string{"severity", "component"} {
		if labels[key] == nil {
			t.Errorf("%s has no label %s", name, key)
		}
	}
	aggregates := regexp.MustCompile(`\b(absent|sum|max|min|count)\b( by \(namespace)?`).FindAllStringSubmatch(expr, -1)
	for _, aggregate := range aggregates {
		if labels["namespace"] == nil && aggregate[2] == "" {
			t.Errorf("%s does not contain the namespace: %s", name, expr)
		}
	}
	if summary, _ := annotations["summary"].(string); summary == "" {
		t.Errorf("%s has no summary", name)
	}
	if text, _ := annotations["description"].(string); !strings.Contains(text, "{{ $labels.namespace }}") {
		t.Errorf("%s: the description does not contain the namespace: %s", name, text)
	}
	url, _ := annotations["runbook_url"].(string)
	if !strings.HasSuffix(url, "docs/runbook.md#"+strings.ToLower(name)) ||
		!strings.Contains(runbook, "\n### "+name+"\n") {
		t.Errorf("%s: %s is not a section of the runbook", name, url)
	}
}
