// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy contains the Helm charts of the webhook service and of the gateway, the
// CustomResourceDefinitions, and a Grafana dashboard. "kubetenant-webhook generate" and
// "kubetenant-gateway generate" render the templates of the charts too.
package deploy

import (
	"embed"
	"path"
)

// Files contains the folders chart and gateway, and the file dashboard.json.
//
//go:embed all:chart all:gateway dashboard.json
var Files embed.FS

const definitionsFolder = "chart/crds"

// definitions is separate from Files, so that a program that uses only the definitions does not
// embed the charts.
//
//go:embed chart/crds/*.yaml
var definitions embed.FS

// Definitions returns the CustomResourceDefinitions of the kinds in tenant/v1alpha1 as YAML,
// keyed by file name.
func Definitions() map[string]string {
	files, err := definitions.ReadDir(definitionsFolder)
	if err != nil {
		panic(err) // the files are embedded
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := definitions.ReadFile(path.Join(definitionsFolder, file.Name()))
		if err != nil {
			panic(err) // the files are embedded
		}
		all[file.Name()] = string(text)
	}
	return all
}
