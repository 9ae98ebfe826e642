// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package outbound protects the server from external authentication services. It limits the size
// and concurrency of responses, rejects redirects and malformed JSON, drops error bodies, which may
// contain a token, and recovers from panics.
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

// MaxBytes is the maximum size of the body of a response in bytes. It is a hundred times the
// largest known response (a key set of a public provider), and small enough for many concurrent
// responses.
const MaxBytes = 1 << 20

// MaxHeaderBytes is the maximum size of the headers of a response in bytes.
const MaxHeaderBytes = 64 << 10

// The errors that the transports, [Decode] and [Gate] return. Test for them with [errors.Is].
var (
	ErrMalformed = errors.New("malformed response")
	ErrTooLarge  = errors.New("response too large")
	ErrRedirect  = errors.New("the response is a redirect")
	ErrBusy      = errors.New("too many concurrent requests")
)

// Unavailable is the type of errors that report an outage of a provider. During the outage, it
// is unknown whether a credential is valid.
type Unavailable string

// Error implements the interface error.
func (u Unavailable) Error() string { return string(u) }

// MaxConcurrent is the maximum number of responses that a source reads concurrently. Decoding a
// large response takes many times its size in memory.
const MaxConcurrent = 8

// Decode decodes a JSON response (RFC 8259) strictly. Names are case-sensitive. It rejects
// duplicate names and trailing data. Decode reads the body while it occupies a slot of gate.
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
	switch { // no error may contain data from the response
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

// Capped returns a transport that fails with [ErrTooLarge] if the body of a response is larger than
// [MaxBytes].
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

// StripErrorBodies returns a transport for requests that contain a caller's token. It limits bodies
// like [Capped]. It fails with [ErrRedirect] for a redirect, because following the redirect could
// send the token to another host. It drops the body of a response with an error status, because the
// body may contain the token.
func StripErrorBodies(next http.RoundTripper) http.RoundTripper {
	return StripErrorBodiesAt(MaxBytes, next)
}

// StripErrorBodiesAt is like [StripErrorBodies], with another limit for the body of a response.
func StripErrorBodiesAt(bytes int64, next http.RoundTripper) http.RoundTripper {
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
		resp.Body = http.NoBody
		resp.ContentLength = 0
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

// Recover returns a function that calls f, and returns err if f panics. Without Recover, a panic
// in a goroutine that serves several callers would end the server.
func Recover[T any](err error, f func() (T, error)) func() (T, error) {
	return func() (result T, problem error) {
		defer func() {
			if crash := recover(); crash != nil {
				// The value of the panic is not logged, because it may contain external data.
				klog.ErrorS(nil, "Recovered from a panic", "type", fmt.Sprintf("%T", crash), "stack", string(debug.Stack()))
				problem = err
			}
		}()
		return f()
	}
}

// Gate limits the number of concurrent operations, in case the called server hangs. The capacity of
// the channel is the number of slots. The zero value has no slot.
type Gate chan struct{}

// Enter waits for a slot. If ctx ends first, it fails with [ErrBusy]. If it succeeds, the caller
// MUST call Leave.
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

// Leave releases a slot.
func (g Gate) Leave() { <-g }
