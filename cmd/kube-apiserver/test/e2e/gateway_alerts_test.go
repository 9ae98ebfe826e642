// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

// gatewayAlertCases returns the test cases for the gateway's alerts.
func gatewayAlertCases() []alertCase {
	const current, requests, events = "kubetenant_gateway_cluster_current", "kubetenant_gateway_requests_total",
		"kubetenant_gateway_audit_events_total"
	const records = "kubetenant_audit_stream_records_total"
	const info, loaded = "kubetenant_config_info", "kubetenant_config_last_reload_successful"
	const no, yes, grows = "0+0x10000", "1+0x10000", "0+60x10000"
	const a, b = `{pod="a",cluster="eu1"}`, `{pod="b",cluster="eu1"}`
	return []alertCase{
		{
			"KubetenantGatewayDown",
			"5m",
			map[string]string{"kubetenant_webhook_state_current": yes},
			map[string]string{current + a: no},
		},
		{
			"KubetenantGatewayClusterDown",
			"5m",
			map[string]string{current + a: no, current + b: no, current + `{pod="a",cluster="us1"}`: yes},
			map[string]string{current + a: no, current + b: yes},
		},
		{
			"KubetenantGatewayClusterStale",
			"10m",
			map[string]string{current + a: no, current + b: yes},
			map[string]string{current + a: yes, current + b: yes},
		},
		{
			"KubetenantGatewayErrors",
			"30m",
			map[string]string{requests + `{cluster="eu1",code="503"}`: grows},
			map[string]string{requests + `{cluster="eu1",code="403"}`: grows, requests + `{cluster="eu1",code="503"}`: yes},
		},
		{
			"KubetenantGatewayConfigurationRefused",
			"5m",
			map[string]string{current + a: yes, loaded + `{pod="a",path="x"}`: no},
			map[string]string{current + a: yes, loaded + `{pod="a",path="x"}`: yes, loaded + `{pod="webhook",path="x"}`: no},
		},
		{
			"KubetenantGatewayReplicasDiffer",
			"10m",
			map[string]string{
				current + a: yes,
				current + b: yes,
				info + `{pod="a",hash="1",mode="Enforce"}`: yes,
				info + `{pod="b",hash="2",mode="Enforce"}`: yes,
			},
			map[string]string{
				current + a: yes,
				current + b: yes,
				info + `{pod="a",hash="1",mode="Enforce"}`:       yes,
				info + `{pod="b",hash="1",mode="Enforce"}`:       yes,
				info + `{pod="webhook",hash="2",mode="Enforce"}`: yes,
			},
		},
		{
			"KubetenantGatewayAuditFails",
			"10m",
			map[string]string{events + `{result="failed"}`: grows},
			map[string]string{events + `{result="written"}`: grows, events + `{result="omitted"}`: grows},
		},
		{
			"KubetenantGatewayAuditStreamsFail",
			"10m",
			map[string]string{current + a: yes, records + `{pod="a",stream="tenant",result="failed"}`: grows},
			map[string]string{
				current + a: yes,
				records + `{pod="a",stream="tenant",result="written"}`:      grows,
				records + `{pod="a",stream="system",result="limited"}`:      grows,
				records + `{pod="webhook",stream="tenant",result="failed"}`: grows,
			},
		},
		{
			"KubetenantGatewayAuditOmits",
			"30m",
			map[string]string{events + `{result="omitted"}`: grows},
			map[string]string{events + `{result="written"}`: grows},
		},
		{
			"KubetenantGatewayUsageFails",
			"2h",
			map[string]string{current + a: yes, `kubetenant_usage_records_total{pod="a",result="failed"}`: grows},
			map[string]string{
				current + a: yes,
				`kubetenant_usage_records_total{pod="a",result="sent"}`:          grows,
				`kubetenant_usage_errors_total{pod="webhook",operation="spool"}`: grows,
			},
		},
	}
}
