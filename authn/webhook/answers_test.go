// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/authn/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

const review = `"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"`

// TestAmbiguousResponsesAreUnreadable checks that a response is unreadable if another parser might
// read it differently.
func TestAmbiguousResponsesAreUnreadable(t *testing.T) {
	const user = `"user":{"username":"alice"}`
	for answer, want := range map[string]error{
		`{` + review + `,"status":{"authenticated":true,` + user + `}}`:                       nil,
		`{` + review + `,"status":{"authenticated":true,` + user + `},"more":{"a":1}}`:        nil,
		"\n{" + review + `,"status":{"authenticated":true,` + user + `}} ` + "\n":             nil,
		`{` + review + `,"status":{"authenticated":false,"Authenticated":true,` + user + `}}`: webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"Authenticated":true,` + user + `}}`:                       webhook.ErrNotAuthenticated,
		`{` + review + `,"Status":{"authenticated":true,` + user + `}}`:                       webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":false,"authenticated":true,` + user + `}}`: webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":false},"status":{"authenticated":true,` + user +
			`}}`: webhook.ErrUnreadable,
		`{` + review +
			`,"status":{"authenticated":true,"user":{"username":"alice","username":"bob"}}}`: webhook.ErrUnreadable,
		`{` + review +
			`,"status":{"authenticated":true,"user":{"username":"alice","extra":{"k":["a"],` +
			`"k":["b"]}}}}`: webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":true,` + user + `}}{}`:                       webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":true,` + user + `}}` + "\x00":                webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":true,` + user + `}` + `,"status\u0000":{}}}`: webhook.ErrUnreadable,
		`{"apiversion":"authentication.k8s.io/v1","Kind":"TokenReview","status":{"authenticated":true,` + user +
			`}}`: webhook.ErrUnreadable,
		`{` + review + `,"status":{"authenticated":true,"user":{"username":"alice","groups":[` +
			strings.Repeat(`"g",`, 2000) + `"g"]}}}`: tenant.ErrLarge,
	} {
		t.Run(answer, func(t *testing.T) {
			a := open(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			})
			if _, ok, err := a.AuthenticateToken(t.Context(), "token"); !errors.Is(err, want) || ok != (want == nil) {
				t.Errorf("%.140s: %t, %v; want %v", answer, ok, err, want)
			}
		})
	}
}

// TestUnreadableResponsesAreOutages checks that a response that is not a TokenReview is an outage.
// The error describes why it is unreadable, and contains no other part of the response.
func TestUnreadableResponsesAreOutages(t *testing.T) {
	const status = `"status":{"authenticated":true,"user":{"username":"CANARY"}}`
	for name, c := range map[string]struct{ contentType, answer, want string }{
		"v1beta1": {
			"application/json", `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview",` + status + `}`,
			"apiVersion is authentication.k8s.io/v1beta1, and must be authentication.k8s.io/v1",
		},
		"no version": {"application/json", `{"kind":"TokenReview",` + status + `}`, "apiVersion is missing or invalid"},
		"an invalid version": {
			"application/json", `{"apiVersion":"CANARY CANARY","kind":"TokenReview",` + status + `}`,
			"apiVersion is missing or invalid",
		},
		"another kind": {
			"application/json", `{"apiVersion":"authentication.k8s.io/v1","kind":"Status",` + status + `}`, "kind is Status",
		},
		"no kind":   {"application/json", `{"apiVersion":"authentication.k8s.io/v1",` + status + `}`, "kind is missing"},
		"no status": {"application/json", `{` + review + `,"spec":{"token":"CANARY"}}`, "status is missing"},
		"null":      {"application/json", `null`, "apiVersion is missing"},
		"an HTML page": {
			"text/html; charset=utf-8", "<html>CANARY</html>", "it is not the expected JSON (Content-Type text/html)",
		},
		"no content":        {"application/json", "", "it is empty"},
		"a byte order mark": {"application/json", "\ufeff{" + review + `,` + status + `}`, "a byte order mark"},
		"a duplicate status": {
			"application/json", `{` + review + `,"status":{"authenticated":false},` + status + `}`, "has a member twice",
		},
		"a string instead of a boolean": {
			"application/json", `{` + review + `,"status":{"authenticated":"CANARY"}}`, "it is not the expected JSON",
		},
		"too large": {
			"application/json", `{"x":"` + strings.Repeat("CANARY", 1<<18) + `"}`, "response too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				_, _ = io.WriteString(w, c.answer)
			})
			var logged authntest.Log
			logger := funcr.New(func(_, args string) { _, _ = logged.Write([]byte(args + "\n")) }, funcr.Options{})
			ctx := klog.NewContext(t.Context(), logger)
			for range 3 {
				_, ok, err := a.AuthenticateToken(ctx, "token")
				if ok || !errors.Is(err, webhook.ErrUnreadable) || !errors.As(err, new(outbound.Unavailable)) ||
					!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "CANARY") {
					t.Errorf("%t, %v; want %s", ok, err, c.want)
				}
			}
			if n := strings.Count(logged.String(), c.want); n != 1 || !strings.Contains(logged.String(), `"source"="partner"`) {
				t.Errorf("logged %d times:\n%s", n, logged.String())
			}
			if strings.Contains(logged.String(), "CANARY") {
				t.Errorf("the log contains a part of the response:\n%s", logged.String())
			}
		})
	}
}

