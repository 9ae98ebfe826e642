// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const (
	retryEvery  = 100 * time.Millisecond
	retryWithin = 30 * time.Second
	sendEvery   = 50 * time.Millisecond
)

// request is a request that a caller sends repeatedly. The status code of its final response must
// be one of want.
type request struct {
	name         string
	token        string // empty for the administrator
	method, path string
	body         string
	want         []int
	// liveRead is the server's timeout for an uncached read of an object that the decision
	// requires. On a busy server, the read may time out and the request may be denied, even
	// without an upgrade. If liveRead is 0, the decision requires no uncached read.
	liveRead time.Duration
}

func tenantRequests() []*request { return slices.Concat(allowedRequests(), deniedRequests()) }

// allowedRequests returns requests that must not be denied.
func allowedRequests() []*request {
	const get, post = http.MethodGet, http.MethodPost
	ok, created := []int{http.StatusOK}, []int{http.StatusCreated}
	return []*request{
		{
			name:   "a tenant reads its namespace",
			token:  "alice",
			method: get,
			path:   "/api/v1/namespaces/acme--web/configmaps/settings",
			want:   ok,
		},
		{
			name:   "a tenant lists its namespaces",
			token:  "alice",
			method: get,
			path:   "/api/v1/namespaces?labelSelector=kubetenant.dev%2Ftenant%3Dacme",
			want:   ok,
		},
		{
			name:   "a tenant writes",
			token:  "alice",
			method: post,
			path:   "/api/v1/namespaces/acme--web/configmaps?dryRun=All",
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"written"}}`,
			want:   created,
		},
		{
			name:   "a tenant creates a SelfSubjectAccessReview",
			token:  "alice",
			method: post,
			path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":` +
				`{"resourceAttributes":{"verb":"get","resource":"secrets","namespace":"globex--shop"}}}`,
			want: created,
		},
		{
			name:     "a tenant reads an object that a grant allows",
			token:    "bob",
			method:   get,
			path:     "/api/v1/namespaces/acme--web/configmaps/settings",
			want:     ok,
			liveRead: 2 * time.Second,
		},
		{
			name:   "the system lists Tenants",
			method: get,
			path:   "/apis/kubetenant.dev/v1alpha1/tenants",
			want:   ok,
		},
		{
			name:   "the system reads a namespace",
			method: get,
			path:   "/api/v1/namespaces/acme--web/configmaps/settings",
			want:   ok,
		},
	}
}

// deniedRequests returns requests that must not be allowed.
func deniedRequests() []*request {
	const get, post = http.MethodGet, http.MethodPost
	denied, unknown := []int{http.StatusForbidden}, []int{http.StatusUnauthorized}
	return []*request{
		{
			name:   "a tenant reads another tenant's namespace",
			token:  "alice",
			method: get,
			path:   "/api/v1/namespaces/globex--shop/configmaps",
			want:   denied,
		},
		{
			name:   "a tenant reads objects without a grant",
			token:  "bob",
			method: get,
			path:   "/api/v1/namespaces/acme--web/secrets",
			want:   denied,
		},
		{
			name:   "a tenant reads nodes",
			token:  "alice",
			method: get,
			path:   "/api/v1/nodes",
			want:   denied,
		},
		{
			name:   "a tenant writes another tenant's label",
			token:  "alice",
			method: post,
			path:   "/api/v1/namespaces?dryRun=All",
			body: `{"apiVersion":"v1","kind":"Namespace",` +
				`"metadata":{"name":"acme--x","labels":{"kubetenant.dev/tenant":"globex"}}}`,
			want: denied,
		},
		{
			name:   "a caller of a suspended tenant",
			token:  "carol",
			method: get,
			path:   "/api/v1/namespaces/initech--web/configmaps",
			want:   denied,
		},
		{
			name:   "a caller of a deleted tenant",
			token:  "dave",
			method: get,
			path:   "/api/v1/namespaces",
			want:   unknown,
		},
		{
			name:   "a revoked caller",
			token:  "mallory",
			method: get,
			path:   "/api/v1/namespaces",
			want:   unknown,
		},
		{
			name:   "an unknown token",
			token:  "nobody",
			method: get,
			path:   "/api/v1/namespaces",
			want:   unknown,
		},
	}
}

