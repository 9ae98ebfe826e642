// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestWritesNeedAdmission checks that tenants' callers cannot make writes that the webhook service
// must check, while the cluster does not call the service. Their other requests, and writes of the
// system tenant, are forwarded.
func TestWritesNeedAdmission(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	w.write("tenancy.yaml", configHeader+strings.Replace(clusterEntry("eu1", ", root: true"), "Unchecked", "Required", 1))
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x",` +
		`"labels":{"kubetenant.dev/tenant":"globex"}}}`
	waittest.Until(t, func() error {
		if code, _ := w.do("alice-token", http.MethodPost, "/api/v1/namespaces/acme--web/secrets",
			secret); code != http.StatusForbidden {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
	c.takeRequests()
	const web = "/api/v1/namespaces/acme--web/"
	for what, r := range map[string]struct {
		token, method, path string
		goesOn              bool
	}{
		"creation of a namespace": {"alice-token", "POST", "/api/v1/namespaces", false},
		"deletion of a namespace": {"alice-token", "DELETE", "/api/v1/namespaces/acme--web", false},
		"members of a tenant":     {"alice-token", "POST", "/apis/kubetenant.dev/v1alpha1/tenantmembers", false},
		"creation of a grant": {
			"alice-token", "POST", "/apis/kubetenant.dev/v1alpha1/namespaces/acme--web/accessgrants", false,
		},
		"creation of an object":      {"alice-token", "POST", web + "secrets", false},
		"update of an object":        {"alice-token", "PUT", web + "secrets/x", false},
		"patch of an object":         {"alice-token", "PATCH", web + "secrets/x", false},
		"patch of a status":          {"alice-token", "PATCH", web + "pods/x/status", false},
		"binding of a Pod":           {"alice-token", "POST", web + "pods/x/binding", false},
		"deletion of an object":      {"alice-token", "DELETE", web + "secrets/x", true},
		"eviction":                   {"alice-token", "POST", web + "pods/x/eviction", true},
		"exec":                       {"alice-token", "POST", web + "pods/x/exec", true},
		"TokenRequest":               {"alice-token", "POST", web + "serviceaccounts/x/token", true},
		"list":                       {"alice-token", "GET", web + "secrets", true},
		"write of the system tenant": {"root-token", "POST", web + "secrets", true},
	} {
		t.Run(what, func(t *testing.T) {
			body := ""
			if r.method != http.MethodGet && r.method != http.MethodDelete {
				body = "{}"
			}
			code, text := w.do(r.token, r.method, r.path, body)
			if sent := len(c.takeRequests()) == 1; sent != r.goesOn || sent != (code == http.StatusOK) {
				t.Errorf("forwarded: %v: %d: %s", sent, code, text)
			}
		})
	}
}

// TestOlderPathsRevealNothing checks that an unauthenticated request with an older tenant path gets
// the same status for an existing cluster as for a missing cluster. The status does not depend on
// whether the cluster serves the resource.
func TestOlderPathsRevealNothing(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	c.update(func() { c.definitions = []string{"widgets.example.io"} })
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	header := strings.Replace(configHeader, "gateway:\n", "authorization: { olderTenantPaths: true }\ngateway:\n", 1)
	w.write("tenancy.yaml", header+clusterEntry("eu1", ""))
	waittest.Until(t, func() error {
		if code, _ := w.get("alice-token", "/clusters/eu1/api/v1/tenants/-bad-/pods"); code != http.StatusBadRequest {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	for _, path := range []string{
		"/apis/example.io/v1/tenants/-bad-/widgets", "/apis/example.io/v1/tenants/-bad-/gadgets",
		"/api/v1/tenants/-bad-/pods", "/tenants/-bad-/api",
	} {
		existing, _ := w.get("", "/clusters/eu1"+path)
		missing, _ := w.get("", "/clusters/nowhere"+path)
		if existing != missing {
			t.Errorf("%s: %d, but %d for a missing cluster", path, existing, missing)
		}
	}
}
