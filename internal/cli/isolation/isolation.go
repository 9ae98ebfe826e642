// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package isolation discovers the resources of a live server, and sends requests from one
// temporary tenant for the objects of another. The tenant boundary must deny these requests.
package isolation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// Options specify the server and the callers of a run.
type Options struct {
	// Admin is the client configuration of a caller with all rights.
	Admin *rest.Config
	// Tenants are the two temporary tenants. They must not own any objects.
	Tenants [2]string
	// User is the client configuration of a user of the first tenant. If nil, the admin
	// impersonates a user of that tenant.
	User *rest.Config
	// Progress is called with a description of each step. It may be nil.
	Progress func(string)
	// Mode is the deployment mode of the server that receives the test requests. It is required.
	Mode installation.Mode
	// Through is the server that receives the test requests. Only its address and certificate
	// authority are used. If nil, the admin's server receives the requests.
	Through *rest.Config
	// Groups are the API groups whose resources are tested. If empty, all groups are tested.
	Groups []string
	// Parallel is the maximum number of concurrent requests. Defaults to 8.
	Parallel int
}

// matrix is the state of a run, which sends the requests for each resource as each caller.
type matrix struct {
	Options
	fixture         *fixture
	mu              sync.Mutex
	report          Report
	unansweredCount int // requests without a response
	// answers contains whether authorization allowed each request, for each caller.
	answers map[*caller]map[question]bool
}

// question contains the authorization attributes of a request.
type question = authorizationv1.ResourceAttributes

// ErrNotRemoved reports that some objects of a run were not deleted.
var ErrNotRemoved = errors.New(
	"the temporary tenants were not completely deleted: run kubectl tenant verify-isolation " +
		"--clean-up",
)

// removeTimeout is the maximum time for deleting the objects of a run. An interrupt does not
// stop the deletion.
const removeTimeout = time.Minute

// Run creates the tenants, sends the requests of the matrix and deletes the objects that it
// created. An error means that the run did not finish, or it wraps [ErrNotRemoved]. If the
// report is not nil, it contains all results so far.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	m := &matrix{Options: o, answers: map[*caller]map[question]bool{}}
	m.report = Report{Mode: o.Mode, APIGroups: o.Groups, Findings: []*Finding{}}
	if m.fixture, err = newFixture(&o); err != nil {
		return nil, err
	}
	served, err := m.discover(m.fixture.admin)
	if err != nil {
		return nil, err
	}
	for _, group := range o.Groups {
		if len(ofGroups(served, []string{group})) == 0 {
			return nil, fmt.Errorf("the server has no resources in the API group %q", group)
		}
	}
	m.Progress("creating two temporary tenants")
	defer func() {
		if !m.fixture.mayHaveObjects {
			return
		}
		m.Progress("deleting the temporary tenants")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if removeErr := m.fixture.deleteAll(ctx); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrNotRemoved, removeErr))
		}
	}()
	if err := m.fixture.create(ctx, m); err != nil {
		return nil, err
	}
	err = m.tryEverything(ctx, served)
	m.report.finish()
	return &m.report, err
}

// tryEverything runs the steps of the matrix. If a step fails, no further step runs, and the
// failure is also a finding.
func (m *matrix) tryEverything(ctx context.Context, served []resource) error {
	tried := ofGroups(served, m.Groups)
	m.report.Resources = len(tried)
	for _, step := range []struct {
		what string
		do   func(context.Context, []resource) error
		of   []resource
	}{
		{"testing every request", m.tryAll, tried},
		{"testing admission", m.tryRejectedWrites, tried},
		{"testing lists and watches", m.tryDelivery, tried},
		{"testing self reviews", m.tryReviews, served}, // self reviews also cover resources that were not tried
		{"testing watches on deleted namespaces", m.tryRecreation, tried},
	} {
		m.Progress(step.what)
		if err := step.do(ctx, step.of); err != nil {
			m.find(Untested, "", "", "the run ended early", step.what)
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// tryAll sends the requests for each resource as each caller.
func (m *matrix) tryAll(ctx context.Context, served []resource) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for _, c := range m.fixture.callers {
		for _, r := range served {
			for _, p := range m.probes(c, r) {
				group.Go(func() error { return m.try(ctx, c, p) })
			}
		}
	}
	return group.Wait()
}

// try sends one request and records its outcome.
func (m *matrix) try(ctx context.Context, c *caller, p probe) error {
	request := p.method + " " + p.path
	a, err := c.send(ctx, p.method, p.path, p.body, p.header)
	if err != nil {
		return m.unanswered(ctx, c, p.target, request, err)
	}
	outcome, reason := p.judge(c, a)
	m.note(c.name, p.target, outcome, reason, p.group, fmt.Sprintf("%s: %d %s", request, a.code, a.message()))
	if p.review != nil && outcome != Untested {
		m.record(c, p, a)
	}
	return nil
}

// maxUnanswered is the maximum number of unanswered requests in a run.
const maxUnanswered = 20

// unanswered records a request without a response as not tested. It returns an error if the run
// must stop.
func (m *matrix) unanswered(ctx context.Context, c *caller, target, request string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.note(c.name, target, Untested, untestedNoAnswer, "", fmt.Sprintf("%s: %v", request, err))
	return m.countUnanswered(err)
}

// countUnanswered records a request without a response. It returns an error if there are more
// than maxUnanswered.
func (m *matrix) countUnanswered(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unansweredCount++; m.unansweredCount > maxUnanswered {
		return fmt.Errorf("%d requests got no response: %w", m.unansweredCount, err)
	}
	return nil
}

// record stores whether authorization allowed a request. If the same request had another result
// before, record adds a finding.
func (m *matrix) record(c *caller, p probe, a answer) {
	allowed := !a.deniedByAuthorization() && a.code != http.StatusUnauthorized
	q := *p.review
	q.Version = "" // no rule depends on the version
	m.mu.Lock()
	if m.answers[c] == nil {
		m.answers[c] = map[question]bool{}
	}
	before, ok := m.answers[c][q]
	m.answers[c][q] = allowed
	m.mu.Unlock()
	if ok && before != allowed {
		m.find(Contradicted, c.name, p.target, "the same request got different answers", p.method+" "+p.path)
	}
}
