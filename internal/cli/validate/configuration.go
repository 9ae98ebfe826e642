// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kyaml "sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// configuration returns the findings for a TenancyConfiguration and the files that it refers to.
func (r *run) configuration(f *file, docs []document) ([]Finding, error) {
	d := &docs[0]
	config, err := configv1alpha1.Decode(f.data)
	if err != nil {
		return decodingErrors[configv1alpha1.TenancyConfiguration](docs, err), nil
	}
	config.ResolvePaths(filepath.Dir(f.path))
	var found []Finding
	for _, text := range config.Warnings() {
		w := textError(d, text)
		w.Severity = Warning
		found = append(found, w)
	}
	named, err := namedFiles(r.ctx, config)
	if err != nil {
		return nil, err
	}
	found = append(found, named...)
	if hasError(named) {
		return found, nil
	}
	path := f.path
	if f.stdin {
		var remove func()
		if path, remove, err = writeConfig(config); err != nil {
			return nil, err
		}
		defer remove()
	}
	if err := stack.Check(r.ctx, path); err != nil {
		found = append(found, serverErrors(d, path, err)...)
	}
	return found, nil
}

// writeConfig writes a configuration with absolute paths to a temporary file, because the server
// reads its configuration from a file.
func writeConfig(config *configv1alpha1.TenancyConfiguration) (path string, remove func(), err error) {
	for _, p := range config.Paths() {
		if *p, err = filepath.Abs(*p); err != nil {
			return "", nil, err
		}
	}
	text, err := kyaml.Marshal(config)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "validate-")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "tenancy.yaml")
	remove = func() { _ = os.RemoveAll(dir) }
	if err := os.WriteFile(path, text, 0o600); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// namedFiles returns the findings for the files that a configuration refers to. It skips a file
// that cannot be read, because [stack.Check] reports it.
func namedFiles(ctx context.Context, config *configv1alpha1.TenancyConfiguration) ([]Finding, error) {
	var all []Finding
	add := func(path string, found []Finding) { all = append(all, withPosition(path, found)...) }
	for _, s := range config.Authentication.Sources {
		kind, file := Tokens, s.TokenFile
		if s.BasicAuthFile != nil {
			kind, file = Passwords, s.BasicAuthFile
		}
		if file == nil {
			continue
		}
		data, err := os.ReadFile(file.Path) // the operator's own configuration contains the path
		if err != nil {
			continue
		}
		found, err := credentials(ctx, data, kind, file)
		if err != nil {
			return nil, err
		}
		add(file.Path, append(found, readable(file.Path)...))
	}
	if config.Authorization.ABAC != nil {
		if data, err := os.ReadFile(config.Authorization.ABAC.Path); err == nil {
			add(config.Authorization.ABAC.Path, policy(data))
		}
	}
	if c := config.Authentication.Revocation; c != nil {
		if data, err := os.ReadFile(c.Path); err == nil {
			add(c.Path, revocation(data))
		}
	}
	return all, nil
}

// revocation returns the findings for a Revocation.
func revocation(data []byte) []Finding {
	docs, syntax := split(data)
	if syntax != nil {
		return []Finding{*syntax}
	}
	if _, err := configv1alpha1.DecodeRevocation(data); err != nil {
		return decodingErrors[configv1alpha1.Revocation](docs, err)
	}
	return nil
}

// scenarios returns the findings for Scenario documents.
func (r *run) scenarios(_ *file, docs []document) ([]Finding, error) {
	var found []Finding
	for i := range docs {
		twice := docs[i].duplicates()
		if found = append(found, twice...); len(twice) > 0 {
			continue
		}
		text, err := docs[i].json()
		if err == nil {
			_, err = scenario.DecodeScenarios(text)
		}
		if err != nil {
			found = append(found, decodingErrors[scenario.Scenario](docs[i:i+1], err)...)
		}
	}
	return found, nil
}

