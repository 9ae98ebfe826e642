// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/authn/tokenfile"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// credentialFile returns the function that checks a credential file of the given kind.
func credentialFile(kind string) func(*run, *file, []document) ([]Finding, error) {
	return func(r *run, f *file, _ []document) ([]Finding, error) {
		found, err := credentials(r.ctx, f.data, kind, &configv1alpha1.CredentialFile{})
		if !f.stdin {
			found = append(found, readable(f.path)...)
		}
		return found, err
	}
}

// readable warns of a file with secrets that users other than its owner may read.
func readable(path string) []Finding {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return []Finding{{
		Line:     1,
		Severity: Warning,
		Reason:   fmt.Sprintf("other users may read the file (mode %04o)", info.Mode().Perm()),
		Fix:      "chmod 600 " + path,
	}}
}

// maxProblems is the maximum number of problems that are reported for a credential file or policy
// file, and the maximum number of duplicate keys that are reported for a document.
const maxProblems = 100

// credentials returns the findings for a token or password file. They include warnings about
// records that the server accepts, but that are probably mistakes.
func credentials(
	ctx context.Context, data []byte, kind string, config *configv1alpha1.CredentialFile,
) ([]Finding, error) {
	found, err := refused(ctx, data, kind, config)
	if err != nil {
		return nil, err
	}
	for _, warning := range suspicious(data, config) {
		if !slices.ContainsFunc(found, func(p Finding) bool { return p.Line == warning.Line && p.Severity != Warning }) {
			found = append(found, warning)
		}
	}
	return found, nil
}

// refused returns a finding for each record that the server's readers reject. A reader stops at
// the first problem. Therefore, refused clears the rejected record and reads the remaining records
// again.
func refused(
	ctx context.Context, data []byte, kind string, config *configv1alpha1.CredentialFile,
) (found []Finding, err error) {
	dir, err := os.MkdirTemp("", "validate-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "file.csv") // mode 0600 in a directory with mode 0700, because it contains secrets
	names, err := defaultNames()
	if err != nil {
		return nil, err
	}
	check := func(name string, groups []string, id tenant.ID) error { return reserved(names, name, groups, id) }
	byDefault := config.Default()
	lines := bytes.SplitAfter(data, []byte("\n"))
	for range maxProblems {
		// #nosec G703 -- a temporary directory
		err := os.WriteFile(path, bytes.Join(lines, nil), 0o600)
		if err == nil { // a reader waits if the file was modified recently
			err = os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour))
		}
		if err != nil {
			return nil, err
		}
		if kind == Tokens {
			_, err = tokenfile.Open(ctx, path, tokenfile.Options{DefaultTenant: byDefault, Check: check})
		} else {
			_, err = basicauth.Open(ctx, path, basicauth.Options{DefaultTenant: byDefault, Check: check})
		}
		var at interface {
			error
			Position() (line, field int)
		}
		if err == nil {
			return found, nil
		}
		if !errors.As(err, &at) {
			return append(found, Finding{Line: 1, Reason: strings.TrimPrefix(err.Error(), path+": ")}), nil
		}
		line, field := at.Position()
		reason := errors.Unwrap(at)
		if reason == nil {
			reason = at
		}
		first, last, column := record(lines, line, field)
		if field < 0 { // the reader reports the last line of an unterminated record
			line = first + 1
		}
		found = append(found, Finding{
			Line:   line,
			Column: column,
			Reason: reason.Error(),
			Fix:    credentialFix(reason.Error()),
		})
		for i := first; i <= last && i < len(lines); i++ {
			lines[i] = []byte("\n")
		}
	}
	return found, nil
}

// record returns the first and the last line of the record that contains the given line, and the
// column of one of its fields. line starts at 1, but first and last start at 0. If the record is
// unreadable, an unclosed quote on an earlier line may be the cause.
func record(lines [][]byte, line, field int) (first, last, column int) {
	r := csv.NewReader(bytes.NewReader(bytes.Join(lines, nil)))
	r.FieldsPerRecord = -1
	for {
		fields, err := r.Read()
		var malformed *csv.ParseError
		if errors.As(err, &malformed) {
			if malformed.Line > malformed.StartLine {
				return malformed.StartLine - 1, max(malformed.Line, line) - 1, 1
			}
			return malformed.StartLine - 1, line - 1, malformed.Column
		}
		if err != nil {
			return line - 1, line - 1, 1
		}
		first, column = r.FieldPos(0)
		last = first
		for _, f := range fields {
			last += strings.Count(f, "\n")
		}
		if last < line {
			continue
		}
		if field >= 0 && field < len(fields) {
			_, column = r.FieldPos(field)
		}
		return first - 1, last - 1, column
	}
}

// defaultNames returns the names that the default configuration reserves for the system tenant.
func defaultNames() (*tenant.SystemNames, error) {
	settings, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		return nil, err
	}
	return settings.Authorization.SystemSubjects.Names(), nil
}

// reserved returns an error if the user or a group has a reserved name and the tenant is not the
// system tenant.
func reserved(names *tenant.SystemNames, name string, groups []string, id tenant.ID) error {
	if id.IsSystem() {
		return nil
	}
	if names.ReservedUser(name) {
		return fmt.Errorf("the user name %q is the system tenant's", name)
	}
	for _, group := range groups {
		if names.ReservedGroup(group) {
			return fmt.Errorf("the group %q is the system tenant's", group)
		}
	}
	return nil
}

func fixOf(fixes [][2]string, message string) string {
	for _, f := range fixes {
		if strings.Contains(message, f[0]) {
			return f[1]
		}
	}
	return ""
}
