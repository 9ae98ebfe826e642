// Package deploy holds what an operator installs: Helm charts of the webhook service and of the
// gateway, whose templates are also what "kubetenant-webhook generate" and "kubetenant-gateway
// generate" render, and a Grafana dashboard.
package deploy

import "embed"

// Files are chart, gateway and dashboard.json.
//
//go:embed all:chart all:gateway dashboard.json
var Files embed.FS