// decodingErrors converts an error from the server's decoder to findings. It uses the documents
// and the type T to find the position of the error and to suggest a fix.
func decodingErrors[T any](docs []document, err error) []Finding {
	if len(docs) == 0 {
		return []Finding{{Line: 1, Reason: err.Error(), Fix: "write one document"}}
	}
	d := &docs[0]
	if len(docs) > 1 {
		second := &docs[1]
		return []Finding{second.at("", err.Error(), "write each document into a file of its own")}
	}
	if d.node.Kind != yaml.MappingNode {
		return []Finding{d.at("", "must be a map", "write apiVersion, kind and the fields of the kind")}
	}
	if twice := d.duplicates(); len(twice) > 0 {
		return twice
	}
	var unmatched []mismatch
	if value, err := d.value(); err == nil {
		unmatched = mismatches(reflect.TypeFor[T](), value, "")
	}
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		var found []Finding
		for i := range unmatched {
			if unmatched[i].known == nil {
				found = append(found, unmatched[i].finding(d))
			}
		}
		if len(found) > 0 {
			return found
		}
		return []Finding{textError(d, strings.TrimPrefix(err.Error(), "document 1: "))}
	}
	found := fieldErrors(d, all)
	for i := range found {
		if found[i].Fix == "" {
			found[i].Fix = "write a value that docs/configuration.md allows for this field"
		}
		for j := range unmatched {
			if m := unknown.FindStringSubmatch(found[i].Reason); m != nil && m[1] == unmatched[j].field &&
				unmatched[j].known != nil {
				found[i] = unmatched[j].finding(d)
			}
		}
	}
	return found
}

// serverErrors returns the findings for an error that would prevent a server from starting.
func serverErrors(d *document, path string, err error) []Finding {
	var all utilerrors.Aggregate
	if errors.As(err, &all) {
		return fieldErrors(d, all)
	}
	return []Finding{textError(d, strings.TrimPrefix(err.Error(), path+": "))}
}

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): `)
	yamlAnchor = regexp.MustCompile(`unknown anchor '.*' referenced`)
	// unknown matches the strict decoder's error about an unknown field.
	unknown = regexp.MustCompile(`^unknown field "([^"]+)"`)
	// fieldPath matches the path at the beginning of an error.
	fieldPath = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9.\[\]_/"-]*): `)
	sourceOf  = regexp.MustCompile(`^source "([^"]+)": `)
)

// syntaxError returns the finding for an error from the YAML parser. It removes the name of an
// anchor, because the name may be part of a secret if the file is not YAML.
func syntaxError(err error) *Finding {
	f := &Finding{
		Line:   1,
		Reason: yamlAnchor.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "unknown anchor"),
		Fix:    "check the indentation, and quote strings with : or # in them",
	}
	if m := yamlLine.FindStringSubmatch(f.Reason); m != nil {
		f.Line, _ = strconv.Atoi(m[1])
		f.Reason = strings.TrimPrefix(f.Reason, m[0])
	}
	return f
}

// textError returns the finding for the text of an error. If the text begins with a source or a
// field, the finding has the position of that source or field.
func textError(d *document, text string) Finding {
	if m := sourceOf.FindStringSubmatch(text); m != nil {
		if path := sourceNamed(d, m[1]); path != "" {
			return d.at(path, text, sourceFix(text))
		}
	}
	if m := unknown.FindStringSubmatch(text); m != nil {
		return d.at(m[1], text, "")
	}
	if m := fieldPath.FindStringSubmatch(text); m != nil && m[1] != "json" {
		return d.at(m[1], strings.TrimPrefix(text, m[0]), "")
	}
	if strings.HasPrefix(text, "must have apiVersion") {
		return d.at("apiVersion", text, strings.Replace(text, "must have", "write", 1))
	}
	return d.at("", text, "")
}

// sourceFix returns the fix for an error about a source, or "".
func sourceFix(text string) string {
	if strings.Contains(text, "no such file or directory") {
		return "create the file, or write the path of another one"
	}
	return ""
}

// sourceNamed returns the path of the source with the given name, or "".
func sourceNamed(d *document, name string) string {
	node := d.node
	for _, key := range []string{"authentication", "sources"} {
		if node = valueOf(node, key); node == nil {
			return ""
		}
	}
	for i, s := range node.Content {
		if v := valueOf(s, "name"); v != nil && v.Value == name {
			return fmt.Sprintf("authentication.sources[%d]", i)
		}
	}
	return ""
}

// fieldFix returns the fix for a field error, or "".
func fieldFix(err *field.Error) string {
	name := err.Field[strings.LastIndexByte(err.Field, '.')+1:]
	switch err.Type {
	case field.ErrorTypeRequired:
		if !strings.HasSuffix(name, "]") {
			return "add " + name
		}
		if wanted, ok := strings.CutPrefix(err.Detail, "must have "); ok { // the error concerns an entry of a list
			return "add " + wanted
		}
		return "set a value"
	case field.ErrorTypeDuplicate:
		return "write it once"
	case field.ErrorTypeNotSupported:
		return "write one of the supported values"
	case field.ErrorTypeForbidden:
		return "remove it"
	case field.ErrorTypeInvalid:
		if wanted, ok := strings.CutPrefix(err.Detail, "must be "); ok {
			if strings.HasPrefix(wanted, "between ") {
				return "write a value " + wanted
			}
			return "write " + wanted
		}
	}
	return ""
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
