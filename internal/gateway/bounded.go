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
	// answerBytes limits each response to a request that the gateway sends for a caller, such as a
	// review, the keys or the version.
	answerBytes  = 1 << 20
	answerWithin = 10 * time.Second
	// listBytes limits all lists together that are read at the same time. client-go limits each event
	// of a watch (k8s.io/apimachinery pkg/runtime/serializer/streaming, v0.37.1: 16 MiB).
	listBytes = 128 << 20
)

var errTooMuch = errors.New("the response of the cluster is too large")

// bounded returns a configuration that reads each response only up to a limit. Watches are not
// limited.
func bounded(config *rest.Config, of func() *byteLimit) *rest.Config {
	out := rest.CopyConfig(config)
	out.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && !r.URL.Query().Has("watch") {
				resp.Body = &boundedBody{ReadCloser: resp.Body, limit: of()}
			}
			return resp, err
		})
	})
	return out
}

// byteLimit is the number of bytes of responses that may still be held in memory. It is safe for
// concurrent use.
type byteLimit struct{ left atomic.Int64 }

func newByteLimit(most int64) *byteLimit {
	b := &byteLimit{}
	b.left.Store(most)
	return b
}

// boundedBody is a body that uses a limit until it ends.
type boundedBody struct {
	io.ReadCloser
	limit *byteLimit
	held  int64
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.held += int64(n)
	if b.limit.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	return n, err
}

// Close implements [io.Closer].
func (b *boundedBody) Close() error {
	b.limit.left.Add(b.held)
	b.held = 0
	return b.ReadCloser.Close()
}
