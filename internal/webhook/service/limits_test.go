// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubetenant/kubetenant/internal/turns"
	"github.com/kubetenant/kubetenant/tenant"
)

func ownerOf(namespace string) string {
	return map[string]string{"acme--web": "acme", "kube-system": "system"}[namespace]
}

// TestFlow checks the [turns.Flow] of reviews, including reviews with an incomplete body.
func TestFlow(t *testing.T) {
	system := func(user string) turns.Flow { return turns.FlowOf(tenant.System(), "user "+user) }
	named := func(name string) turns.Flow { return turns.Flow{Name: name} }
	const account = "system:serviceaccount:kube-system:a"
	const extra = `"extra":{"kubetenant.dev/tenant":["system"]}`
	for body, want := range map[string]turns.Flow{
		`{"request":{"uid":"u","userInfo":{"username":"a","groups":["g"],` +
			`"extra":{"kubetenant.dev/tenant":["acme"]}},"object":{"metadata":{"na`: named("acme"),
		`{"request":{"userInfo":{"username":"a","groups":["g","tenant:acme"]},"object":{`:               named("acme"),
		`{"request":{"userInfo":{"username":"system:serviceaccount:acme--web:default"},"object":{"x":1`: named("acme"),
		`{"spec":{"resourceAttributes":{"verb":"get"},"user":"a","groups":["g"],` +
			`"extra":{"kubetenant.dev/tenant":["acme"]}}}`: named("acme"),
		`{"request":{"userInfo":{"username":"a"},` +
			`"object":{"metadata":{"extra":{"kubetenant.dev/tenant":["globex"]}}}}}`: named(noTenant),
		`{"request":{"object":{"userInfo":{"username":"a"}},"userInfo":{"username":"b"}}}`: named(noTenant),
		`{"request":{"username":`: named(noTenant),
		`garbage`:                 named(noTenant),
		// Each caller of the system tenant has its own flow.
		`{"spec":{"user":"root",` + extra + `}}`: system("root"),
		`{"spec":{"user":"system:node:n1"}}`:     system("system:node:n1"),
		`{"spec":{"user":"` + account + `"}}`:    system(account),
		// A cluster-scoped write, and a write to a system namespace, have the flow of the user.
		`{"request":{"userInfo":{"username":"root",` + extra + `},"object":{`:                           system("root"),
		`{"request":{"namespace":"kube-system","userInfo":{"username":"root",` + extra + `},"object":{`: system("root"),
		// A controller works for the tenant that owns the namespace.
		`{"request":{"namespace":"acme--web","userInfo":{"username":"root",` + extra + `},"object":{`: named("acme"),
		`{"request":{"namespace":"acme--web","userInfo":{"username":"system:serviceaccount:kube-system:a"},` +
			`"object":{`: named("acme"),
		// Any client can be anonymous. A tenant's user remains in its own flow.
		`{"spec":{"user":"system:anonymous"}}`: named(noTenant),
		`{"request":{"namespace":"acme--web","userInfo":{"username":"system:anonymous"},` +
			`"object":{`: named(noTenant),
		`{"request":{"namespace":"acme--web","userInfo":{"username":"b",` +
			`"extra":{"kubetenant.dev/tenant":["globex"]}},"object":{`: named("globex"),
		// An object cannot set the namespace of the review.
		`{"request":{"userInfo":{"username":"root",` + extra +
			`},"object":{"namespace":"acme--web"},"namespace":"acme--web"}}`: system("root"),
	} {
		t.Run(body, func(t *testing.T) {
			if got := flowOf([]byte(body), ownerOf); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if got := forgeableFlow([]byte(body), ownerOf); got.Exempt || got.Name != want.Name {
				t.Errorf("%s without authentication: %+v, want %+v, not exempt", body, got, want)
			}
		})
	}
}

// emptyAnswer is an empty response.
type emptyAnswer struct{}

func (emptyAnswer) encode() ([]byte, error) { return []byte("{}"), nil }

// heldHandler is a handler of AdmissionReviews whose responses are delayed until a test releases
// them.
type heldHandler struct {
	t       *testing.T
	handler http.Handler
	mu      sync.Mutex
	in      []string // the users of the admitted requests
	release chan struct{}
	codes   map[string]map[int]int
}

