// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

// TestScenarios checks that the explanation of every case in the corpus has the expected
// decision.
func TestScenarios(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	files, err := scenario.Files([]string{filepath.Join("..", "..", "..", "testdata", "scenarios")})
	if err != nil {
		t.Fatal(err)
	}
	cases, remedies, writes := 0, map[string]int{}, map[explain.Admission]int{}
	for _, file := range files {
		all, err := scenario.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			withouts := map[string]*explain.Explanation{}
			if s.Invalid != "" {
				continue
			}
			w, err := scenario.NewFixture(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			session, err := scenario.Library{}.Open(ctx, w)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			config, err := configv1alpha1.Load(w.ConfigFile)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			read, write := newQuery(t, s, &config.Settings), newQuery(t, s, &config.Settings)
			write.Delegate = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (
				authorizer.Decision, string, error,
			) {
				if s.Delegate == scenario.DelegateRBAC && a.GetVerb() == "impersonate" { // as in every deployment mode
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			})
			for i := range s.Cases {
				c := &s.Cases[i]
				// With the flag --as, the command explains the decision for that user without
				// impersonation.
				if c.Credential.Impersonate != nil || c.Request == nil && c.Admit == nil {
					continue
				}
				identity, err := session.Authenticate(ctx, &c.Credential)
				if err != nil || identity.User == nil {
					continue
				}
				u := &user.DefaultInfo{
					Name:   identity.User.Name,
					UID:    identity.User.UID,
					Groups: identity.User.Groups,
					Extra:  identity.User.Extra,
				}
				if c.Admit != nil {
					write.User = u
					writes[explainWrite(ctx, t, file, write, c, withouts)]++
					continue
				}
				read.User, read.Request = u, scenario.Attributes(nil, c.Request)
				e, err := explain.Explain(ctx, read)
				if err != nil {
					t.Errorf("%s: %s: %v", file, c.Name, err)
					continue
				}
				cases++
				// The server limits a list over all namespaces, but a SubjectAccessReview does not.
				truth, err := session.Authorize(simulator.WithSelfReviewRequest(ctx), &c.Credential, c.Request)
				want := truth.Decision == "allow" && e.Admission != explain.Refused
				if err != nil || e.Allowed() != want || truth.Decision != "allow" && e.Admission != "" {
					t.Errorf("%s: %s: explained as %s (%s), want %s, %v", file, c.Name, e.Decision, e.Reason, truth.Decision, err)
				}
				if e.Remedy != nil {
					kind, _, _ := strings.Cut(e.Remedy.Text, ",")
					remedies[kind]++
				}
			}
			session.Close()
			w.Close()
		}
	}
	if cases < 500 || writes[explain.Admitted] < 500 || writes[explain.Refused] < 500 {
		t.Errorf("%d cases were explained, writes: %v", cases, writes)
	}
	t.Logf("%d cases, %v, writes: %v", cases, remedies, writes)
}

// newQuery returns a query for a scenario. It can be used several times.
func newQuery(t *testing.T, s *scenario.Scenario, config *configv1alpha1.Settings) *explain.Query {
	t.Helper()
	q := &explain.Query{Config: config, Said: "a test"}
	var err error
	if q.Snapshot, q.Delegate, err = scenario.Snapshot(s); err != nil {
		t.Fatal(err)
	}
	return q
}

// dependsOnMissingObjects reports whether the result of a case depends on objects that a snapshot
// lacks.
func dependsOnMissingObjects(file, name string) bool {
	switch filepath.Base(file) {
	case "admission-quota.yaml":
		return true
	case "admission-references.yaml":
		return strings.HasPrefix(name, "a UID that is not ")
	case "admission-placement.yaml":
		return name == "the default priority is everybody's"
	}
	return false
}

// explainWrite explains a case with a write. If the object is known, the result must be the
// expected one. If it is unknown, the result must not contradict the expected one.
func explainWrite(
	ctx context.Context,
	t *testing.T,
	file string,
	q *explain.Query,
	c *scenario.Case,
	withouts map[string]*explain.Explanation,
) explain.Admission {
	t.Helper()
	if err := q.Writes(c.Admit); err != nil {
		t.Fatalf("%s: %s: %v", file, c.Name, err)
	}
	e, err := explain.Explain(ctx, q)
	if err != nil {
		t.Errorf("%s: %s: %v", file, c.Name, err)
		return ""
	}
	q.Write = nil
	key := fmt.Sprint(file, q.User, q.Request.Verb, q.Request.APIGroup, q.Request.Resource,
		q.Request.Subresource, q.Request.Namespace)
	without, known := withouts[key]
	if !known {
		if without, err = explain.Explain(ctx, q); err != nil {
			t.Errorf("%s: %s: %v", file, c.Name, err)
			return ""
		}
		withouts[key] = without
	}
	if without.Admission == explain.Refused && e.Allowed() {
		t.Errorf("%s: %s: without the object %+v", file, c.Name, without)
	}
	if want := c.Expect.Denied == nil; e.Allowed() != want && !dependsOnMissingObjects(file, c.Name) {
		t.Errorf("%s: %s: explained as %s (%s)", file, c.Name, e.Decision, e.Reason)
	}
	return e.Admission
}
