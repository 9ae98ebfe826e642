// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario runs scenario files in all deployment modes. A [Mode] starts the servers of a
// scenario and runs its cases. The package compares the results with the expected results.
package scenario

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mode runs scenarios in one deployment mode.
type Mode interface {
	// Skip returns why the mode cannot run a case of the scenario, or "". If c is nil, the result
	// applies to all cases.
	Skip(s *Scenario, c *Case) string
	// Keys returns the keys of the servers. If nil, each fixture creates its own keys.
	Keys() *Keys
	// Open starts the servers for a fixture. Its error is compared with Scenario.Invalid.
	Open(ctx context.Context, w *Fixture) (Session, error)
}

// Session runs the cases of one scenario. It is not safe for concurrent use.
type Session interface {
	// Authenticate returns the result of the authentication of a credential.
	Authenticate(ctx context.Context, c *Credential) (Authentication, error)
	// Authorize returns the decision for a request with a credential.
	Authorize(ctx context.Context, c *Credential, r *Request) (Decision, error)
	// Admit sends a write with a credential through the boundary and admission.
	Admit(ctx context.Context, c *Credential, a *Admit) (Admission, error)
	// Close releases what Open created.
	Close()
}

// Authentication is the result of the authentication of a credential.
type Authentication struct {
	User *User
	// Refused is the error of the source that rejected the credential.
	Refused string
	// Unclaimed reports whether no source recognized the credential. It is also true if the mode
	// cannot distinguish this result from Refused.
	Unclaimed bool
	// Opaque reports that the mode cannot distinguish Refused from Unclaimed, and that the error is
	// unknown.
	Opaque bool
}

// User is an identity.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Decision is the decision of the authorizer: allow, deny or no-opinion.
type Decision struct{ Decision, Reason string }

// Admission is the result of a write: the object as JSON, or why the write was denied.
type Admission struct {
	Object []byte
	Denied string
}

// Status is the status of a case.
type Status string

// Values of Status.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is the result of one case.
type Result struct {
	File     string `json:"file"`
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Status   Status `json:"status"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// invalidCase is the name of the only case of a scenario whose field Invalid is set.
const invalidCase = "the configuration is refused"

// Files returns the sorted paths of the scenario files. For a directory in paths, it returns the
// scenario files in this directory.
func Files(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, path)
			continue
		}
		err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(p); err == nil && !d.IsDir() && (ext == ".yaml" || ext == ".yml") {
				all = append(all, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Run runs the cases of a scenario in a mode, and calls report with each result. It returns an
// error if the scenario cannot be run.
func Run(ctx context.Context, mode Mode, file string, s *Scenario, report func(Result)) error {
	result := func(name string, status Status, expected, got string) {
		report(Result{file, s.Metadata.Name, name, status, expected, got})
	}
	if reason := mode.Skip(s, nil); reason != "" {
		for _, name := range caseNames(s) {
			result(name, Skipped, "", reason)
		}
		return nil
	}
	w, err := NewFixture(s, mode.Keys())
	if err != nil {
		return fmt.Errorf("%s: %s: %w", file, s.Metadata.Name, err)
	}
	defer w.Close()
	session, err := mode.Open(ctx, w)
	if session != nil {
		defer session.Close()
	}
	if s.Invalid != "" {
		status := Passed
		got := "accepted"
		if err != nil {
			got = err.Error()
		}
		if err == nil || !strings.Contains(got, s.Invalid) {
			status = Failed
		}
		result(invalidCase, status, fmt.Sprintf("an error with %q", s.Invalid), got)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", file, s.Metadata.Name, err)
	}
	for _, c := range admitLast(s.Cases) {
		if reason := mode.Skip(s, c); reason != "" {
			result(c.Name, Skipped, "", reason)
			continue
		}
		expected, got, ok := runCase(ctx, session, c)
		status := Passed
		if !ok {
			status = Failed
		}
		result(c.Name, status, expected, got)
	}
	return nil
}

// admitLast returns the cases, with the cases of admission last, because a mode may change the
// rules of its server for these cases.
func admitLast(cases []Case) []*Case {
	var before, after []*Case
	for i := range cases {
		if c := &cases[i]; c.Admit == nil {
			before = append(before, c)
		} else {
			after = append(after, c)
		}
	}
	return append(before, after...)
}

func caseNames(s *Scenario) []string {
	if s.Invalid != "" {
		return []string{invalidCase}
	}
	var names []string
	for _, c := range s.Cases {
		names = append(names, c.Name)
	}
	return names
}

// runCase returns the expected and the actual result of a case, and whether they match.
func runCase(ctx context.Context, session Session, c *Case) (expected, got string, ok bool) {
	if e := &c.Expect; e.User != nil || e.Unauthenticated || e.Refused != nil {
		identity, err := session.Authenticate(ctx, &c.Credential)
		if err != nil {
			return "an identity", err.Error(), false
		}
		if expected, got, ok = compareIdentity(e, identity); !ok || c.Request == nil && c.Admit == nil {
			return expected, got, ok
		}
	}
	if c.Request != nil {
		decision, err := session.Authorize(ctx, &c.Credential, c.Request)
		if err != nil {
			return "a decision", err.Error(), false
		}
		return compareDecision(&c.Expect, decision)
	}
	admission, err := session.Admit(ctx, &c.Credential, c.Admit)
	if err != nil {
		return "an admission decision", err.Error(), false
	}
	return compareAdmission(&c.Expect, admission)
}