func newHeldHandler(t *testing.T, a *admitter) *heldHandler {
	t.Helper()
	h := &heldHandler{t: t, release: make(chan struct{}), codes: map[string]map[int]int{}}
	h.handler = limited(a, func(_ context.Context, body []byte) (answer, error) {
		h.mu.Lock()
		h.in = append(h.in, userOf(body).name)
		h.mu.Unlock()
		<-h.release
		return emptyAnswer{}, nil
	})
	return h
}

// send sends a review from an address.
func (h *heldHandler) send(address, user, id string) {
	go func() {
		body := fmt.Sprintf(`{"request":{"userInfo":{"username":%q,"extra":{"kubetenant.dev/tenant":[%q]}}}}`, user, id)
		r := httptest.NewRequestWithContext(h.t.Context(), http.MethodPost, MutatePath, strings.NewReader(body))
		r.RemoteAddr = address + ":1"
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, r)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.codes[user] == nil {
			h.codes[user] = map[int]int{}
		}
		h.codes[user][w.Code]++
	}()
	synctest.Wait()
}

// next releases one request and returns the user of the request that is admitted next.
func (h *heldHandler) next() string {
	h.mu.Lock()
	before := len(h.in)
	h.mu.Unlock()
	h.release <- struct{}{}
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.in[before:], " ")
}

func testLimits() Limits {
	return Limits{
		Concurrent: 8,
		Queued:     100,
		Timeout:    time.Hour,
		BodyBytes:  1 << 20,
		Memory:     1 << 30,
	}
}

// TestForgedSystemTenantGetsNoExemption checks a service that does not authenticate its clients.
// A Pod sends reviews that name the system tenant and many other tenants. It must get neither the
// exemption nor the turns of the tenants whose reviews kube-apiserver sends, and must not fill
// the queue.
func TestForgedSystemTenantGetsNoExemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLimits()
		h := newHeldHandler(t, &admitter{
			limits:       l,
			queue:        turns.New(l.Concurrent, l.Queued, 1<<20),
			clientLimits: newClientLimits(l.Concurrent, l.Queued, 1<<20),
			flowOf:       func(head []byte) turns.Flow { return forgeableFlow(head, ownerOf) },
		})
		for range 150 {
			h.send("10.0.0.9", "forger", "system")
		}
		for i := range 50 {
			h.send("10.0.0.9", "forger", fmt.Sprint("tenant-", i))
		}
		for _, user := range []string{"alice", "bob"} {
			h.send("10.0.0.1", user, map[string]string{"alice": "acme", "bob": "globex"}[user])
		}
		if got := h.next(); got != "alice" {
			t.Errorf("after one request of the forger: %q is admitted, want alice", got)
		}
		h.send("10.0.0.1", "carol", "initech")
		if got := h.next(); got != "bob" && got != "forger" {
			t.Errorf("after two requests: %q is admitted", got)
		}
		close(h.release)
		synctest.Wait()
		if bad := h.codes["alice"][429] + h.codes["bob"][429] + h.codes["carol"][429]; bad != 0 {
			t.Errorf("because of the forger, %d requests from kube-apiserver are rejected", bad)
		}
		if h.codes["forger"][429] == 0 {
			t.Error("no request of the forger is rejected, so this test does not fill the queue")
		}
	})
}

// TestControlPlaneIsExempt checks that requests of the control plane are admitted before waiting
// requests of tenants, and that they can use more than an eighth of the places.
func TestControlPlaneIsExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLimits()
		h := newHeldHandler(t, &admitter{
			limits: l,
			queue:  turns.New(l.Concurrent, l.Queued, 1<<20),
			flowOf: func(head []byte) turns.Flow { return flowOf(head, ownerOf) },
		})
		for range 90 {
			h.send("10.0.0.1", "noisy", "acme")
		}
		for range 3 {
			h.send("10.0.0.1", "root", "system")
		}
		for range 3 {
			if got := h.next(); got != "root" {
				t.Errorf("%q is admitted, want the system tenant", got)
			}
		}
		close(h.release)
	})
}
