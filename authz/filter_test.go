// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// servedRequest contains what the API handler received.
type servedRequest struct {
	user     user.Info
	info     *request.RequestInfo
	selector string
	fields   string
	query    string
	path     string
}

// serve sends a GET request from u through the filters of a server. If impersonated is not nil,
// it replaces the user, as the impersonation filter does. serve returns the request that the
// handler received, or nil if it received none, and the status.
func serve(t *testing.T, u, impersonated user.Info, target string) (*servedRequest, int) {
	t.Helper()
	return send(t, u, impersonated, http.MethodGet, target)
}

func send(t *testing.T, u, impersonated user.Info, method, target string) (*servedRequest, int) {
	t.Helper()
	return sendThrough(
		t,
		authz.New(options(namespaceLabels), &recorder{decision: authorizer.DecisionAllow}, nil),
		u,
		impersonated,
		method,
		target,
	)
}

func sendThrough(
	t *testing.T, boundary *authz.Boundary, u, impersonated user.Info, method, target string,
) (*servedRequest, int) {
	t.Helper()
	var got *servedRequest
	handler := authz.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = &servedRequest{
			path:     r.URL.Path,
			selector: r.URL.Query().Get("labelSelector"),
			fields:   r.URL.Query().Get("fieldSelector"),
			query:    r.URL.RawQuery,
		}
		got.user, _ = request.UserFrom(r.Context())
		got.info, _ = request.RequestInfoFrom(r.Context())
	}), &authz.Sessions{})
	handler = filters.WithAuthorization(handler, boundary, scheme.Codecs)
	chain := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestUser := authz.RecordCaller(r.Context(), u)
		if impersonated != nil {
			requestUser = impersonated
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), requestUser)))
	}))
	chain = filters.WithRequestInfo(chain, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	answer := httptest.NewRecorder()
	authz.WithRequestState(chain, nil).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody))
	return got, answer.Code
}

// TestNamespacesAreFiltered checks that a request to list or watch Namespaces is either denied or
// limited to the caller's tenant, in the query and in RequestInfo.
func TestNamespacesAreFiltered(t *testing.T) {
	for query, want := range map[string]bool{
		"":                           true,
		"?watch=true":                true,
		"?watch=1&resourceVersion=5": true,
		"?limit=500&continue=":       true,
		"?limit=500&continue=abc":    false,
		"?labelSelector=":            true,
		"?labelSelector=env%3Dprod":  true,
		"?labelSelector=kubetenant.dev%2Ftenant%3Da":                 true,
		"?labelSelector=kubetenant.dev%2Ftenant%3Db":                 true, // matches no tenant
		"?labelSelector=%21kubetenant.dev%2Ftenant":                  true, // contradicts the added requirement
		"?fieldSelector=metadata.name%3Db--web":                      true,
		"?fieldSelector=metadata.name%3Db--web&watch=true":           true,
		"?labelSelector=a&labelSelector=kubetenant.dev%2Ftenant%3Db": false,
		"?labelSelector=kubetenant.dev%2Ftenant%3Da&labelSelector=":  false,
		"?LabelSelector=kubetenant.dev%2Ftenant%3Db":                 false,
		"?labelSelector=a&labelselector=b":                           false,
		"?labelSelector=((":                                          false,
		"?labelSelector=%zz":                                         false,
		"?a=b;labelSelector=kubetenant.dev%2Ftenant%3Db":             false,
	} {
		t.Run(query, func(t *testing.T) {
			for _, path := range []string{"/api/v1/namespaces", "/api/v1/watch/namespaces", "/tenants/a/api/v1/namespaces"} {
				got, code := serve(t, callerOf("a"), nil, path+query)
				if (got != nil) != want {
					t.Errorf("%s%s: served %v (%d), want %v", path, query, got != nil, code, want)
				}
				if got == nil {
					continue
				}
				for where, text := range map[string]string{"query": got.selector, "RequestInfo": got.info.LabelSelector} {
					selector, err := labels.Parse(text)
					if err != nil || selector.Matches(labels.Set{tenant.Label: "b"}) || selector.Matches(labels.Set{"env": "prod"}) {
						t.Errorf("%s%s: the selector in the %s is %q (%v)", path, query, where, text, err)
					}
				}
				if strings.Contains(query, "prod") && !strings.Contains(got.selector, "env=prod") {
					t.Errorf("%s%s: the caller's own selector is lost: %q", path, query, got.selector)
				}
			}
		})
	}
	if got, code := serve(t, callerOf("a"), nil, "/api/v1/watch/namespaces/a--web"); got != nil {
		t.Errorf("the deprecated watch path of one namespace is served (%d)", code)
	}
	if got, _ := serve(t, callerOf("system"), nil, "/api/v1/namespaces"); got == nil || got.selector != "" {
		t.Errorf("the system tenant's list is %+v; want it without a limit", got)
	}
}

