// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const acmePods = "/api/v1/namespaces/acme--web/pods"

// codeOf sends one request as get does. It returns the status code and the header Retry-After
// of the response.
func codeOf(t *testing.T, s *server, name, path string) (code int, retryAfter string) {
	t.Helper()
	resp := get(t.Context(), t, s.config(t, name), path)
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// setFairUse sets the limits in the Tenant acme.
func setFairUse(t *testing.T, s *server, limits string) {
	t.Helper()
	s.apply(t, "apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\nspec: { id: acme, fairUse: "+
		limits+" }\n")
}

// awaitLimits waits until the server reports the given limits for acme.
func awaitLimits(t *testing.T, s *server, want fairuse.Limits) {
	t.Helper()
	waittest.Until(t, func() error {
		if got := reportOf(t, s, "acme"); len(got) != 1 || got[0].Tenant != "acme" || got[0].Limits != want {
			return fmt.Errorf("the server reports %+v", got)
		}
		return nil
	})
}

// reportOf returns the fair-use reports that the server returns to the named caller. It returns
// nil if the caller has no access.
func reportOf(t *testing.T, s *server, name string) []*fairuse.Report {
	t.Helper()
	resp := get(t.Context(), t, s.config(t, name), authz.FairUsePath)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var reports fairuse.Reports
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &reports); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return reports.Items
}

// fairUseIsEnforced checks that the server rejects invalid fair-use limits in a Tenant. It also
// checks that limits on watches and on the request rate are enforced. The parameter defaults
// contains the limits of tenants without their own limits.
func fairUseIsEnforced(t *testing.T, s *server, defaults fairuse.Limits) {
	for _, invalid := range []string{
		"{ requestsPerSecond: 0 }", "{ requestsPerSecond: -1 }", "{ requestsPerSecond: 100001 }", "{ burst: 0 }",
		"{ inFlight: 0 }", "{ watches: 1000001 }", "{ level: Gold }", "{ requestsPerSecond: 1.5 }",
	} {
		text := "apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\nspec: { id: acme, fairUse: " +
			invalid + " }\n"
		if out, err := s.kubectl(t, "admin", "apply", "-f", testFile(t, text)); err == nil {
			t.Errorf("%s was accepted: %s", invalid, out)
		}
	}
	setFairUse(t, s, "{ watches: 2 }")
	limits := defaults
	limits.Watches = 2
	awaitLimits(t, s, limits)
	watchesAreLimited(t, s)
	setFairUse(t, s, "{ requestsPerSecond: 1, burst: 3 }")
	limits = defaults
	limits.RequestsPerSecond, limits.Burst = 1, 3
	awaitLimits(t, s, limits)
	rateIsLimited(t, s)
	setFairUse(t, s, "{}")
	awaitLimits(t, s, defaults)
}

func watchesAreLimited(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 2 {
		resp := get(ctx, t, s.config(t, "acme"), acmePods+"?watch=1")
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, resp.Status)
		}
	}
	if code, retryAfter := codeOf(t, s, "acme", acmePods+"?watch=1"); code != http.StatusTooManyRequests ||
		retryAfter != "1" {
		t.Errorf("a third watch: %d, Retry-After %q", code, retryAfter)
	}
	if code, _ := codeOf(t, s, "acme", acmePods); code != http.StatusOK {
		t.Errorf("a request while the watches are open: %d", code)
	}
	if got := reportOf(t, s, "acme"); len(got) != 1 || got[0].Use.Watches != 2 {
		t.Errorf("the server reports %+v", got)
	}
	cancel()
	waittest.Until(t, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp := get(ctx, t, s.config(t, "acme"), acmePods+"?watch=1")
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("a watch after the others have ended: %s", resp.Status)
		}
		return nil
	})
}

// rateIsLimited sends many concurrent requests of a tenant, whose limit is one request per second.
// It checks that some requests get status 429, and that other tenants are not affected.
func rateIsLimited(t *testing.T, s *server) {
	t.Helper()
	const many = 30
	type answer struct {
		code  int
		after string
	}
	answers := make(chan answer, many)
	for range many {
		go func() {
			code, retryAfter := codeOf(t, s, "acme", acmePods)
			answers <- answer{code, retryAfter}
		}()
	}
	refused := 0
	for range many {
		switch got := <-answers; got.code {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			refused++
			if seconds, err := strconv.Atoi(got.after); err != nil || seconds < 1 {
				t.Errorf("Retry-After is %q", got.after)
			}
		default:
			t.Errorf("status %d", got.code)
		}
	}
	if refused == 0 {
		t.Error("no request was rejected")
	}
	for range many {
		if code, _ := codeOf(t, s, "globex", "/api/v1/namespaces/globex--shop/pods"); code != http.StatusOK {
			t.Errorf("another tenant: %d", code)
		}
		if code, _ := codeOf(t, s, "admin", acmePods); code != http.StatusOK {
			t.Errorf("the system tenant: %d", code)
		}
	}
	if out, err := s.kubectl(t, "acme", "get", "configmaps,secrets", "-n", "acme--web"); err != nil {
		t.Errorf("kubectl does not obey Retry-After: %s", out)
	}
	out, err := s.kubectl(t, "acme", "patch", "tenant", "acme", "--type=merge", "-p", `{"spec":{"fairUse":null}}`)
	if err == nil || !strings.Contains(out, "orbidden") {
		t.Errorf("a caller of the tenant changes its limits: %s", out)
	}
}
