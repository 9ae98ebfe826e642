// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// newValidatedCluster returns an API server for validate --cluster. The first element of a path
// specifies which requests it denies: "open" none, "partly" those for RoleBindings, "closed" all.
// "restored" denies none, and has a Tenant.
func newValidatedCluster() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rights, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		kind := path[strings.LastIndex(path, "/")+1:]
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			http.Error(w, "a write", http.StatusMethodNotAllowed)
			return
		}
		if rights == "closed" || rights == "partly" && kind == "rolebindings" {
			refuse(w, http.StatusForbidden, "Forbidden")
			return
		}
		binding := `{"metadata":{"name":%q},"roleRef":{"kind":"ClusterRole","name":"view"},` +
			`"subjects":[{"kind":"Group","name":"tenant:acme"}]}`
		list := `{"kind":%q,"apiVersion":%q,"metadata":{"continue":%q},"items":[%s]}`
		rbac := "rbac.authorization.k8s.io/v1"
		if rights == "restored" {
			serveRestored(w, kind, strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"))
			return
		}
		switch kind {
		case "clusterrolebindings":
			next, name := "2", "first"
			if r.URL.Query().Get("continue") != "" {
				next, name = "", "second"
			}
			_, _ = fmt.Fprintf(w, list, "ClusterRoleBindingList", rbac, next, fmt.Sprintf(binding, name))
		case "rolebindings":
			_, _ = fmt.Fprintf(w, list, "RoleBindingList", rbac, "", "")
		case "namespaces":
			labeled := `{"metadata":{"name":"kube-system","labels":{"kubetenant.dev/tenant":"acme"}}}`
			_, _ = fmt.Fprintf(w, list, "NamespaceList", "v1", "", labeled)
		default: // no configuration is published
			refuse(w, http.StatusNotFound, "NotFound")
		}
	}))
}

// serveRestored responds to a list with the objects of a cluster that was restored at 12:00: one
// Tenant and its grant.
func serveRestored(w http.ResponseWriter, kind string, metadataOnly bool) {
	const (
		then   = `"creationTimestamp":"2026-11-28T12:00:00Z"`
		tenant = `{"apiVersion":"kubetenant.dev/v1alpha1","kind":"Tenant","metadata":{"name":"acme",` +
			`"uid":"5b2d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a1",` + then + `},"spec":{"id":"acme"}}`
		partial = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q,"namespace":%q,` +
			then + `}}`
	)
	list := `{"kind":"TenantList","apiVersion":"kubetenant.dev/v1alpha1","metadata":{},"items":[%s]}`
	item := ""
	if metadataOnly {
		list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[%s]}`
	}
	switch {
	case kind == "tenants" && metadataOnly:
		item = fmt.Sprintf(partial, "acme", "")
	case kind == "tenants":
		item = tenant
	case kind == "accessgrants":
		item = fmt.Sprintf(partial, "read", "acme--web")
	case kind == "retiredtenants" && !metadataOnly:
		list = strings.Replace(list, "TenantList", "RetiredTenantList", 1)
	case kind == "rolebindings":
		refuse(w, http.StatusForbidden, "Forbidden")
		return
	}
	_, _ = fmt.Fprintf(w, list, item)
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused","reason":%q,"code":%d}`, reason, code)
}
