// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package validate finds problems in files for kubetenant. For each problem, it reports the
// position, the reason and a fix. It uses the code of the server.
package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// Options contains values that are not in the files.
type Options struct {
	// Kind is one of [Kinds]. If empty, the kind of each file is detected.
	Kind string
	// Namespace is the namespace of the webhook service or the gateway in files that "generate"
	// wrote.
	Namespace string
	// Stdin is the input for the file "-".
	Stdin io.Reader
}

// Report is the result of a validation.
type Report struct {
	Findings []Finding
	// Valid contains the names of the files and clusters without an error.
	Valid []string
	// Unread contains errors about files, and about parts of a cluster, that could not be checked.
	Unread []error
}

// add adds the findings for a file.
func (r *Report) add(name string, found []Finding) {
	r.Findings = append(r.Findings, found...)
	if !hasError(found) {
		r.Valid = append(r.Valid, name)
	}
}

// Failed reports whether any finding is an error.
func (r *Report) Failed() bool { return hasError(r.Findings) }

// run is one validation of a set of files.
type run struct {
	ctx context.Context
	Options
	// config is the first file with a valid TenancyConfiguration, or nil.
	config *file
	// systemNamespaces contains the system namespaces of config, or the default system namespaces.
	systemNamespaces []string
}

// Files checks files, and directories that "generate" wrote. It also returns the first valid
// TenancyConfiguration among the files, or nil.
func Files(ctx context.Context, paths []string, o Options) (*Report, *configv1alpha1.TenancyConfiguration) {
	r := &run{ctx: ctx, Options: o, systemNamespaces: defaultSystemNamespaces()}
	report := &Report{}
	var config *configv1alpha1.TenancyConfiguration
	files := make([]*file, len(paths))
	for i, path := range paths {
		f, err := open(path, o.Stdin)
		if err == nil {
			err = f.detect(o.Kind)
		}
		if err != nil {
			report.Unread = append(report.Unread, err)
			continue
		}
		files[i] = f
		if config == nil && f.kind != nil && f.kind.name == Config {
			if config, err = configv1alpha1.Decode(f.data); err == nil {
				config.ResolvePaths(filepath.Dir(f.path))
				r.config, r.systemNamespaces = f, config.Authorization.SystemNamespaces
			}
		}
	}
	for _, f := range files {
		if f == nil {
			continue
		}
		found, err := r.check(f)
		if err != nil {
			report.Unread = append(report.Unread, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		report.add(f.name, withPosition(f.name, found))
	}
	return report, config
}

// check returns the findings for a file.
func (r *run) check(f *file) ([]Finding, error) {
	switch {
	case f.directory:
		return r.installedSet(f)
	case f.kind != nil:
		if found := f.wrongVersions(); len(found) > 0 {
			return found, nil
		}
		return f.kind.check(r, f, f.docs)
	}
	if f.syntax != nil {
		return []Finding{*f.syntax}, nil
	}
	var found []Finding
	rows := kinds()
	for i := range rows {
		if docs := f.documentsOf(&rows[i]); len(docs) > 0 {
			some, err := rows[i].check(r, f, docs)
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
	}
	return append(found, f.unknownDocuments()...), nil
}

// wrongVersions returns a finding for each document with the wrong API version, if the kind of the
// file belongs to kubetenant.
func (f *file) wrongVersions() []Finding {
	var found []Finding
	for i := range f.docs {
		if problem := wrongVersion(&f.docs[i]); problem != nil && f.kind.objects[tenant.Domain] != nil {
			found = append(found, *problem)
		}
	}
	return found
}

// maxBytes is the maximum size of a file. The server has the same limit.
const maxBytes = 16 << 20

// file is a file or a directory to check.
type file struct {
	name  string // in findings
	path  string
	stdin bool
	// directory specifies that the path is a directory.
	directory bool
	data      []byte
	// kind is the kind of the whole file. It is nil if each document has its own kind.
	kind   *kind
	docs   []document
	syntax *Finding
}

// open reads a file, or standard input for "-".
func open(path string, stdin io.Reader) (*file, error) {
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, maxBytes+1))
		if err == nil && len(data) > maxBytes {
			err = errLarge
		}
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return &file{
			name:  "stdin",
			path:  "stdin",
			stdin: true,
			data:  data,
		}, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return &file{name: path, path: path, directory: true}, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", path)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s: %w", path, errLarge)
	}
	data, err := os.ReadFile(path) // #nosec G304 -- the caller names it
	return &file{name: path, path: path, data: data}, err
}

var errLarge = errors.New("is larger than 16 MiB, which no server reads")

// documentsOf returns the documents that a file of a kind may contain.
func (f *file) documentsOf(k *kind) []document {
	return slices.DeleteFunc(slices.Clone(f.docs), func(d document) bool { return !k.includes(&d) })
}

// unknownDocuments returns a finding for each misplaced document and a warning for each document
// of an unknown kind. It does not warn of unknown kinds in a List, because a List exported from a
// cluster may contain any objects.
func (f *file) unknownDocuments() []Finding {
	var found []Finding
	for i := range f.docs {
		d := &f.docs[i]
		if problem := misplaced(d); problem != nil {
			found = append(found, *problem)
			continue
		}
		if d.prefix != "" || isKnownKind(d) {
			continue
		}
		w := d.at("", "this document is not checked: "+described(d), "")
		w.Severity = Warning
		found = append(found, w)
	}
	return found
}

// described describes the kind of a document.
func described(d *document) string {
	switch {
	case d.kind == "":
		return "a document without a kind"
	case d.apiVersion == "":
		return "a " + quotedUnlessWord(d.kind) + " without an apiVersion"
	}
	return "a " + quotedUnlessWord(d.apiVersion) + " " + quotedUnlessWord(d.kind)
}

// quotedUnlessWord quotes a text unless it may be the name of a kind or a version. It shortens a
// long text, because the file may have unexpected content.
func quotedUnlessWord(text string) string {
	const longest = 63
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./-") != "" {
		return fmt.Sprintf("%q", text)
	}
	return text
}