func TestOnlyNamespacesAreFiltered(t *testing.T) {
	for _, target := range []string{
		"/api/v1/pods", "/api/v1/pods?labelSelector=kubetenant.dev%2Ftenant%3Da", "/api/v1/nodes",
		"/apis/apps/v1/deployments",
	} {
		if got, code := serve(t, callerOf("a"), nil, target); got != nil || code != http.StatusForbidden {
			t.Errorf("%s: served %v, %d; want 403", target, got != nil, code)
		}
	}
	if got, _ := serve(t, callerOf("a"), nil, "/api/v1/namespaces/a--web/pods?labelSelector=x"); got == nil ||
		got.selector != "x" {
		t.Errorf("a list in a namespace is %+v; want it unchanged", got)
	}
}

func TestTenantPaths(t *testing.T) {
	for _, c := range []struct {
		name, tenant, target string
		path                 string
		code                 int
	}{
		{
			"an own namespace on the own path",
			"a", "/tenants/a/api/v1/namespaces/a--web/pods", "/api/v1/namespaces/a--web/pods", 200,
		},
		{"discovery on the own path", "a", "/tenants/a/apis", "/apis", 200},
		{"an own namespace on another tenant's path", "a", "/tenants/b/api/v1/namespaces/a--web/pods", "", 403},
		{"discovery on another tenant's path", "a", "/tenants/b/apis", "", 403},
		{"the system tenant's path", "a", "/tenants/system/apis", "", 403},
		{"the path of all tenants", "a", "/tenants/all/api/v1/namespaces", "", 403},
		{"another tenant's namespace on the own path", "a", "/tenants/a/api/v1/namespaces/b--web/pods", "", 403},
		{"a tenant without a path", "a", "/tenants/a", "", 403},
		{"a tenant and a slash", "a", "/tenants/a/", "", 403},
		{"no tenant", "a", "/tenants/", "", 403},
		{"an empty tenant", "a", "/tenants//api/v1/namespaces", "", 400},
		{"a dot as the tenant", "a", "/tenants/./api", "", 400},
		{"two dots as the tenant", "a", "/tenants/../api", "", 400},
		{"an encoded slash in the tenant", "a", "/tenants/a%2Fb/api", "", 400},
		{"an encoded letter as the tenant", "a", "/tenants/%61/api", "", 400},
		{"an encoded space in the tenant", "a", "/tenants/A%20B/api", "", 400},
		{"the system tenant with a capital letter", "a", "/tenants/System/api", "", 400},
		{"a reserved name", "a", "/tenants/tenant/api", "", 400},
		{"two tenants", "a", "/tenants/a/tenants/b/api", "", 400},
		{"two slashes after the tenant", "a", "/tenants/a//api", "", 400},
		{
			"the system tenant in a namespace of the path's tenant",
			"system", "/tenants/a/api/v1/namespaces/a--web/pods", "/api/v1/namespaces/a--web/pods", 200,
		},
		{
			"the system tenant in a namespace of another tenant",
			"system", "/tenants/a/api/v1/namespaces/b--web/pods", "", 403,
		},
		{"the system tenant in a system namespace", "system", "/tenants/a/api/v1/namespaces/kube-system/pods", "", 403},
		{"the system tenant lists nodes", "system", "/tenants/a/api/v1/nodes", "/api/v1/nodes", 200},
		{"the system tenant lists all pods", "system", "/tenants/a/api/v1/pods", "", 403},
		{"the system tenant reads metrics", "system", "/tenants/a/metrics", "/metrics", 200},
		{"the system tenant connects to a node", "system", "/tenants/a/api/v1/nodes/n/proxy/exec/b--web/p/c", "", 403},
		{
			"the system tenant reads a node's status",
			"system", "/tenants/a/api/v1/nodes/n/status", "/api/v1/nodes/n/status", 200,
		},
		{"the system tenant lists the pods of all tenants", "system", "/tenants/all/api/v1/pods", "/api/v1/pods", 200},
		{
			"the system tenant connects to a node on the path of all tenants",
			"system", "/tenants/all/api/v1/nodes/n/proxy/x", "", 403,
		},
		{
			"the system tenant connects to a pod on the path of all tenants",
			"system", "/tenants/all/api/v1/namespaces/b--web/pods/p/exec", "", 403,
		},
		{
			"the system tenant reads a log on the path of all tenants",
			"system", "/tenants/all/api/v1/namespaces/b--web/pods/p/log", "/api/v1/namespaces/b--web/pods/p/log", 200,
		},
		{"the system tenant lists pods on its own path", "system", "/tenants/system/api/v1/pods", "/api/v1/pods", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, code := serve(t, callerOf(c.tenant), nil, c.target)
			switch {
			case code != c.code:
				t.Errorf("%s: %d, want %d", c.target, code, c.code)
			case got != nil && got.path != c.path:
				t.Errorf("%s: the handler sees %s, want %s", c.target, got.path, c.path)
			}
		})
	}
	if got, _ := serve(t, callerOf("system"), nil, "/tenants/a/api/v1/namespaces"); got == nil ||
		got.selector != "kubetenant.dev/tenant=a" {
		t.Errorf("the list of namespaces on the path of tenant a is %+v; want it limited to a", got)
	}
}

