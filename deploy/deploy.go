// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what an operator installs: Helm charts of the webhook service and of the
// gateway, whose templates are also what "kubetenant-webhook generate" and "kubetenant-gateway
// generate" render, and a Grafana dashboard.
package deploy

import (
	"embed"
	"path"
)

// Files are chart, gateway and dashboard.json.
//
//go:embed all:chart all:gateway dashboard.json
var Files embed.FS

const definitionsFolder = "chart/crds"

// definitions is apart from Files, so that a program without the charts does not contain them.
//
//go:embed chart/crds/*.yaml
var definitions embed.FS

// Definitions returns the CustomResourceDefinitions of the kinds in tenant/v1alpha1 as YAML by
// their file names.
func Definitions() map[string]string {
	files, err := definitions.ReadDir(definitionsFolder)
	if err != nil {
		panic(err) // compiled in
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := definitions.ReadFile(path.Join(definitionsFolder, file.Name()))
		if err != nil {
			panic(err) // compiled in
		}
		all[file.Name()] = string(text)
	}
	return all
}
