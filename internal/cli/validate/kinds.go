// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Names of the kinds of files.
const (
	Config      = "config"
	Revocation  = "revocation"
	Scenario    = "scenario"
	Objects     = "tenant"
	Certificate = "certificate-request"
	ABAC        = "abac"
	Export      = "export"
	Server      = "kube-apiserver"
	Passwords   = "password"
	Tokens      = "token"
)

// kind describes how one kind of file is detected and checked.
type kind struct {
	name string
	// objects contains the kinds of the documents in a file of this kind, keyed by API group.
	objects map[string][]string
	// isWholeFile specifies that the server reads all documents of a file together if one of them
	// has one of these kinds.
	isWholeFile bool
	// detects reports whether the text or the name of a file shows that it is of this kind. If
	// nil, only the documents determine the kind.
	detects func(f *file) bool
	// check returns the findings for the documents in a file. It returns an error if they cannot
	// be checked.
	check func(r *run, f *file, docs []document) ([]Finding, error)
}

// kinds returns all kinds. If several kinds match a file, the first one applies.
func kinds() []kind {
	return []kind{
		{
			name:        Config,
			objects:     map[string][]string{tenant.Domain: {configv1alpha1.KindTenancyConfiguration}},
			isWholeFile: true,
			check:       (*run).configuration,
		},
		{
			name:        Revocation,
			objects:     map[string][]string{tenant.Domain: {configv1alpha1.KindRevocation}},
			isWholeFile: true,
			check:       func(_ *run, f *file, _ []document) ([]Finding, error) { return revocation(f.data), nil },
		},
		{
			name:        Scenario,
			objects:     map[string][]string{tenant.Domain: {scenario.KindScenario}},
			isWholeFile: true,
			check:       (*run).scenarios,
		},
		{
			name: Objects,
			objects: map[string][]string{tenant.Domain: {
				v1alpha1.KindTenant, v1alpha1.KindTenantMembers, v1alpha1.KindNamespaceTemplate, v1alpha1.KindPublication,
				v1alpha1.KindRetiredTenant, v1alpha1.KindTenantQuota, v1alpha1.KindAccessGrant, v1alpha1.KindTenantUsage,
			}},
			check: (*run).objects,
		},
		{
			name:    Certificate,
			objects: map[string][]string{certificatesv1.GroupName: {"CertificateSigningRequest"}},
			detects: isCertificateRequest,
			check:   func(_ *run, f *file, docs []document) ([]Finding, error) { return certificates(f, docs), nil },
		},
		{
			name:        ABAC,
			objects:     map[string][]string{"abac.authorization.kubernetes.io": {"Policy"}},
			isWholeFile: true,
			detects:     isPolicy,
			check:       func(_ *run, f *file, _ []document) ([]Finding, error) { return policy(f.data), nil },
		},
		{
			name:    Export,
			objects: map[string][]string{rbacv1.GroupName: {"ClusterRoleBinding", "RoleBinding"}, "": {"Namespace"}},
			check:   (*run).export,
		},
		{
			name: Server,
			objects: map[string][]string{
				"apiserver.config.k8s.io": {"AuthenticationConfiguration", "AuthorizationConfiguration"},
				"admissionregistration.k8s.io": {
					"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy",
					"ValidatingAdmissionPolicyBinding",
				},
				"apiextensions.k8s.io": {"CustomResourceDefinition"},
			},
			check: (*run).serverFile,
		},
		{name: Passwords, detects: isPasswords, check: credentialFile(Passwords)},
		{name: Tokens, detects: isRecords, check: credentialFile(Tokens)},
	}
}

// Kinds returns the names of all kinds.
func Kinds() []string {
	var all []string
	for _, k := range kinds() {
		all = append(all, k.name)
	}
	return all
}

// includes reports whether files of the kind may contain the document.
func (k *kind) includes(d *document) bool { return slices.Contains(k.objects[d.group()], d.kind) }

// isKnownKind reports whether files of any kind may contain the document.
func isKnownKind(d *document) bool {
	return slices.ContainsFunc(kinds(), func(k kind) bool { return k.includes(d) })
}

// detect sets the kind of a file. name is the value of --kind, or empty. The kind remains nil if
// each document has its own kind. detect returns an error if the file contains nothing that can be
// checked.
func (f *file) detect(name string) error {
	if f.directory {
		return nil
	}
	rows := kinds()
	if name != "" {
		i := slices.IndexFunc(rows, func(k kind) bool { return k.name == name })
		if i < 0 {
			return fmt.Errorf("--kind %s: must be one of %s", name, strings.Join(Kinds(), ", "))
		}
		f.kind = &rows[i]
	}
	switch {
	case bytes.IndexByte(f.data, 0) >= 0 || !utf8.Valid(f.data):
		return fmt.Errorf("%s: is a binary file, and kubectl tenant validate checks text", f.name)
	case f.kind == nil && len(firstLine(f.data)) == 0:
		return fmt.Errorf("%s: is empty (set its kind with --kind)", f.name)
	}
	if f.kind != nil && f.kind.objects == nil {
		return nil
	}
	if f.kind == nil {
		for i := range rows {
			if rows[i].detects != nil && rows[i].detects(f) {
				f.kind = &rows[i]
				return nil
			}
		}
	}
	f.docs, f.syntax = split(f.data)
	if f.kind != nil {
		return f.forced()
	}
	for i := range f.docs {
		for j := range rows {
			if rows[j].isWholeFile && rows[j].includes(&f.docs[i]) {
				f.kind = &rows[j]
				return f.forced()
			}
		}
	}
	return f.unknown()
}