// TestMalformedTenantPathReturnsStatus checks that the response is a Status object, because clients
// do not show plain text.
func TestMalformedTenantPathReturnsStatus(t *testing.T) {
	answer := httptest.NewRecorder()
	authz.WithRequestState(http.NotFoundHandler(), nil).ServeHTTP(answer,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/tenants/ALL/api", http.NoBody))
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || answer.Code != http.StatusBadRequest ||
		status.Kind != "Status" ||
		status.Message != "malformed tenant segment in the path" || strings.Contains(answer.Body.String(), "ALL") {
		t.Errorf("%d %s, %v", answer.Code, answer.Body, err)
	}
}

// TestWritesOnTenantPaths checks that a caller of the system tenant can write only objects of the
// tenant in the path if the path names a tenant.
func TestWritesOnTenantPaths(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		code           int
	}{
		"a creation in a namespace of the path's tenant": {
			http.MethodPost, "/tenants/a/api/v1/namespaces/a--web/pods", 200,
		},
		"a creation in another tenant's namespace":    {http.MethodPost, "/tenants/a/api/v1/namespaces/b--web/pods", 403},
		"a creation of a namespace":                   {http.MethodPost, "/tenants/a/api/v1/namespaces", 403},
		"a deletion of a node":                        {http.MethodDelete, "/tenants/a/api/v1/nodes/n", 403},
		"a write without a resource":                  {http.MethodPut, "/tenants/a/debug/flags/v", 403},
		"an impersonation without a resource":         {"IMPERSONATE", "/tenants/a/debug/flags/v", 403},
		"an impersonation on the path of all tenants": {"IMPERSONATE", "/tenants/all/api", 403},
		"a creation on the path of all tenants":       {http.MethodPost, "/tenants/all/api/v1/namespaces/a--web/pods", 403},
		"a deletion on the path of all tenants":       {http.MethodDelete, "/tenants/all/api/v1/pods", 403},
	} {
		t.Run(name, func(t *testing.T) {
			if _, code := send(t, callerOf("system"), nil, c.method, c.target); code != c.code {
				t.Errorf("%s %s: %d, want %d", c.method, c.target, code, c.code)
			}
		})
	}
}

