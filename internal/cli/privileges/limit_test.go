// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestReadOfATenant checks that each list of objects that tenants own is limited to the given
// tenant. Without a tenant, lists are not limited.
func TestReadOfATenant(t *testing.T) {
	var selectors []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		selectors = append(selectors,
			path.Base(r.URL.Path)+" "+r.URL.Query().Get("labelSelector")+r.URL.Query().Get("fieldSelector"))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	own := "kubetenant.dev/tenant=acme"
	want := map[string][]string{
		"": {
			"namespaces ", "clusterroles ", "roles ", "clusterrolebindings ", "rolebindings ", "tenants ",
			"customresourcedefinitions ", "retiredtenants ", "tenantquotas ", "tenantmembers ",
			"accessgrants ",
		},
		"acme": {
			"namespaces " + own, "clusterroles ", "roles " + own, "clusterrolebindings ", "rolebindings " + own,
			"tenants metadata.name=acme", "customresourcedefinitions ",
			"retiredtenants ", "tenantquotas metadata.name=acme", "tenantmembers metadata.name=acme",
			"accessgrants " + own,
		},
	}
	for name, lists := range want {
		t.Run(name, func(t *testing.T) {
			selectors = nil
			s := privileges.Selection{Grants: true, Scopes: true}
			if name != "" {
				s.Tenant = tenanttest.ID(t, name)
			}
			if _, err := privileges.Read(t.Context(), config, s, nil); err != nil || !slices.Equal(selectors, lists) {
				t.Errorf("tenant %q: %q, %v; want %q", name, selectors, err, lists)
			}
		})
	}
}
