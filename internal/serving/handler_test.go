// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kubetenant/kubetenant/internal/serving"
)

// TestHealth checks that a failed check reports its reason, and that a degraded check reports its
// reason without making the process unready.
func TestHealth(t *testing.T) {
	check := func(name string, err error) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(*http.Request) error { return err })
	}
	good := check("good", nil)
	degraded := check("kinds", fmt.Errorf("tenants are denied: %w", serving.Degraded("one is missing")))
	bad := check("bad", errors.Join(errors.New("this"), errors.New("that")))
	for name, c := range map[string]struct {
		checks []healthz.HealthChecker
		path   string
		code   int
		want   string
	}{
		"all good":          {[]healthz.HealthChecker{good}, "/readyz", 200, "ok"},
		"all good, verbose": {[]healthz.HealthChecker{good}, "/readyz?verbose", 200, "[+]good ok\nreadyz check passed\n"},
		"degraded":          {[]healthz.HealthChecker{degraded}, "/readyz", 200, "ok"},
		"degraded, verbose": {
			[]healthz.HealthChecker{degraded}, "/readyz?verbose", 200, "[!]kinds degraded: tenants are denied: one is missing\n",
		},
		"degraded, by name": {[]healthz.HealthChecker{degraded}, "/readyz/kinds?verbose", 200, "[!]kinds degraded: "},
		"bad": {
			[]healthz.HealthChecker{good, bad}, "/readyz", 500, "[+]good ok\n[-]bad failed: this; that\nreadyz check failed\n",
		},
		"bad, excluded": {
			[]healthz.HealthChecker{good, bad}, "/readyz?exclude=bad&verbose", 200, "[+]bad excluded: ok\n",
		},
		"bad, other check": {[]healthz.HealthChecker{good, bad}, "/readyz/good", 200, "ok"},
		"bad, liveness":    {[]healthz.HealthChecker{bad}, "/livez", 200, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			serving.InstallHealth(mux, []healthz.HealthChecker{good}, c.checks)
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, http.NoBody))
			if answer.Code != c.code || !strings.Contains(answer.Body.String(), c.want) {
				t.Errorf("%d %q; want %d %q", answer.Code, answer.Body, c.code, c.want)
			}
		})
	}
}