// TestDelegatedReviewsOnTenantPaths checks that a tenant's caller may create reviews of other
// callers on the path of its tenant. A caller of the system tenant may create them only on a path
// without a tenant, because the answer would be about all tenants.
func TestDelegatedReviewsOnTenantPaths(t *testing.T) {
	o := options(namespaceLabels)
	o.Reviews = true
	boundary := authz.New(o, &recorder{decision: authorizer.DecisionAllow}, nil)
	for _, path := range []string{
		"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		"/apis/authorization.k8s.io/v1/namespaces/a--web/localsubjectaccessreviews",
	} {
		for id, want := range map[string]int{"a": http.StatusOK, "system": http.StatusForbidden} {
			t.Run(id, func(t *testing.T) {
				if _, code := sendThrough(t, boundary, callerOf(id), nil, http.MethodPost, "/tenants/a"+path); code != want {
					t.Errorf("%s by %s: %d, want %d", path, id, code, want)
				}
			})
		}
		if _, code := sendThrough(t, boundary, callerOf("system"), nil, http.MethodPost, path); code != http.StatusOK {
			t.Errorf("%s by the system tenant on the path without a tenant: %d", path, code)
		}
	}
}

// TestImpersonationChecksDoNotChangeUser checks that the handler gets the impersonated user.
// Constrained impersonation checks a changed copy of the authenticated user before the decision
// about the request itself. The handler must not get that copy.
func TestImpersonationChecksDoNotChangeUser(t *testing.T) {
	boundary := authz.New(options(namespaceLabels), &recorder{decision: authorizer.DecisionAllow}, nil)
	agent := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:agent"}
	changed := &user.DefaultInfo{Name: agent.Name, Extra: map[string][]string{"example.com/x": {"y"}}}
	node := &user.DefaultInfo{Name: "somebody"}
	var got user.Info
	handler := filters.WithAuthorization(authz.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = request.UserFrom(r.Context())
	}), &authz.Sessions{}), boundary, scheme.Codecs)
	chain := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authz.RecordCaller(r.Context(), agent)
		for _, verb := range []string{"impersonate:associated-node", "impersonate-on:associated-node:get"} {
			d, _, _ := boundary.Authorize(r.Context(), authorizer.AttributesRecord{
				User:            changed,
				Verb:            verb,
				Resource:        "nodes",
				Name:            "n",
				ResourceRequest: true,
			})
			if d != authorizer.DecisionAllow {
				t.Errorf("%s by a caller of the system tenant: %v", verb, d)
			}
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), node)))
	}))
	chain = filters.WithRequestInfo(chain,
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")})
	authz.WithRequestState(chain, nil).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", http.NoBody))
	if got == nil || got.GetName() != "somebody" {
		t.Errorf("the handler sees %+v", got)
	}
}

// TestHandlersHaveNoRequestState checks that a handler can authorize another user, as a review
// does. The boundary does not treat that user as impersonated.
func TestHandlersHaveNoRequestState(t *testing.T) {
	boundary := authz.New(options(namespaceLabels), &recorder{decision: authorizer.DecisionAllow}, nil)
	reached := false
	handler := authz.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached = true
		if d, reason, _ := boundary.Authorize(r.Context(),
			podRequest(callerOf("b"), "get", "b--web")); d != authorizer.DecisionAllow {
			t.Errorf("check of a caller of b in the handler of a request from a: %v, %q", d, reason)
		}
	}), &authz.Sessions{})
	chain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authz.RecordCaller(r.Context(), callerOf("a"))
		handler.ServeHTTP(w, r)
	})
	authz.WithRequestState(chain, nil).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", http.NoBody))
	if !reached {
		t.Error("the handler was not reached")
	}
}