// forced completes the detection for a file whose kind is set. It sets the kind to nil if the file
// has a syntax error or a misplaced document that must be reported instead. It returns an error if
// the file has no documents to check.
func (f *file) forced() error {
	if f.syntax != nil && f.kind.detects == nil {
		f.kind = nil
		return nil
	}
	if f.kind.detects != nil {
		return nil
	}
	if len(f.docs) == 0 {
		return fmt.Errorf("%s: is empty", f.name)
	}
	if docs := f.documentsOf(f.kind); !f.kind.isWholeFile {
		if f.hasMisplaced() {
			f.kind = nil // each document is checked separately
			return nil
		}
		if len(docs) == 0 {
			return fmt.Errorf("%s: has no document of --kind %s", f.name, f.kind.name)
		}
		f.docs = docs
	}
	return nil
}

// unknown returns an error if a file contains no known document, and no problem that is a finding.
func (f *file) unknown() error {
	if slices.ContainsFunc(f.docs, func(d document) bool { return isKnownKind(&d) }) {
		return nil
	}
	if f.syntax != nil {
		if isYAML(f) {
			return nil // the syntax is the finding
		}
		return fmt.Errorf("%s: is not a file that kubectl tenant validate checks; it checks %s", f.name, checked())
	}
	if f.hasMisplaced() {
		return nil
	}
	for i := range f.docs {
		d := &f.docs[i]
		if d.kind == "" {
			continue
		}
		return fmt.Errorf("%s: %s is not a kind that kubectl tenant validate checks; it checks %s",
			f.name, described(d), checked())
	}
	return fmt.Errorf("%s: has no kind, and is not a file that kubectl tenant validate checks; it checks %s",
		f.name, checked())
}

// checked returns a list of the kinds that can be checked, for error messages.
func checked() string {
	return strings.Join(ownKinds(), ", ") + ", certificate requests, policy, token and password files, " +
		"bindings and Namespaces of a cluster, and the files that generate writes for kube-apiserver"
}

// isYAML reports whether an invalid file was probably meant to be YAML.
func isYAML(f *file) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(f.path)) ||
		bytes.Contains(f.data, []byte("apiVersion:")) && bytes.Contains(f.data, []byte("kind:"))
}

// isCertificateRequest reports whether a file contains a PEM certificate request, or its name ends
// in .csr. openssl may write text before the PEM block.
func isCertificateRequest(f *file) bool {
	return bytes.Contains(f.data, []byte("-----BEGIN CERTIFICATE REQUEST")) ||
		bytes.Contains(f.data, []byte("-----BEGIN NEW CERTIFICATE REQUEST")) ||
		filepath.Ext(f.path) == ".csr"
}

// isPolicy reports whether a file is probably a policy file, which has one JSON object on each
// line. The name ends in .jsonl, or the first line shows it.
func isPolicy(f *file) bool {
	first := firstLine(f.data)
	if filepath.Ext(f.path) == ".jsonl" {
		return true
	}
	if !bytes.HasPrefix(first, []byte("{")) || len(first) == 1 {
		return false
	}
	var line struct{ Kind string }
	if json.Unmarshal(first, &line) == nil {
		return line.Kind == "" || line.Kind == "Policy"
	}
	// A file with an invalid line is accepted as a policy file, unless the file is one JSON object
	// on several lines.
	return bytes.HasPrefix(first, []byte(`{"`)) && filepath.Ext(f.path) != ".json" && !json.Valid(f.data)
}

// isRecords reports whether a file probably contains credential records. Its name ends in .csv, or
// its first line has the three required fields. A YAML or JSON file contains no records.
func isRecords(f *file) bool {
	const values = 3
	ext := filepath.Ext(f.path)
	first := firstLine(f.data)
	switch {
	case bytes.HasPrefix(first, []byte("apiVersion:")), bytes.HasPrefix(first, []byte("kind:")):
		return false
	case ext == ".csv":
		return true
	}
	return ext != ".yaml" && ext != ".yml" && ext != ".json" && !bytes.HasPrefix(first, []byte("{")) &&
		!bytes.Contains(first, []byte(": ")) && bytes.Count(first, []byte(",")) >= values-1
}

func isPasswords(f *file) bool {
	return isRecords(f) && strings.Contains(strings.ToLower(filepath.Base(f.path)), "pass")
}

// firstLine returns the first line that is neither empty nor a comment, without surrounding white
// space.
func firstLine(data []byte) []byte {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line
		}
	}
	return nil
}
