// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

const (
	rbacPath, corePath, ownPath = "/apis/rbac.authorization.k8s.io/v1/", "/api/v1/", "/apis/kubetenant.dev/v1alpha1/"
	crdPath                     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// apiServer returns the configuration of a fake server, and a function that returns the requested
// paths. answers contains a list for each path, and the later pages for "<path>?<token>". All
// other lists are empty.
func apiServer(t *testing.T, answers map[string]any) (*rest.Config, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var requested []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requested = append(requested, r.URL.Path)
		mu.Unlock()
		key := strings.TrimSuffix(r.URL.Path+"?"+r.URL.Query().Get("continue"), "?")
		answer, ok := answers[key]
		if err, ok := answer.(*apierrors.StatusError); ok {
			answer = err.ErrStatus
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(err.ErrStatus.Code))
		}
		if !ok {
			answer = list("", "")
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	return config, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(requested)
	}
}

// list returns one page of a list.
func list(kind, next string, items ...map[string]any) map[string]any {
	if items == nil {
		items = []map[string]any{}
	}
	version, name := "v1", kind+"List"
	if strings.HasSuffix(kind, "Role") || strings.HasSuffix(kind, "Binding") {
		version = "rbac.authorization.k8s.io/v1"
	}
	return map[string]any{
		"apiVersion": version,
		"kind":       name,
		"metadata":   map[string]any{"continue": next},
		"items":      items,
	}
}

func named(name string, more ...any) map[string]any {
	object := map[string]any{"metadata": map[string]any{"name": name, "namespace": "web"}}
	for i := 0; i < len(more); i += 2 {
		object[more[i].(string)] = more[i+1]
	}
	return object
}

func denied(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
}

// TestRead checks that a kind that the caller may not list is in Unread, and that the other kinds
// are read to the last page. An optional kind that the server does not serve is not in Unread.
func TestRead(t *testing.T) {
	config, requested := apiServer(t, map[string]any{
		corePath + "namespaces":           list("Namespace", "2", named("web")),
		corePath + "namespaces?2":         list("Namespace", "", named("db")),
		rbacPath + "clusterroles":         denied("clusterroles"),
		rbacPath + "namespaces/web/roles": list("Role", "", named("r")),
		rbacPath + "namespaces/web/rolebindings": list("RoleBinding", "",
			named("kept", "roleRef", map[string]any{"kind": "Role", "name": "r"}),
			named("other", "roleRef", map[string]any{"kind": "Role", "name": "s"})),
		ownPath + "tenantquotas":                apierrors.NewNotFound(schema.GroupResource{Resource: "tenantquotas"}, ""),
		ownPath + "namespaces/web/accessgrants": denied("accessgrants"),
		crdPath: list("CustomResourceDefinition", "", map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": "w.x.io"},
			"spec":       map[string]any{"group": "x.io", "names": map[string]any{"plural": "w"}, "scope": "Namespaced"},
		}),
	})
	s, err := privileges.Read(t.Context(), config, privileges.Selection{
		Namespace:   "web",
		Grants:      true,
		Scopes:      true,
		KeepBinding: func(s *simulator.Snapshot, b *simulator.Binding) bool { return s.Roles[b.RoleKey()] != nil },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ClusterRoles", "AccessGrants"}; !slices.Equal(s.Unread, want) {
		t.Errorf("unread %v; want %v", s.Unread, want)
	}
	if s.Namespaces["web"] == nil || s.Namespaces["db"] == nil ||
		s.Roles[simulator.Key{Namespace: "web", Name: "r"}] == nil || len(s.Scopes) != 1 {
		t.Errorf("namespaces %v, roles %v, scopes %v", s.Namespaces, s.Roles, s.Scopes)
	}
	if len(s.Bindings) != 1 || s.Bindings[0].Name != "kept" {
		t.Errorf("bindings %+v; want only the binding kept", s.Bindings)
	}
	for _, path := range requested() {
		if path == rbacPath+"roles" || path == rbacPath+"rolebindings" || path == ownPath+"accessgrants" {
			t.Errorf("unexpected request for %s, outside the namespace", path)
		}
	}
}

// TestReadEmptySelection checks that an empty selection reads every binding. Among the kinds
// of kubetenant, it reads only Tenants.
func TestReadEmptySelection(t *testing.T) {
	config, requested := apiServer(t, map[string]any{
		rbacPath +
			"rolebindings": list("RoleBinding", "", named("any", "roleRef", map[string]any{"kind": "Role", "name": "s"})),
	})
	s, err := privileges.Read(t.Context(), config, privileges.Selection{}, nil)
	if err != nil || len(s.Bindings) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if slices.ContainsFunc(requested(), func(path string) bool {
		return strings.HasPrefix(path, ownPath) && path != ownPath+"tenants" || path == crdPath
	}) {
		t.Errorf("unexpected requests %v", requested())
	}
}

// TestReadFails checks that an error other than Forbidden contains the kind, and that Read returns
// no partial result.
func TestReadFails(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, "")
	for kind, answers := range map[string]map[string]any{
		"Namespaces":                {corePath + "namespaces": apierrors.NewInternalError(http.ErrAbortHandler)},
		"Roles":                     {rbacPath + "roles": gone}, // every server serves Roles
		"CustomResourceDefinitions": {crdPath: gone},
		"AccessGrants":              {ownPath + "accessgrants": apierrors.NewInternalError(http.ErrAbortHandler)},
	} {
		t.Run(kind, func(t *testing.T) {
			config, _ := apiServer(t, answers)
			s, err := privileges.Read(t.Context(), config, privileges.Selection{Grants: true, Scopes: true}, nil)
			if err == nil || s != nil || !strings.HasPrefix(err.Error(), "list "+kind+": ") {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

// TestReadProgress checks that progress is reported after each thousand objects.
func TestReadProgress(t *testing.T) {
	items := make([]map[string]any, 2500)
	for i := range items {
		items[i] = named("b", "roleRef", map[string]any{"kind": "Role", "name": "s"})
	}
	config, _ := apiServer(t, map[string]any{rbacPath + "rolebindings": list("RoleBinding", "", items...)})
	var counts []int64
	keep := func(*simulator.Snapshot, *simulator.Binding) bool { return false }
	s, err := privileges.Read(t.Context(), config, privileges.Selection{KeepBinding: keep}, func(n int64) {
		counts = append(counts, n)
	})
	if err != nil || len(s.Bindings) > 0 || !slices.Equal(counts, []int64{1000, 2000}) {
		t.Errorf("progress %v, %d bindings, %v", counts, len(s.Bindings), err)
	}
}

// TestReadQuotas checks that a TenantQuota with an invalid tenant is read, but has no owner.
func TestReadQuotas(t *testing.T) {
	quota := func(name, owner string) map[string]any {
		return map[string]any{
			"apiVersion": "kubetenant.dev/v1alpha1",
			"kind":       "TenantQuota",
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"tenant": owner},
		}
	}
	config, _ := apiServer(t,
		map[string]any{ownPath + "tenantquotas": list("TenantQuota", "", quota("good", "acme"), quota("bad", "NO/tenant"))})
	s, err := privileges.Read(t.Context(), config, privileges.Selection{Scopes: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if owner, known := s.Quotas["bad"]; s.Quotas["good"] != tenanttest.ID(t, "acme") || !known || !owner.IsZero() {
		t.Errorf("quotas %v", s.Quotas)
	}
}