// TestImpersonatedUsersAreBound checks that the handler gets an impersonated user with the extra
// that names the user's tenant.
func TestImpersonatedUsersAreBound(t *testing.T) {
	root := &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}
	carol := &user.DefaultInfo{Name: "carol"}
	for _, c := range []struct {
		name         string
		real, become user.Info
		want         string
	}{
		{"by a tenant's caller", callerOf("a"), carol, "a"},
		{"by root with a tenant group", root, &user.DefaultInfo{Name: "carol", Groups: []string{"tenant:a"}}, "a"},
		{"by root with the extra", root, callerOf("a"), "a"},
		{"by root without a tenant", root, carol, ""},
		{"a user of another tenant by a tenant's caller", callerOf("a"), callerOf("b"), ""},
		{"a system user name by a tenant's caller", callerOf("a"), &user.DefaultInfo{Name: "system:kube-scheduler"}, "a"},
		{"a user in system:masters by a tenant's caller", callerOf("a"), root, ""},
		{
			"another tenant's group by a tenant's caller",
			callerOf("a"),
			&user.DefaultInfo{Name: "carol", Groups: []string{"tenant:b"}},
			"",
		},
		{
			"a foreign service account by a tenant's caller",
			callerOf("a"),
			&user.DefaultInfo{Name: "system:serviceaccount:kube-system:x"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, code := serve(t, c.real, c.become, "/api/v1/namespaces/a--web/pods")
			if (got != nil) != (c.want != "") {
				t.Errorf("served %v (%d), want tenant %q", got != nil, code, c.want)
				return
			}
			if got != nil {
				if id, err := tenant.Of(got.user); id.String() != c.want || err != nil || got.user.GetName() != c.become.GetName() {
					t.Errorf("the handler sees %+v, %v", got.user, err)
				}
				if _, code := serve(t, c.real, c.become, "/api/v1/namespaces/b--web/pods"); code != http.StatusForbidden {
					t.Error("another tenant's namespace is served")
				}
				if _, code := serve(t, c.real, c.become, "/api/v1/nodes"); code != http.StatusForbidden {
					t.Error("nodes are served")
				}
			}
		})
	}
}

// FuzzTenantPath checks that no path lets a tenant's caller reach an object of another tenant.
func FuzzTenantPath(f *testing.F) {
	for _, s := range []string{
		"/tenants/a/api/v1/namespaces/b--web/pods", "/tenants/b/api/v1/namespaces/b--web/pods", "/tenants/a/tenants/b/api",
		"/tenants/%62/api/v1/namespaces/b--web/pods", "//tenants/b/apis", "/tenants/a/../b/apis",
		"/api/v1/namespaces/%62--web/pods", "/tenants/a/api/v1/watch/namespaces",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if u, err := url.ParseRequestURI(target); err != nil || !strings.HasPrefix(u.Path, "/") || u.Host != "" ||
			strings.ContainsAny(target, " \n\r\t\x00") {
			return
		}
		got, _ := serve(t, callerOf("a"), nil, "http://x"+target)
		if got == nil || !got.info.IsResourceRequest || got.info.Namespace == "a--web" {
			return
		}
		if got.info.Resource == "namespaces" && got.info.APIGroup == "" &&
			strings.Contains(got.selector, "kubetenant.dev/tenant=a") {
			return
		}
		if got.info.Namespace == "" &&
			(strings.HasPrefix(got.info.Resource, "selfsubject") || got.info.Resource == "storageclasses") {
			return
		}
		t.Fatalf("%q is served: %+v", target, got.info)
	})
}
