// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const globexPods = "/api/v1/namespaces/globex--shop/pods"

// slowCluster makes a cluster hold the requests whose query contains "hold" until they are
// released.
type slowCluster struct {
	cluster *fakeCluster
	release chan struct{}
	mu      sync.Mutex
	held    []string // the values of "hold"
}

func newSlowCluster(c *fakeCluster) *slowCluster {
	s := &slowCluster{cluster: c, release: make(chan struct{})}
	c.update(func() {
		c.handler = func(_ http.ResponseWriter, r *http.Request) bool {
			name := r.URL.Query().Get("hold")
			if name == "" || r.URL.Query().Has("watch") {
				return false
			}
			s.mu.Lock()
			s.held = append(s.held, name)
			s.mu.Unlock()
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
			return false
		}
	})
	return s
}

// names returns the requests that the cluster has received, in order.
func (s *slowCluster) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.held, " ")
}

// waitFor waits until the cluster has received exactly the wanted requests.
func (s *slowCluster) waitFor(t *testing.T, want string) {
	t.Helper()
	waittest.Until(t, func() error {
		if got := s.names(); got != want {
			return fmt.Errorf("the cluster has received %q, want %q", got, want)
		}
		return nil
	})
}

// limitedTo returns the beginning of a configuration with limits on the requests to a cluster.
func limitedTo(concurrent, queued int) string {
	return strings.Replace(configHeader, "timeout: 5s",
		fmt.Sprintf("timeout: 60s, concurrent: %d, queued: %d", concurrent, queued), 1)
}

// newLimitedFixture returns a gateway in front of two clusters with limits, and the first cluster.
func newLimitedFixture(t *testing.T, concurrent, queued int) (w *fixture, eu *fakeCluster) {
	t.Helper()
	eu = newFakeCluster(t, defaultNamespaces())
	w = newFixture(t, clusterEntry("eu1", ", root: true")+clusterEntry("us1", ""),
		map[string]*fakeCluster{"eu1": eu, "us1": newFakeCluster(t, defaultNamespaces())})
	w.setLimits(concurrent, queued)
	return w, eu
}

// setLimits changes the limits, and waits until they apply.
func (w *fixture) setLimits(concurrent, queued int) {
	w.t.Helper()
	before := w.reloads()
	w.write("tenancy.yaml", limitedTo(concurrent, queued)+clusterEntry("eu1", ", root: true")+clusterEntry("us1", ""))
	waittest.Until(w.t, func() error {
		if w.reloads() == before {
			return errors.New("the configuration was not read")
		}
		return nil
	})
}

// reloads returns how many versions of the configuration have been applied.
func (w *fixture) reloads() (total float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(f.GetName(), "reload") {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "success" && m.GetCounter() != nil {
					total += m.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}

// waitForQueued waits until the given number of requests wait in the queue of the first cluster.
func (w *fixture) waitForQueued(number int) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		if got := w.gateway.Waiting("eu1"); got != number {
			return fmt.Errorf("%d requests wait, want %d", got, number)
		}
		return nil
	})
}

// call is a request in progress.
type call struct {
	code  chan int
	close context.CancelFunc
}

// start sends a request without waiting for the response.
func (w *fixture) start(token, path string, headers ...string) *call {
	ctx, cancel := context.WithCancel(w.t.Context())
	c := &call{code: make(chan int, 1), close: cancel}
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+path, http.NoBody)
		if err != nil {
			c.code <- 0
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		resp, err := w.server.Client().Do(req)
		if err != nil {
			c.code <- 0
			return
		}
		_ = resp.Body.Close()
		c.code <- resp.StatusCode
	}()
	return c
}

// wantCode waits for the response to a request, and fails the test if the status is not code.
func (c *call) wantCode(t *testing.T, code int) {
	t.Helper()
	select {
	case got := <-c.code:
		if got != code {
			t.Errorf("status %d, want %d", got, code)
		}
	case <-time.After(eventTimeout):
		t.Errorf("no response, want %d", code)
	}
}

// TestNoisyTenantDoesNotDelayOthers checks that a noisy tenant of a slow cluster does not delay a
// quiet tenant or requests to another cluster. Watches do not wait.
func TestNoisyTenantDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 2, 20)
	held := newSlowCluster(eu)
	noisy := []*call{w.start("alice-token", podsPath+"?hold=noisy")}
	held.waitFor(t, "noisy")
	noisy = append(noisy, w.start("alice-token", podsPath+"?hold=noisy"))
	held.waitFor(t, "noisy noisy")
	for range 10 {
		noisy = append(noisy, w.start("alice-token", podsPath+"?hold=noisy"))
	}
	w.waitForQueued(10)
	quiet := w.start("bob-token", globexPods+"?hold=quiet")
	w.waitForQueued(11)
	if code, text := w.get("bob-token", "/clusters/us1"+globexPods); code != http.StatusOK {
		t.Errorf("at the other cluster: %d: %s", code, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	watch := w.open(ctx, "bob-token", http.MethodGet, globexPods+"?watch=1", "")
	if watch.StatusCode != http.StatusOK {
		t.Errorf("a watch: %s", watch.Status)
	}
	cancel()
	_ = watch.Body.Close()
	held.release <- struct{}{}
	held.waitFor(t, "noisy noisy quiet")
	close(held.release)
	quiet.wantCode(t, http.StatusOK)
	for _, c := range noisy {
		c.wantCode(t, http.StatusOK)
	}
}

// TestFullQueue checks the response to a request if the queue is full, and that a quiet tenant can
// still enter the queue.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 1, 2)
	held := newSlowCluster(eu)
	first := w.start("alice-token", podsPath+"?hold=first")
	held.waitFor(t, "first")
	waits := []*call{w.start("alice-token", podsPath+"?hold=a"), w.start("alice-token", podsPath+"?hold=a")}
	w.waitForQueued(2)
	resp := w.open(t.Context(), "alice-token", http.MethodPost, podsPath, "{}")
	code, text := w.read(resp, nil)
	var status metav1.Status
	if err := json.Unmarshal([]byte(text), &status); err != nil || code != http.StatusTooManyRequests ||
		resp.Header.Get("Retry-After") != "1" || status.Reason != metav1.StatusReasonTooManyRequests ||
		status.Kind != "Status" || status.Code != http.StatusTooManyRequests {
		t.Errorf("%d, Retry-After %q, %v: %s", code, resp.Header.Get("Retry-After"), err, text)
	}
	quiet := w.start("bob-token", globexPods+"?hold=quiet")
	codes := map[int]int{}
	waittest.Until(t, func() error { // the quiet tenant's request replaces one from the noisy tenant
		for _, c := range waits {
			select {
			case code := <-c.code:
				codes[code]++
				return nil
			default:
			}
		}
		return errors.New("no request was refused")
	})
	close(held.release)
	first.wantCode(t, http.StatusOK)
	quiet.wantCode(t, http.StatusOK)
	select {
	case code := <-waits[0].code:
		codes[code]++
	case code := <-waits[1].code:
		codes[code]++
	case <-time.After(eventTimeout):
	}
	if codes[http.StatusOK] != 1 || codes[http.StatusTooManyRequests] != 1 {
		t.Errorf("of two requests that waited: %v, want one that was replaced by the quiet tenant's request", codes)
	}
}

