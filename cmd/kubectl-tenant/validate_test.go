package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// newValidatedCluster returns an API server for validate --cluster. The first element of a
// path says which of the requests it refuses: "open" none, "partly" those for
// RoleBindings, "closed" all.
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

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused","reason":%q,"code":%d}`, reason, code)
}
