// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package outbound bounds what a server that is asked about credentials can
// do to us by its answers.
package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"

	"k8s.io/klog/v2"
	"sigs.k8s.io/json"
)

// MaxBytes bounds the body of an answer: a hundred times the largest seen (a key set of a public
// provider), and small enough that many at once are no danger.
const MaxBytes = 1 << 20

// MaxHeaderBytes bounds the headers of an answer.
const MaxHeaderBytes = 64 << 10

// Errors of the transports and the gate; to be tested with [errors.Is].
var (
	ErrMalformed = errors.New("malformed response")
	ErrTooLarge  = errors.New("response too large")
	ErrRedirect  = errors.New("the response is a redirect")
	ErrBusy      = errors.New("too many concurrent requests")
)

// Unavailable is the error of a provider that cannot be asked: nothing was
// learned of the credential.
type Unavailable string

// Error implements error.
func (u Unavailable) Error() string { return string(u) }

// AtOnce is how many answers a source reads at a time: a large one takes many times its size.
const AtOnce = 8

// Decode reads an answer, JSON (RFC 8259), in one way only: names count in their own case, and it
// is refused if one stands twice or anything follows. The gate bounds how many are read at a time.
func Decode(ctx context.Context, gate Gate, body io.Reader, into any) error {
	if err := gate.Enter(ctx); err != nil {
		return err
	}
	defer gate.Leave()
	data, err := io.ReadAll(io.LimitReader(body, MaxBytes+1))
	switch {
	case err != nil:
		return err
	case len(data) > MaxBytes:
		return ErrTooLarge
	}
	strict, err := json.UnmarshalStrict(data, into, json.DisallowDuplicateFields)
	switch { // no error may contain what the answer contains
	case len(bytes.TrimSpace(data)) == 0:
		return fmt.Errorf("%w: it is empty", ErrMalformed)
	case bytes.HasPrefix(data, []byte("\ufeff")):
		return fmt.Errorf("%w: it begins with a byte order mark", ErrMalformed)
	case err != nil:
		return fmt.Errorf("%w: it is not the expected JSON", ErrMalformed)
	case len(strict) > 0:
		return fmt.Errorf("%w: a JSON object has a member twice", ErrMalformed)
	}
	return nil
}

// Capped returns a transport whose answers end in [ErrTooLarge] beyond [MaxBytes].
func Capped(next http.RoundTripper) http.RoundTripper { return cappedAt(MaxBytes, next) }

func cappedAt(bytes int64, next http.RoundTripper) http.RoundTripper {
	return transport(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if resp.ContentLength > bytes {
			_ = resp.Body.Close()
			return nil, ErrTooLarge
		}
		resp.Body = &cappedBody{resp.Body, bytes}
		return resp, nil
	})
}

// Discreet returns a capped transport for requests that carry somebody's token: it follows no
// redirect, which would show the token to another host, and drops the body of an answer that is no
// success, which may echo the token into an error.
func Discreet(next http.RoundTripper) http.RoundTripper { return DiscreetAt(MaxBytes, next) }

// DiscreetAt is [Discreet] with another limit for the body of an answer.
func DiscreetAt(bytes int64, next http.RoundTripper) http.RoundTripper {
	next = cappedAt(bytes, next)
	return transport(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode < 300 {
			return resp, err
		}
		_ = resp.Body.Close()
		if resp.StatusCode < 400 {
			return nil, ErrRedirect
		}
		resp.Body, resp.ContentLength = http.NoBody, 0
		return resp, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

type cappedBody struct {
	io.ReadCloser
	left int64
}

func (b *cappedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// Recover returns f with a panic turned into an error: in a flight, which is a goroutine of its
// own, it would end the server.
func Recover[T any](err error, f func() (T, error)) func() (T, error) {
	return func() (result T, problem error) {
		defer func() {
			if crash := recover(); crash != nil {
				// The value may hold what came from outside.
				klog.ErrorS(nil, "Recovered from a panic", "type", fmt.Sprintf("%T", crash), "stack", string(debug.Stack()))
				problem = err
			}
		}()
		return f()
	}
}

// Gate bounds how many requests are under way at once, so that a server that hangs holds no more
// than those. Its zero value lets nobody through.
type Gate chan struct{}

// Enter waits for a place until ctx ends, and answers [ErrBusy] then. The caller must Leave.
func (g Gate) Enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrBusy
	}
}

// Leave gives a place back.
func (g Gate) Leave() { <-g }
