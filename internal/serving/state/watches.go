// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// probeInterval is the interval of the requests that check that kube-apiserver responds, and
	// probeTimeout limits each of them. A response proves that the data was current when the
	// request was sent.
	probeInterval = 2 * time.Second
	probeTimeout  = 10 * time.Second
	// lossNoticedWithin is how long a lost connection can stay unnoticed. It is the sum of the
	// times of [HTTP2Timeouts].
	lossNoticedWithin = 5 * time.Second
)

// retryBackoff is the backoff for failed lists and watches. The reflectors of client-go wait for up
// to a minute (tools/cache/reflector.go, v0.37.1), which is too long without data.
func retryBackoff() wait.Backoff {
	return wait.Backoff{
		Duration: 100 * time.Millisecond,
		Factor:   2,
		Jitter:   0.2,
		Steps:    20,
		Cap:      3 * time.Second,
	}
}

var (
	errNotEstablished = errors.New("could not be re-established")
	errStreamed       = errors.New("the list is streamed: turn off the feature WatchListClient, or old data stays in " +
		"use until the stream ends")
	errNotHTTP2  = errors.New("the connection does not use HTTP/2, so the service would not notice a lost connection")
	errNotServed = errors.New("the server does not serve this kind: its CustomResourceDefinition is missing")
)

// watches records whether the data about the cluster is current: whether kube-apiserver responds on
// the connection of the watches, and whether each watch is established. Events are no evidence,
// because a quiet cluster sends none and bookmarks come once a minute. Safe for concurrent use.
type watches struct {
	now func() time.Time

	mu       sync.Mutex
	answered time.Time
	open     map[string]int       // number of established watches by key
	broken   map[string]time.Time // since when a key has no established watch
	causes   map[string]error     // why it could not be established again
}

func newWatches(now func() time.Time) *watches {
	return &watches{
		now:      now,
		answered: now(),
		open:     map[string]int{},
		broken:   map[string]time.Time{},
		causes:   map[string]error{},
	}
}

// kindsPath is the path prefix of the project's kinds.
const kindsPath = "/apis/" + v1alpha1.GroupVersion + "/"

// projectResource returns the project's resource that the watch of a key follows, or "" for any other
// resource.
func projectResource(key string) string {
	path, _, _ := strings.Cut(key, "?")
	resource, ok := strings.CutPrefix(path, kindsPath)
	if !ok || strings.Contains(resource, "/") {
		return ""
	}
	return resource
}

// check returns why the data may be older than a time, or nil if it is not. It ignores watches of
// kinds that are not served if spare returns true for their resource.
func (w *watches) check(after time.Duration, ignore func(resource string) bool) error {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.answered) > after {
		return fmt.Errorf("kube-apiserver has not answered for %v", after)
	}
	for _, key := range slices.Sorted(maps.Keys(w.broken)) {
		if errors.Is(w.causes[key], errNotServed) && ignore(projectResource(key)) {
			continue
		}
		if now.Sub(w.broken[key]) > after {
			return fmt.Errorf("the watch of %s has been broken for %v: %w", key, after, w.causes[key])
		}
	}
	return nil
}

// probe calls the function ask repeatedly until ctx ends, and records when kube-apiserver
// responded. The function MUST use the connection of the watches.
func (w *watches) probe(ctx context.Context, send func(context.Context) error) {
	probeOnce := func() {
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		sent := w.now()
		if err := send(limited); err != nil {
			klog.FromContext(ctx).V(2).Info("kube-apiserver did not answer", "err", err)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if sent.After(w.answered) {
			w.answered = sent
		}
	}
	wait.UntilWithContext(ctx, func(context.Context) { go probeOnce() }, probeInterval) // a slow response delays no other
}

// established records that a watch is established.
func (w *watches) established(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[key]++
	delete(w.broken, key)
	delete(w.causes, key)
}

// ended records that a watch ended at a time.
func (w *watches) ended(key string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[key]--; w.open[key] > 0 {
		return
	}
	delete(w.open, key)
	w.broken[key], w.causes[key] = since, errNotEstablished
}

// failed records that a watch could not be established. It reports whether the failure is new.
func (w *watches) failed(key string, err error) bool {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[key] > 0 {
		return false
	}
	if _, known := w.broken[key]; !known {
		w.broken[key] = now
	}
	isNew := w.causes[key] == nil || errors.Is(w.causes[key], errNotEstablished)
	w.causes[key] = err
	return isNew
}

// wrap returns a transport that records the client's watches. It retries failed lists and watches
// of reflectors, which are the only requests with a resource version.
func (w *watches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		watch := query.Has("watch")
		if r.Method != http.MethodGet || !watch && !query.Has("resourceVersion") {
			return next.RoundTrip(r)
		}
		key := r.URL.Path
		if chosen := query.Get("fieldSelector"); chosen != "" {
			key += "?" + chosen
		}
		delay := retryBackoff()
		for {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusNotFound && projectResource(key) != "" {
				// The reflector would wait for up to a minute before it lists again.
				_ = resp.Body.Close()
				resp, err = nil, errNotServed
			}
			if err = w.recordResponse(key, watch, query.Has("sendInitialEvents"), resp, err); err == nil {
				return resp, nil
			}
			if w.failed(key, err) && r.Context().Err() == nil {
				klog.FromContext(r.Context()).Info("Failed to watch the cluster, will retry", "path", key, "err", err)
			}
			select {
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			case <-time.After(delay.Step()):
			}
		}
	})
}

// recordResponse records an established watch. The error is the reason to retry the request.
func (w *watches) recordResponse(key string, watch, streamed bool, resp *http.Response, err error) error {
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusGatewayTimeout:
		err = errors.New(resp.Status)
	case resp.StatusCode != http.StatusOK:
		// The reflector starts again, with another token, or without the resource version that has
		// expired (410) or is too new (504).
		w.failed(key, errors.New(resp.Status))
		return nil
	case !watch:
		return nil
	case resp.ProtoMajor != 2:
		err = errNotHTTP2
	case streamed:
		err = errStreamed
	default:
		w.established(key)
		resp.Body = &watchBody{ReadCloser: resp.Body, ended: func(since time.Time) { w.ended(key, since) }, now: w.now}
		return nil
	}
	_ = resp.Body.Close() // the status was already recorded
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watchBody reports the end of a watch. A lost connection ended before the loss was noticed.
type watchBody struct {
	io.ReadCloser
	now   func() time.Time
	once  sync.Once
	ended func(since time.Time)
}

func (n *watchBody) Read(b []byte) (int, error) {
	count, err := n.ReadCloser.Read(b)
	if err == nil {
		return count, nil
	}
	if errors.Is(err, io.EOF) {
		n.once.Do(func() { n.ended(n.now()) })
		return count, err
	}
	n.once.Do(func() { n.ended(n.now().Add(-lossNoticedWithin)) })
	return count, err
}

func (n *watchBody) Close() error {
	n.once.Do(func() { n.ended(n.now()) })
	return n.ReadCloser.Close()
}
