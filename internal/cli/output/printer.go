// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// goTemplates returns kubectl's names for the Go template format. go-template-file and
// templatefile read the template from a file.
func goTemplates() []string {
	return []string{"go-template", "go-template-file", "template", "templatefile"}
}

// jsonPaths returns kubectl's names for the JSONPath format. jsonpath-file reads the template from
// a file.
func jsonPaths() []string { return []string{"jsonpath", "jsonpath-as-json", "jsonpath-file"} }

// newPrinter returns kubectl's printer for -o and --template. It is used instead of PrintFlags of
// genericclioptions, because PrintFlags imports kustomize.
func (f *Format) newPrinter() (printers.ResourcePrinter, error) {
	switch format := strings.ToLower(f.output); {
	case format == "json":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.JSONPrinter{}}, nil
	case format == "yaml":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}, nil
	case format == "kyaml":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.KYAMLPrinter{}}, nil
	case format == formatName && f.hasNames:
		return &printers.NamePrinter{ShortOutput: true}, nil
	}
	format := cmp.Or(f.output, "go-template")
	text := f.template
	if text == "" {
		format, text, _ = strings.Cut(format, "=")
	}
	switch {
	case !slices.Contains(goTemplates(), format) && !slices.Contains(jsonPaths(), format):
		return nil, fmt.Errorf("-o %s: must be one of %s", f.output, strings.Join(f.allowed(), ", "))
	case text == "":
		return nil, fmt.Errorf("-o %s: the template is missing: set -o %[1]s=TEMPLATE", format)
	case strings.HasSuffix(format, "file"):
		content, err := os.ReadFile(text) // #nosec G304 -- the caller names the file
		if err != nil {
			return nil, fmt.Errorf("-o %s: %w", format, err)
		}
		text = string(content)
	}
	if slices.Contains(goTemplates(), format) {
		p, err := printers.NewGoTemplatePrinter([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("-o %s: %w", format, err)
		}
		p.AllowMissingKeys(f.missing)
		return p, nil
	}
	p, err := printers.NewJSONPathPrinter(text)
	if err != nil {
		return nil, fmt.Errorf("-o %s: %w", format, err)
	}
	p.AllowMissingKeys(f.missing)
	p.EnableJSONOutput(format == "jsonpath-as-json")
	return p, nil
}