// TestWaitingRequestsEnd checks that a waiting request ends when its client disconnects or its
// caller is revoked. The request is not sent, and does not block the queue.
func TestWaitingRequestsEnd(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 1, 10)
	held := newSlowCluster(eu)
	first := w.start("alice-token", podsPath+"?hold=first")
	held.waitFor(t, "first")
	left := w.start("alice-token", podsPath+"?hold=left")
	revoked := w.start("bob-token", globexPods+"?hold=revoked")
	w.waitForQueued(2)
	left.close()
	left.wantCode(t, 0)
	w.write("revoked.yaml", noRevocations+"tenants: [ { name: globex } ]\n")
	select {
	case code := <-revoked.code:
		if code == http.StatusOK {
			t.Error("the request of a revoked tenant succeeded")
		}
	case <-time.After(eventTimeout):
		t.Error("the request of a revoked tenant still waits")
	}
	close(held.release)
	first.wantCode(t, http.StatusOK)
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
		t.Errorf("after the queue is empty: %d: %s", code, text)
	}
	if got := held.names(); got != "first" {
		t.Errorf("the cluster received %q", got)
	}
}

// TestDeadlineInQueueGets429 checks that a request whose deadline passed while it waited gets 429,
// so that the client may retry.
func TestDeadlineInQueueGets429(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 1, 10)
	held := newSlowCluster(eu)
	first := w.start("alice-token", podsPath+"?hold=first")
	held.waitFor(t, "first")
	resp := w.open(t.Context(), "bob-token", http.MethodGet, globexPods+"?timeout=1s", "")
	if code, text := w.read(resp, nil); code != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d: %s", code, text)
	}
	close(held.release)
	first.wantCode(t, http.StatusOK)
}

// TestLimitChangeKeepsRequests checks that a change of the limits ends no running or waiting
// request. No slot of the queue is lost or used twice.
func TestLimitChangeKeepsRequests(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 2, 20)
	held := newSlowCluster(eu)
	var calls []*call
	for i := range 2 {
		calls = append(calls, w.start("alice-token", podsPath+"?hold=a"))
		held.waitFor(t, strings.TrimSpace(strings.Repeat("a ", i+1)))
	}
	for range 6 {
		calls = append(calls, w.start("alice-token", podsPath+"?hold=a"))
	}
	w.waitForQueued(6)
	w.setLimits(3, 20)
	held.waitFor(t, "a a a")
	w.setLimits(1, 20)
	held.release <- struct{}{}
	held.release <- struct{}{}
	time.Sleep(200 * time.Millisecond)
	if got := held.names(); got != "a a a" {
		t.Errorf("the cluster has received %q while it has as many requests as the new limit", got)
	}
	held.release <- struct{}{}
	held.waitFor(t, "a a a a")
	w.setLimits(5, 20)
	held.waitFor(t, "a a a a a a a a")
	close(held.release)
	for _, c := range calls {
		c.wantCode(t, http.StatusOK)
	}
}

// TestImpersonationReviewsWait checks that the access reviews for a tenant's impersonation also wait
// in the queue. The request and its reviews use one slot together.
func TestImpersonationReviewsWait(t *testing.T) {
	t.Parallel()
	w, eu := newLimitedFixture(t, 1, 10)
	var mu sync.Mutex
	reviewed := 0
	eu.update(func() {
		eu.allow = func(authorizationv1.SubjectAccessReviewSpec) bool {
			mu.Lock()
			defer mu.Unlock()
			reviewed++
			return true
		}
	})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return reviewed
	}
	if code, text := w.get("alice-token", podsPath, "Impersonate-User", "carol"); code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	before := count()
	held := newSlowCluster(eu)
	first := w.start("alice-token", podsPath+"?hold=first")
	held.waitFor(t, "first")
	second := w.start("alice-token", podsPath, "Impersonate-User", "dave")
	w.waitForQueued(1)
	if got := count(); got != before {
		t.Errorf("%d reviews were sent while the request waits", got-before)
	}
	close(held.release)
	first.wantCode(t, http.StatusOK)
	second.wantCode(t, http.StatusOK)
	if count() == before {
		t.Error("the impersonation was not reviewed, so this test shows nothing")
	}
}
