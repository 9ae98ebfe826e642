// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// withCopy returns a function that adds a Secret with the given labels to the namespace
// acme--web of a server.
func withCopy(labels map[string]any) func(http.Handler) http.Handler {
	answers := map[string]map[string]any{
		"/api/v1": {
			"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
				map[string]any{
					"name":       "secrets",
					"kind":       "Secret",
					"namespaced": true,
					"verbs":      []any{"get", "list"},
				},
			},
		},
		"/api/v1/namespaces": {
			"kind": "NamespaceList", "apiVersion": "v1", "items": []any{
				map[string]any{"metadata": map[string]any{"name": "acme--web", "labels": map[string]any{tenant.Label: "acme"}}},
			},
		},
		"/api/v1/namespaces/acme--web/secrets/registry": {
			"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
			"metadata": map[string]any{"name": "registry", "namespace": "acme--web", "labels": labels},
		},
	}
	return func(next http.Handler) http.Handler {
		return authz.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, ok := answers[r.URL.Path]
			if !ok || r.Method != http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}), nil)
	}
}

// TestWhoCanChangeACopy checks that only the server is reported as able to change a copy. For other
// verbs and objects, RBAC determines the answers.
func TestWhoCanChangeACopy(t *testing.T) {
	isCopy := map[string]any{tenant.ManagedLabel: "publication", tenant.PublicationLabel: "registry"}
	for name, c := range map[string]struct {
		verb, object string
		labels       map[string]any
		want         bool
	}{
		"delete a copy":           {"delete", "secret/registry", isCopy, true},
		"update a copy":           {"update", "secret/registry", isCopy, true},
		"patch a copy":            {"patch", "secret/registry", isCopy, true},
		"get a copy":              {"get", "secret/registry", isCopy, false},
		"create":                  {"create", "secret/registry", isCopy, false},
		"delete every Secret":     {"delete", "secrets", isCopy, false},
		"delete another object":   {"delete", "secret/registry", nil, false},
		"delete a missing object": {"delete", "secret/another", isCopy, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, withCopy(c.labels))
			out, err := s.run(t, "who-can", c.verb, c.object, "-n", "acme--web")
			if err != nil {
				t.Fatal(err)
			}
			is := strings.Contains(out, tenant.ManagerUser) && strings.Contains(out, "Publication registry")
			if is != c.want || !c.want && !strings.Contains(out, "no identity may do this") {
				t.Errorf("output %q", out)
			}
		})
	}
}
