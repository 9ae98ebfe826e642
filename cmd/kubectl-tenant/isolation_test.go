// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/plugins/namespace"
)

// behindGateway adds the admission of kubetenant to a server, but not its authorizer. A cluster
// behind a gateway behaves in this way.
func behindGateway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(code int, object map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(object)
		}
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces":
			answer(http.StatusForbidden, map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       403,
				"reason":     "Forbidden",
				"message": `admission webhook "cluster.mutating.kubetenant.dev" denied the request: namespaces ` +
					`"kubetenant-probe" is forbidden: ` + namespace.BadLabel,
			})
		case strings.HasSuffix(r.URL.Path, "/configmaps/kubetenant-configuration"):
			answer(http.StatusOK, map[string]any{
				"kind":       "ConfigMap",
				"apiVersion": "v1",
				"metadata":   map[string]any{"name": "kubetenant-configuration"},
				"data": map[string]any{
					"hash": "abc",
					"tenancy.yaml": `{"apiVersion":"kubetenant.dev/v1alpha1","kind":"TenancyConfiguration",` +
						`"gateway":{"clusters":[{"name":"eu1","tenants":["*"],"reader":{"kubeConfigFile":"/r"},` +
						`"impersonator":{"kubeConfigFile":"/i"}}]}}`,
				},
			})
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			answer(http.StatusCreated, map[string]any{
				"kind":       "SelfSubjectReview",
				"apiVersion": "authentication.k8s.io/v1",
				"status":     map[string]any{"userInfo": map[string]any{"username": "admin"}},
			})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// TestVerifyIsolationRefusesServers checks that the command fails and creates nothing on a server
// that does not isolate tenants.
func TestVerifyIsolationRefusesServers(t *testing.T) {
	for name, c := range map[string]struct {
		around func(http.Handler) http.Handler
		want   error
	}{
		"upstream":                   {nil, installation.ErrNotInstalled},
		"a cluster behind a gateway": {behindGateway, errDirect},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, c.around)
			out, err := s.run(t, "verify-isolation")
			if !errors.Is(err, c.want) || exitCode(err) != exitUnusual || out != "" {
				t.Errorf("%v, exit code %d, printed %q", err, exitCode(err), out)
			}
			for request := range s.requests {
				if strings.HasPrefix(request, "POST ") && strings.Contains(request, "rbac") ||
					strings.HasPrefix(request, "DELETE ") {
					t.Errorf("%s", request)
				}
			}
		})
	}
}

// TestCleanUpAnywhere checks that --clean-up also works on a server without kubetenant.
func TestCleanUpAnywhere(t *testing.T) {
	out, err := newServer(t, nil).run(t, "verify-isolation", "--clean-up")
	if err != nil || out != "runs cleaned up: 0\n" {
		t.Errorf("%v: %q", err, out)
	}
}
