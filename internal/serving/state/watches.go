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
	// probeInterval is the interval of the requests that check whether kube-apiserver responds.
	// probeTimeout is the timeout of each request. A response proves that the connection worked
	// after the request was sent.
	probeInterval = 2 * time.Second
	probeTimeout  = 10 * time.Second
	// lossNoticedWithin is the maximum time before a lost connection is noticed. It is the sum of
	// the values of [HTTP2Timeouts].
	lossNoticedWithin = 5 * time.Second
)

// retryBackoff is the backoff for failed lists and watches. The reflectors of client-go wait for
// up to a minute (tools/cache/reflector.go, v0.37.1), so the data would be outdated for too long.
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

// watches records whether the data about the cluster is current. The data is current if
// kube-apiserver responds on the connection of the watches, and each watch is established. The
// arrival of events cannot show this, because a quiet cluster sends none, and bookmarks arrive
// only once a minute. The key of a watch is its path and its field selector. watches is safe for
// concurrent use.
type watches struct {
	now func() time.Time

	mu       sync.Mutex
	answered time.Time
	open     map[string]int       // number of established watches for each key
	broken   map[string]time.Time // time since which a key has had no established watch
	causes   map[string]error     // error with which the watch could not be established
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

// kindsPath is the path prefix of the resources of kubetenant.dev.
const kindsPath = "/apis/" + v1alpha1.GroupVersion + "/"

// projectResource returns the name of the resource that the watch of a key follows, or "" if the
// resource does not belong to kubetenant.dev.
func projectResource(key string) string {
	path, _, _ := strings.Cut(key, "?")
	resource, ok := strings.CutPrefix(path, kindsPath)
	if !ok || strings.Contains(resource, "/") {
		return ""
	}
	return resource
}

// check returns an error if the data may be older than the given duration. If ignore returns true
// for a resource, a watch of the resource may be missing because the server does not serve it.
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

// probe calls send repeatedly until ctx ends. It records the time at which the last successful
// request was sent. send MUST use the connection of the watches.
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
	wait.UntilWithContext(ctx, func(context.Context) { go probeOnce() }, probeInterval) // does not wait for responses
}

// established records that a watch is established.
func (w *watches) established(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[key]++
	delete(w.broken, key)
	delete(w.causes, key)
}

// ended records that a watch ended at the given time.
func (w *watches) ended(key string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[key]--; w.open[key] > 0 {
		return
	}
	delete(w.open, key)
	w.broken[key], w.causes[key] = since, errNotEstablished
}

// failed records that a watch could not be established. It returns true for the first failure
// since the watch ended, or for the first failure of a watch that was never established.
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

// wrap returns a transport that records the client's watches. It retries the failed lists and
// watches of reflectors. Only reflectors set a resource version.
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
				// Retry here, because the reflector would wait for up to a minute before it lists
				// again.
				_ = resp.Body.Close()
				resp = nil
				err = errNotServed
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

// recordResponse records whether a watch was established. If it returns an error, the request must
// be retried.
func (w *watches) recordResponse(key string, watch, streamed bool, resp *http.Response, err error) error {
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusGatewayTimeout:
		err = errors.New(resp.Status)
	case resp.StatusCode != http.StatusOK:
		// The reflector itself starts again, for example with another token, or without the
		// resource version that has expired (410) or is too new (504).
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

// watchBody calls ended once when a watch ends. If the connection was lost, since is the earliest
// time at which the loss can have happened.
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
