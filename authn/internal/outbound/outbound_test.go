// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

func get(t *testing.T, transport http.RoundTripper, url string) (*http.Response, []byte, error) {
	t.Helper()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// flood returns a handler that writes n bytes without a Content-Length.
func flood(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := strings.Repeat("x", 1<<16)
		for n := n; n > 0; n -= len(chunk) {
			if _, err := io.WriteString(w, chunk[:min(n, len(chunk))]); err != nil {
				return
			}
		}
	}
}

func TestCapped(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    error
	}{
		"maximum size":       {flood(outbound.MaxBytes), nil},
		"one byte too large": {flood(outbound.MaxBytes + 1), outbound.ErrTooLarge},
		"a gigabyte":         {flood(1 << 30), outbound.ErrTooLarge},
		"a gigabyte, as Content-Length": {
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1073741824") },
			outbound.ErrTooLarge,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			_, data, err := get(t, outbound.Capped(http.DefaultTransport), server.URL)
			if !errors.Is(err, c.want) || len(data) > outbound.MaxBytes {
				t.Errorf("%d bytes, %v; want %v", len(data), err, c.want)
			}
			server.Close()
		})
	}
}

func TestStripErrorBodies(t *testing.T) {
	asked := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer elsewhere.Close()
	for code, want := range map[int]error{
		200: nil,
		301: outbound.ErrRedirect,
		302: outbound.ErrRedirect,
		307: outbound.ErrRedirect,
		308: outbound.ErrRedirect,
		400: nil,
		404: nil,
		500: nil,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(code)
				_, _ = io.WriteString(w, "the token")
			}))
			resp, data, err := get(t, outbound.StripErrorBodies(http.DefaultTransport), server.URL)
			if !errors.Is(err, want) || asked {
				t.Errorf("%v, redirect followed: %v; want %v", err, asked, want)
			}
			if err == nil && (resp.StatusCode != code || (len(data) > 0) != (code == 200)) {
				t.Errorf("%d with %q", resp.StatusCode, data)
			}
			server.Close()
		})
	}
}

func TestGate(t *testing.T) {
	g := make(outbound.Gate, 2)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		if err := g.Enter(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := g.Enter(ctx); !errors.Is(err, outbound.ErrBusy) {
		t.Errorf("Enter() = %v", err)
	}
	g.Leave()
	if err := g.Enter(t.Context()); err != nil {
		t.Errorf("Enter() = %v after Leave()", err)
	}
	if err := outbound.Gate(nil).Enter(ctx); !errors.Is(err, outbound.ErrBusy) {
		t.Errorf("the zero Gate has a slot: %v", err)
	}
}

// FuzzDecode checks that Decode and another parser read the same content from a response.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"status":{"authenticated":true}}`, `{"status":{"authenticated":false,"Authenticated":true}}`,
		`{"status":{"authenticated":false},"status":{"authenticated":true}}`, `{"status":{"authenticated":true}}{}`,
		`{"extra":{"k":["a"],"k":["b"]}}`,
	} {
		f.Add(seed)
	}
	type answer struct {
		Status struct {
			Authenticated bool `json:"authenticated"`
		} `json:"status"`
		Extra map[string][]string `json:"extra"`
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got answer
		if err := outbound.Decode(t.Context(), make(outbound.Gate, 1), strings.NewReader(text), &got); err != nil {
			return
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &exact); err != nil {
			t.Fatalf("accepted %q: %v", text, err)
		}
		var status map[string]json.RawMessage
		if exact["status"] != nil {
			if err := json.Unmarshal(exact["status"], &status); err != nil {
				t.Fatalf("accepted %q: %v", text, err)
			}
		}
		if got.Status.Authenticated != (string(status["authenticated"]) == "true") {
			t.Fatalf("%q: authenticated %t", text, got.Status.Authenticated)
		}
		var extra map[string][]string
		if exact["extra"] != nil {
			if err := json.Unmarshal(exact["extra"], &extra); err != nil {
				t.Fatalf("accepted %q: %v", text, err)
			}
		}
		if len(extra) != len(got.Extra) {
			t.Fatalf("%q: extra %v", text, got.Extra)
		}
	})
}