// traffic sends requests until stop is called.
type traffic struct {
	stop   context.CancelFunc
	within time.Duration
	wg     sync.WaitGroup
	sent   atomic.Int64

	mu       sync.Mutex
	failures []string
	retried  map[string]int
}

// sender returns an HTTP client with the caller's credentials. If keepAlive is true, the client
// reuses its connection, as controllers do.
func sender(t *testing.T, c *rest.Config, token string, keepAlive bool) *http.Client {
	t.Helper()
	if token != "" {
		anonymous := rest.AnonymousClientConfig(c)
		anonymous.BearerToken = "token-" + token
		c = anonymous
	}
	transport, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{TLSClientConfig: transport, DisableKeepAlives: !keepAlive, ForceAttemptHTTP2: keepAlive}
	wrapped, err := rest.HTTPWrappersForConfig(c, base)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: wrapped, Timeout: 20 * time.Second}
}

// startTraffic sends each request in a loop, over one persistent connection and over new
// connections. A request that gets no final response within the given duration fails.
func startTraffic(t *testing.T, c *rest.Config, all []*request, within time.Duration) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	tr := &traffic{stop: stop, within: within, retried: map[string]int{}}
	for _, r := range all {
		for _, keepAlive := range []bool{true, false} {
			client := sender(t, c, r.token, keepAlive)
			tr.wg.Go(func() {
				for ctx.Err() == nil {
					tr.send(ctx, client, c.Host, r)
					time.Sleep(sendEvery)
				}
			})
		}
	}
	t.Cleanup(func() {
		stop()
		tr.wg.Wait()
	})
	return tr
}

// send sends a request until it gets a final response. It retries after connection errors,
// status 429, status 503, and a denial (403) that took at least liveRead.
func (tr *traffic) send(ctx context.Context, client *http.Client, host string, r *request) {
	last := ""
	for begun := time.Now(); time.Since(begun) < tr.within; time.Sleep(retryEvery) {
		sent := time.Now()
		code, body, err := answer(ctx, client, host, r)
		if ctx.Err() != nil {
			return
		}
		switch {
		case code == http.StatusForbidden && r.liveRead > 0 && time.Since(sent) >= r.liveRead:
			last = body
			tr.recordRetry(r, "slow read")
		case err != nil:
			last = err.Error()
			tr.recordRetry(r, "connection error")
		case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
			last = body
			tr.recordRetry(r, fmt.Sprint(code))
		default:
			tr.sent.Add(1)
			if !slices.Contains(r.want, code) {
				tr.fail("%s: %d %s; want %v", r.name, code, body, r.want)
			}
			return
		}
	}
	tr.fail("%s: no final answer within %v: %s", r.name, tr.within, last)
}

func answer(ctx context.Context, client *http.Client, host string, r *request) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, r.method, host+r.path, strings.NewReader(r.body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(bytes.TrimSpace(text[:min(len(text), 400)])), err
}

func (tr *traffic) recordRetry(r *request, reason string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.retried[r.name+": "+reason]++
}

func (tr *traffic) fail(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failures = append(tr.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// check fails the test if requests have failed since the last call. phase names the step that has
// ended.
func (tr *traffic) check(t *testing.T, phase string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	const shown = 10
	for _, failure := range tr.failures[:min(shown, len(tr.failures))] {
		t.Errorf("%s: %s", phase, failure)
	}
	t.Logf("%s: %d requests, %d failures; retried %v", phase, tr.sent.Swap(0), len(tr.failures), tr.retried)
	tr.failures, tr.retried = nil, map[string]int{}
}
