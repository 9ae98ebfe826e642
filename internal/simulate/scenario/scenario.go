// Package scenario runs scenario files: the one driver for every shape of the project. A [Shape]
// brings a scenario's world to life and answers for it; what an answer must be is compared here
// and nowhere else.
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

// Shape is one way in which the project runs.
type Shape interface {
	// Skip says why the shape cannot run a case of the scenario; nil asks about the whole. Empty
	// if it can.
	Skip(s *Scenario, c *Case) string
	// Keys are those of the shape's servers; nil if each world has its own.
	Keys() *Keys
	// Open builds the stack of a world. Its error is what a scenario calls invalid.
	Open(ctx context.Context, w *World) (Session, error)
}

// Session answers for one scenario. One goroutine uses it.
type Session interface {
	// Authenticate says who the credential is.
	Authenticate(ctx context.Context, c *Credential) (Authentication, error)
	// Authorize decides about a request of the credential's owner.
	Authorize(ctx context.Context, c *Credential, r *Request) (Decision, error)
	// Admit sends a write of the credential's owner through boundary and admission.
	Admit(ctx context.Context, c *Credential, a *Admit) (Admission, error)
	// Close ends what Open began.
	Close()
}

// Authentication is what came of a credential: a user, or why there is none.
type Authentication struct {
	User *User
	// Refused is why a source refused the credential. Over HTTP the text is not known.
	Refused string
	// Unclaimed says that no source knew the credential, or that this cannot be told from refused.
	Unclaimed bool
	// Opaque says that refused and unclaimed cannot be told apart, nor the text be seen.
	Opaque bool
}

// User is an identity.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Decision is what the authorizer says: allow, deny or no-opinion.
type Decision struct{ Decision, Reason string }

// Admission is what became of a write: the object as JSON, or why it was denied.
type Admission struct {
	Object []byte
	Denied string
}

// Status of a case.
type Status string

// The statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is what became of one case.
type Result struct {
	File     string `json:"file"`
	Scenario string `json:"scenario"`
	Case     string `json:"case"`
	Status   Status `json:"status"`
	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`
}

// invalidCase names, in results, the one question of a scenario whose configuration is wrong.
const invalidCase = "the configuration is refused"

// Files returns the scenario files below the paths, sorted; a path that is no directory stands for
// itself.
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

// Run runs the cases of a scenario in a shape and hands each result to report. The error means that
// the scenario could not be run at all.
func Run(ctx context.Context, shape Shape, file string, s *Scenario, report func(Result)) error {
	result := func(name string, status Status, expected, got string) {
		report(Result{file, s.Metadata.Name, name, status, expected, got})
	}
	if why := shape.Skip(s, nil); why != "" {
		for _, name := range caseNames(s) {
			result(name, Skipped, "", why)
		}
		return nil
	}
	w, err := NewWorld(s, shape.Keys())
	if err != nil {
		return fmt.Errorf("%s: %s: %w", file, s.Metadata.Name, err)
	}
	defer w.Close()
	session, err := shape.Open(ctx, w)
	if session != nil {
		defer session.Close()
	}
	if s.Invalid != "" {
		status, got := Passed, "accepted"
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
		if why := shape.Skip(s, c); why != "" {
			result(c.Name, Skipped, "", why)
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

// admitLast returns the cases, those of admission behind the others: a server may have to change
// its rules for them.
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

// runCase returns what was expected of a case, what came, and whether they agree.
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
