// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// The limits of a cluster's responses to the gateway itself. The gateway holds these responses in
// memory. It streams the responses to callers' requests.
const (
	// responseBytes is the maximum size of each response to a review, and of the responses with the
	// cluster's keys and version.
	responseBytes   = 1 << 20
	responseTimeout = 10 * time.Second
	// listBytes is the maximum total size of the lists that the gateway reads from one cluster at
	// the same time. client-go limits each event of a watch (k8s.io/apimachinery
	// pkg/runtime/serializer/streaming, v0.37.1: 16 MiB).
	listBytes = 128 << 20
)

var errResponseTooLarge = errors.New("the response of the cluster is too large")

// limitResponses returns a copy of config that limits the size of responses. Reading a response
// fails beyond its limit. newLimit returns the limit of a response, which several responses may
// share. Watches are not limited.
func limitResponses(config *rest.Config, newLimit func() *byteLimit) *rest.Config {
	out := rest.CopyConfig(config)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && !r.URL.Query().Has("watch") {
				resp.Body = &limitedBody{ReadCloser: resp.Body, limit: newLimit()}
			}
			return resp, err
		})
	})
	return out
}

// byteLimit is the number of bytes of responses that may still be held in memory. It is safe for
// concurrent use.
type byteLimit struct{ remaining atomic.Int64 }

func newByteLimit(maxBytes int64) *byteLimit {
	b := &byteLimit{}
	b.remaining.Store(maxBytes)
	return b
}

// limitedBody is a response body whose bytes use up limit until the body is closed.
type limitedBody struct {
	io.ReadCloser
	limit *byteLimit
	used  int64
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.used += int64(n)
	if b.limit.remaining.Add(-int64(n)) < 0 {
		return 0, errResponseTooLarge
	}
	return n, err
}

// Close implements [io.Closer].
func (b *limitedBody) Close() error {
	b.limit.remaining.Add(b.used)
	b.used = 0
	return b.ReadCloser.Close()
}
