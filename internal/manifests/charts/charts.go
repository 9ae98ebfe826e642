// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package charts renders Helm charts of this project without Helm, for commands that generate
// manifests.
package charts

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// Defaults returns the default values of a chart.
func Defaults(files fs.FS, chart string) (map[string]any, error) {
	text, err := fs.ReadFile(files, chart+"/values.yaml")
	if err != nil {
		return nil, err
	}
	v := map[string]any{}
	return v, yaml.Unmarshal(text, &v)
}

// Data returns the data for the templates of a chart. It contains the given values, the version of
// the chart's application, and the namespace of the release.
func Data(files fs.FS, chart, namespace string, values map[string]any) (map[string]any, error) {
	text, err := fs.ReadFile(files, chart+"/Chart.yaml")
	if err != nil {
		return nil, err
	}
	var chartFile struct{ AppVersion string }
	if err := yaml.Unmarshal(text, &chartFile); err != nil {
		return nil, err
	}
	return map[string]any{
		"Values":  values,
		"Release": map[string]any{"Namespace": namespace},
		"Chart":   map[string]any{"AppVersion": chartFile.AppVersion},
	}, nil
}

// Render renders the templates of a folder, except helpers (.tpl) and NOTES.txt, and calls each
// with every result. If wanted is not nil, it renders only the templates for which wanted returns
// true.
func Render(files fs.FS, data any, wanted func(name string) bool, each func(name string, text []byte)) error {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path.Ext(e.Name()) == ".tpl" || e.Name() == "NOTES.txt" || wanted != nil && !wanted(e.Name()) {
			continue
		}
		text, err := RenderOne(files, e.Name(), data)
		if err != nil {
			return err
		}
		each(e.Name(), text)
	}
	return nil
}

// RenderOne renders one template. It implements the Helm functions that the charts use.
func RenderOne(files fs.FS, name string, data any) ([]byte, error) {
	t := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{
		"toJson": func(v any) (string, error) {
			var out bytes.Buffer
			encoder := json.NewEncoder(&out)
			encoder.SetEscapeHTML(false)
			err := encoder.Encode(v)
			return strings.TrimSuffix(out.String(), "\n"), err
		},
		"fromYaml": func(text string) (map[string]any, error) {
			v := map[string]any{}
			return v, yaml.Unmarshal([]byte(text), &v)
		},
		"fail":       func(message string) (string, error) { return "", errors.New(message) },
		"b64enc":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"regexMatch": regexp.MatchString,
		"sha256sum": func(s string) string {
			sum := sha256.Sum256([]byte(s))
			return hex.EncodeToString(sum[:])
		},
		"lower": strings.ToLower,
		"list":  func(items ...any) []any { return items },
		"dict": func(pairs ...any) map[string]any {
			all := map[string]any{}
			for i := 0; i < len(pairs); i += 2 {
				all[fmt.Sprint(pairs[i])] = pairs[i+1]
			}
			return all
		},
		"sub":     func(a, b int) int { return a - b },
		"replace": func(old, with, s string) string { return strings.ReplaceAll(s, old, with) },
		"required": func(message string, v any) (any, error) {
			if v == nil || v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
	})
	patterns := []string{name}
	if names, err := fs.Glob(files, "*.tpl"); err == nil {
		patterns = append(patterns, names...)
	}
	t, err := t.ParseFS(files, patterns...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.ExecuteTemplate(&out, name, data)
	return out.Bytes(), err
}
