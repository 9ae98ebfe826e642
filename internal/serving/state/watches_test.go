// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// testClient is a client whose server returns the responses that a test sets.
type testClient struct {
	*watches
	http.RoundTripper
	code  atomic.Int64 // 0: the connection fails
	proto int
	asked atomic.Int64
	body  io.ReadCloser
}

func newTestClient() *testClient {
	f := &testClient{watches: newWatches(time.Now), proto: 2}
	f.code.Store(http.StatusOK)
	f.RoundTripper = f.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		f.asked.Add(1)
		if f.code.Load() == 0 {
			return nil, errors.New("connection refused")
		}
		body := f.body
		if body == nil {
			body = io.NopCloser(strings.NewReader(""))
		}
		code := int(f.code.Load())
		return &http.Response{
			StatusCode: code,
			Status:     http.StatusText(code),
			ProtoMajor: f.proto,
			Body:       body,
		}, nil
	}))
	return f
}

func (f *testClient) get(ctx context.Context, t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f.RoundTrip(r)
}

const watchURL = "https://server/api/v1/namespaces?watch=true&resourceVersion=1"

// TestWatches checks that the data is too old if the last response to a probe is too old, or if a
// watch has been broken for too long.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestClient()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var answers atomic.Bool
		answers.Store(true)
		go f.probe(ctx, func(ctx context.Context) error {
			if answers.Load() {
				return nil
			}
			<-ctx.Done() // a connection without data
			return ctx.Err()
		})
		stale := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if err := f.check(10*time.Second, func(string) bool { return false }); (err == nil) != (want == "") ||
				err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", when, err, want)
			}
		}
		reader, writer := io.Pipe()
		f.body = reader
		first, err := f.get(ctx, t, watchURL)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		stale("a quiet watch and a server that answers", "")
		answers.Store(false)
		time.Sleep(9 * time.Second)
		stale("nine seconds of silence", "")
		time.Sleep(3 * time.Second)
		stale("twelve seconds of silence", "has not answered for 10s")
		answers.Store(true)
		time.Sleep(3 * time.Second)
		stale("it answers again", "")

		resp, err := f.get(ctx, t, watchURL)
		if err != nil {
			t.Fatal(err)
		}
		_ = writer.CloseWithError(errors.New("client connection lost"))
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Fatal("a lost watch continues")
		}
		time.Sleep(time.Minute)
		stale("one of two watches of a path is lost", "")
		if _, err := first.Body.Read(make([]byte, 1)); err == nil {
			t.Fatal("a lost watch continues")
		}
		time.Sleep(4 * time.Second)
		stale("four seconds after the loss was noticed, within five", "")
		time.Sleep(2 * time.Second)
		stale("no watch for more than ten seconds", "/api/v1/namespaces has been broken for 10s: could not be re-established")
		f.body = nil
		if _, err := f.get(ctx, t, watchURL); err != nil {
			t.Fatal(err)
		}
		stale("an established watch again", "")
	})
}

// TestFailedWatchesAreRetried checks that failed lists and watches of reflectors are retried
// every few seconds, without a limit. Other failed requests are not retried.
func TestFailedWatchesAreRetried(t *testing.T) {
	for name, c := range map[string]struct {
		url   string
		code  int
		proto int
		again bool
	}{
		"a watch, no connection":     {watchURL, 0, 2, true},
		"a watch, forbidden":         {watchURL, http.StatusForbidden, 2, true},
		"a watch, too many":          {watchURL, http.StatusTooManyRequests, 2, true},
		"a watch, unavailable":       {watchURL, http.StatusServiceUnavailable, 2, true},
		"a watch over HTTP/1.1":      {watchURL, http.StatusOK, 1, true},
		"a streamed list":            {watchURL + "&sendInitialEvents=true", http.StatusOK, 2, true},
		"a list, no connection":      {"https://server/api/v1/namespaces?resourceVersion=0", 0, 2, true},
		"a watch, unauthorized":      {watchURL, http.StatusUnauthorized, 2, false},
		"a watch, gone":              {watchURL, http.StatusGone, 2, false},
		"a watch, too new":           {watchURL, http.StatusGatewayTimeout, 2, false},
		"a kind that is not defined": {kindURL("tenants"), http.StatusNotFound, 2, true},
		"another path, not found":    {watchURL, http.StatusNotFound, 2, false},
		"a read":                     {"https://server/api/v1/namespaces/n", 0, 2, false},
		"a list without a version":   {"https://server/api/v1/namespaces", 0, 2, false},
		"a read that is unavailable": {"https://server/api/v1/namespaces/n", http.StatusServiceUnavailable, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestClient()
				f.proto = c.proto
				f.code.Store(int64(c.code))
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				_, _ = f.get(ctx, t, c.url)
				stop()
				if asked := f.asked.Load(); (asked > 1) != c.again || c.again && asked < 5*60/4 {
					t.Errorf("%d requests", asked)
				}
				if stale := f.check(10*time.Second, func(string) bool { return false }) != nil; strings.Contains(c.url, "watch") &&
					!stale {
					time.Sleep(11 * time.Second)
					if f.check(10*time.Second, func(string) bool { return false }) == nil {
						t.Error("the check does not report the failure")
					}
				}
			})
		})
	}
}
