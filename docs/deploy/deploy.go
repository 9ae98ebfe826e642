// Package deploy holds what an operator installs: a Helm chart, whose templates are also what
// "kubetenant-webhook generate" renders, and a Grafana dashboard.
package deploy

import "embed"

// Files are chart and dashboard.json.
//
//go:embed all:chart dashboard.json
var Files embed.FS