// TestRejectionReasons checks that errors contain the service's reason, truncated and without
// control characters, unless it contains a part of the token.
func TestRejectionReasons(t *testing.T) {
	const token = "SECRET-0123456789-abcdefghij"
	for reason, want := range map[string]string{
		"":                      "the service did not authenticate the token",
		"token expired":         "the service did not authenticate the token: token expired",
		"a\nb\x1b[31m c\u202ed": "the service did not authenticate the token: a b [31m c d",
		strings.Repeat("x",
			300): "the service did not authenticate the token: " + strings.Repeat("x", 200) + "...",
		token:                                        "contains a part of the token",
		"no such token " + token[:12]:                "contains a part of the token",
		"no such token " + token[len(token)-9:]:      "contains a part of the token",
		strings.ReplaceAll(token, "-", "%2D"):        "contains a part of the token",
		strings.ToLower(token):                       "contains a part of the token",
		strings.Join(strings.Split(token, ""), "\n"): "contains a part of the token",
		"%53%45%43%52%45%54%2D0123456789":            "contains a part of the token",
	} {
		t.Run(reason, func(t *testing.T) {
			a := open(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{
					TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
					Status:   authenticationv1.TokenReviewStatus{Error: reason},
				})
			})
			_, ok, err := a.AuthenticateToken(t.Context(), token)
			if ok || !errors.Is(err, webhook.ErrNotAuthenticated) || !strings.HasSuffix(err.Error(), want) ||
				errors.As(err, new(outbound.Unavailable)) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%t, %v; want %s", ok, err, want)
			}
		})
	}
}

// TestLargeResponsesAreNotRetained checks that only a few of many large responses are read at the
// same time, and that none is retained.
func TestLargeResponsesAreNotRetained(t *testing.T) {
	answer := `{` + review + `,"status":{"authenticated":true,"user":{"username":"alice","groups":[` +
		strings.Repeat(`"g0000",`, 120_000) + `"g"]}}}`
	a := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all errgroup.Group
	all.SetLimit(24) // three times the limit of concurrent reads
	for i := range 48 {
		all.Go(func() error {
			if _, ok, err := a.AuthenticateToken(t.Context(), fmt.Sprint("token", i)); ok || err == nil {
				return errors.New("accepted")
			}
			return nil // too large or too late
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 100<<20 {
		t.Errorf("the process grew by %d MiB", grown>>20)
	}
}
