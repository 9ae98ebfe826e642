// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// testSeats is the number of seats of the server. testExecution is the time for which the
	// handler executes a request.
	testSeats, testExecution = 2, time.Millisecond
	// testNoisy is the number of concurrent requests of the noisy tenant. It exceeds the
	// capacity of one flow, which is testSeats executing requests and 50 requests in each of
	// its 6 queues.
	testNoisy = 350
	// testQuiet is the number of requests of the quiet tenant. They are sent one after the other.
	testQuiet = 5
)

// position counts the requests of the noisy tenant that are executed while a request of the quiet
// tenant waits.
type position struct {
	flowcontrol.Interface

	executed *atomic.Int64 // executed requests of the noisy tenant
	waited   *atomic.Int64 // executed requests while the last request of the quiet tenant waited
}

func (p position) Handle(ctx context.Context, d flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowrequest.WorkEstimate, queueNote fq.QueueNoteFn, execute func(),
) {
	id, err := tenant.Of(d.User)
	if err != nil || id.String() != quietTenant {
		p.Interface.Handle(ctx, d, note, estimate, queueNote, func() {
			p.executed.Add(1)
			execute()
		})
		return
	}
	began := p.executed.Load()
	ended := began
	p.Interface.Handle(ctx, d, note, estimate, queueNote, func() {
		ended = p.executed.Load()
		execute()
	})
	if ended == began {
		ended = p.executed.Load() // the request was rejected after it waited
	}
	p.waited.Store(ended - began)
}

// outcome contains the results of the requests of both tenants.
type outcome struct {
	// waited is the number of requests of the noisy tenant that were executed while a request of
	// the quiet tenant waited. It is the median of testQuiet requests.
	waited int64
	// quietRefused and noisyRefused are the numbers of requests that got status 429.
	quietRefused, noisyRefused int64
}

func compete(t *testing.T, m mode) (o outcome) {
	t.Helper()
	p := position{executed: &atomic.Int64{}, waited: &atomic.Int64{}}
	wrap := m.wrap
	m.wrap = func(next flowcontrol.Interface) flowcontrol.Interface {
		p.Interface = wrap(next)
		return p
	}
	s, err := newServer(t.Context(), testSeats, m, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(testExecution)
	}))
	if err != nil {
		t.Fatal(err)
	}
	f := s.startFlood(t.Context(), testNoisy)
	defer f.stop()
	for p.executed.Load() < testNoisy/2 {
		time.Sleep(testExecution)
	}
	var all []int64
	for range testQuiet {
		if s.send(get(t.Context(), quietTenant, "robot")) == http.StatusTooManyRequests {
			o.quietRefused++
		}
		all = append(all, p.waited.Load())
	}
	slices.Sort(all)
	o.waited, o.noisyRefused = all[len(all)/2], f.refused.Load()
	t.Logf("%s: %+v", m.name, o)
	return o
}

// TestNoisyTenant checks that the wrapper reduces the time for which a quiet tenant's request
// waits while a noisy tenant has many requests. Upstream has one flow for each service account
// of the noisy tenant. The wrapper has one flow for each tenant.
//
// The test counts the noisy tenant's requests that are executed during the wait, so it does not
// depend on the speed of the machine. The wrapper must reduce this number to a third.
func TestNoisyTenant(t *testing.T) {
	upstream, compiledIn, err := newModes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plain, fair := compete(t, upstream), compete(t, compiledIn)
	if 3*fair.waited > plain.waited {
		t.Errorf("compiled in: a request waits for %d requests of the noisy tenant, want at most a third of upstream's %d",
			fair.waited, plain.waited)
	}
	if fair.quietRefused > 0 {
		t.Errorf("compiled in: %d requests of the quiet tenant are rejected, want none", fair.quietRefused)
	}
	if fair.noisyRefused == 0 {
		t.Error("compiled in: no request of the noisy tenant is rejected, want those that exceed the queues of one flow")
	}
}
