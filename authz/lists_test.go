// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// labeledOptions returns options according to which all objects have their tenant's label.
func labeledOptions() authz.Options {
	o := options(namespaceLabels)
	o.Labeled = func(schema.GroupResource, tenant.ID) bool { return true }
	return o
}

// server contains the filters of a server around a handler that records its requests.
type server struct {
	boundary *authz.Boundary
	older    authz.OlderPaths
	sessions authz.Sessions
	handle   func(*http.Request)
	// impersonated replaces the authenticated user, as the impersonation filter does.
	impersonated user.Info
}

func (s *server) send(t *testing.T, u user.Info, method, target string) (*servedRequest, int) {
	t.Helper()
	var got *servedRequest
	chain := s.chain(u, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = &servedRequest{path: r.URL.Path, selector: r.URL.Query().Get("labelSelector")}
		got.info, _ = request.RequestInfoFrom(r.Context())
		if s.handle != nil {
			s.handle(r)
		}
	}))
	answer := httptest.NewRecorder()
	chain.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody))
	return got, answer.Code
}

// chain returns the filters in front of an API handler. They handle requests from user u.
func (s *server) chain(u user.Info, api http.Handler) http.Handler {
	handler := authz.WithTenant(api, &s.sessions)
	handler = filters.WithAuthorization(handler, s.boundary, scheme.Codecs)
	chain := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestUser := authz.RecordCaller(r.Context(), u)
		if s.impersonated != nil {
			requestUser = s.impersonated
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), requestUser)))
	}))
	chain = filters.WithRequestInfo(chain, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	return authz.WithRequestState(chain, s.older)
}

func allowingServer(o authz.Options) *server {
	return &server{boundary: authz.New(o, &recorder{decision: authorizer.DecisionAllow}, nil)}
}

var listsOverAllNamespaces = []struct{ method, path string }{
	{http.MethodGet, "/api/v1/pods"},
	{http.MethodGet, "/api/v1/watch/pods"},
	{http.MethodDelete, "/api/v1/pods"},
	{http.MethodGet, "/apis/apps/v1/deployments"},
	{http.MethodGet, "/apis/apps/v1/watch/deployments"},
	{http.MethodDelete, "/apis/apps/v1/deployments"},
	{http.MethodGet, "/api/v1/secrets"},
	{http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/rolebindings"},
}

// TestListsAreFiltered checks that a request over all namespaces is either denied or limited to the
// caller's tenant, in the query and in RequestInfo.
func TestListsAreFiltered(t *testing.T) {
	for query, want := range map[string]bool{
		"":                          true,
		"?watch=true":               true,
		"?continue=":                true,
		"?continue=abc":             false,
		"?labelSelector=":           true,
		"?labelSelector=env%3Dprod": true,
		"?fieldSelector=metadata.namespace%3Db--web":      true,
		"?fieldSelector=metadata.name%3Dx":                true,
		"?resourceVersion=0":                              true,
		"?labelSelector=kubetenant.dev%2Ftenant%3Db":      true,
		"?labelSelector=kubetenant.dev%2Ftenant+in+(a,b)": true,
		"?sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&watch=true": true,
		"?labelSelector=a&labelSelector=b": false,
		"?LabelSelector=a":                 false,
		"?labelselector=a":                 false,
		"?labelSelector=%3D%3D":            false,
		"?labelSelector=a;labelSelector=b": false,
		"?a=%zz":                           false,
	} {
		t.Run(query, func(t *testing.T) {
			for _, l := range listsOverAllNamespaces {
				got, code := allowingServer(labeledOptions()).send(t, callerOf("a"), l.method, l.path+query)
				if (got != nil) != want {
					t.Errorf("%s %s%s: %d, served %t", l.method, l.path, query, code, got != nil)
				}
				if got == nil {
					continue
				}
				for _, text := range []string{got.selector, got.info.LabelSelector} {
					selector, err := labels.Parse(text)
					if err != nil || selector.Matches(labels.Set{tenant.Label: "b", "env": "prod"}) ||
						selector.Matches(labels.Set{"env": "prod"}) {
						t.Errorf("%s %s%s is served with selector %q", l.method, l.path, query, text)
					}
				}
			}
		})
	}
}

// TestPagination checks that a list over all namespaces has one page, so that no continue token
// reveals objects of other tenants. Either the client or the boundary provides the label selector.
func TestPagination(t *testing.T) {
	e := &exceptionRecorder{allow: true}
	o := labeledOptions()
	for _, own := range []string{
		"", "&labelSelector=kubetenant.dev/tenant%3Da", "&labelSelector=kubetenant.dev/tenant%3Db",
	} {
		if strings.HasSuffix(own, "b") {
			o.Exceptions = []authz.Exception{e.exception()}
		}
		for query, want := range map[string]int{
			"?limit=1":                200,
			"?Limit=1":                200,
			"?limit=1&limit=2":        200,
			"?limit=1&continue=":      200,
			"?limit=500":              200,
			"?continue=abc":           410,
			"?limit=1&continue=abc":   410,
			"?continue=&continue=abc": 410,
			"?Continue=abc":           410,
		} {
			t.Run(query, func(t *testing.T) {
				for _, l := range append(listsOverAllNamespaces[:len(listsOverAllNamespaces):len(listsOverAllNamespaces)],
					struct{ method, path string }{http.MethodGet, "/api/v1/namespaces"}) {
					want := want
					switch {
					// The attributes of this path have no selector, so the exception allows the
					// whole list.
					case strings.Contains(l.path, "/watch/") && strings.HasSuffix(own, "b"):
						continue
					case l.method == http.MethodDelete && want == 200 && strings.Contains(strings.ToLower(query), "limit"):
						want = 400 // without the limit, more objects would be deleted
					}
					s, query := allowingServer(o), query+own
					raw := ""
					s.handle = func(r *http.Request) { raw = strings.ToLower(r.URL.RawQuery) }
					if _, code := s.send(t, callerOf("a"), l.method, l.path+query); code != want || strings.Contains(raw, "limit=") ||
						strings.Contains(raw, "continue=") {
						t.Errorf("%s %s%s: %d, want %d; served with query %q", l.method, l.path, query, code, want, raw)
					}
				}
			})
		}
	}
	for target, u := range map[string]user.Info{
		"/api/v1/namespaces/a--web/pods?limit=1&continue=abc": callerOf("a"),
		"/api/v1/pods?limit=1&continue=abc":                   callerOf("system"),
	} {
		t.Run(target, func(t *testing.T) {
			s := allowingServer(o)
			s.handle = func(r *http.Request) {
				if r.URL.Query().Get("limit") != "1" || r.URL.Query().Get("continue") != "abc" {
					t.Errorf("%s is served with query %q", target, r.URL.RawQuery)
				}
			}
			if _, code := s.send(t, u, http.MethodGet, target); code != 200 {
				t.Errorf("%d", code)
			}
		})
	}
}

// TestListsAreDeniedUntilLabeled checks that lists of a resource are denied until its objects are
// labeled. Without [authz.Options.Labeled], all these lists are denied.
func TestListsAreDeniedUntilLabeled(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	o := options(namespaceLabels)
	o.Labeled = func(r schema.GroupResource, _ tenant.ID) bool { return r == pods }
	for path, want := range map[string]int{
		"/api/v1/pods":                      200,
		"/api/v1/secrets":                   403,
		"/apis/metrics.k8s.io/v1beta1/pods": 403,
		"/api/v1/nodes":                     403,
		"/apis/x.example.com/v1/things":     403,
	} {
		t.Run(path, func(t *testing.T) {
			if _, code := allowingServer(o).send(t, callerOf("a"), http.MethodGet, path); code != want {
				t.Errorf("%s = %d, want %d", path, code, want)
			}
			if _, code := allowingServer(options(namespaceLabels)).send(t, callerOf("a"), http.MethodGet, path); code != 403 {
				t.Errorf("%s without Labeled = %d", path, code)
			}
		})
	}
	o.Selectable = []schema.GroupResource{{Group: "metrics.k8s.io", Resource: "pods"}, {Resource: "nodes"}}
	for path, want := range map[string]int{"/apis/metrics.k8s.io/v1beta1/pods": 200, "/api/v1/nodes": 403} {
		t.Run(path, func(t *testing.T) {
			if got, code := allowingServer(o).send(t, callerOf("a"), http.MethodGet, path); code != want ||
				got != nil && got.selector != "kubetenant.dev/tenant=a" {
				t.Errorf("%s = %d %+v, want %d", path, code, got, want)
			}
		})
	}
}

// FuzzSelector checks that no query of a tenant's caller makes the handler select an unlabeled
// object or an object of another tenant.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"labelSelector=a%3Db", "labelSelector=!a", "labelSelector=kubetenant.dev/tenant%3Db",
		"watch=1&labelSelector=x+notin+(y)", "labelSelector=a&labelSelector=b",
		"%6cabelSelector=a", "labelSelector=kubetenant.dev/tenant+in+(a,b),x", "labelSelector[]=a", "LABELSELECTOR=a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if _, err := url.ParseRequestURI("/x?" + query); err != nil || strings.ContainsAny(query, " \n\r\t\x00#") {
			return
		}
		got, _ := allowingServer(labeledOptions()).send(t, callerOf("a"), http.MethodGet, "http://x/api/v1/secrets?"+query)
		if got == nil {
			return
		}
		for _, text := range []string{got.selector, got.info.LabelSelector} {
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatalf("%q is served with selector %q: %v", query, text, err)
			}
			for _, set := range []labels.Set{
				{}, {tenant.Label: "b"}, {tenant.Label: ""}, {tenant.Label: "A"}, {"a": "b", "x": "z"},
			} {
				if selector.Matches(set) {
					t.Fatalf("%q is served with selector %q, which selects %v", query, text, set)
				}
			}
		}
	})
}

// servesOlderPaths enables the older form for pods, deployments and namespaces.
func servesOlderPaths(r schema.GroupResource) bool {
	return r.Resource == "pods" || r.Resource == "namespaces" && r.Group == "" ||
		r.Group == "apps" && r.Resource == "deployments"
}

// TestOlderTenantPaths checks paths in the older form, in which the tenant is between the version
// and the resource.
func TestOlderTenantPaths(t *testing.T) {
	for _, c := range []struct {
		name, tenant, target, path string
		code                       int
	}{
		{
			"pods in an own namespace",
			"a", "/api/v1/tenants/a/namespaces/a--web/pods", "/api/v1/namespaces/a--web/pods", 200,
		},
		{
			"a log in an own namespace",
			"a", "/api/v1/tenants/a/namespaces/a--web/pods/p/log", "/api/v1/namespaces/a--web/pods/p/log", 200,
		},
		{"an own namespace", "a", "/api/v1/tenants/a/namespaces/a--web", "/api/v1/namespaces/a--web", 200},
		{"the list of namespaces", "a", "/api/v1/tenants/a/namespaces", "/api/v1/namespaces", 200},
		{"the list of all pods", "a", "/api/v1/tenants/a/pods", "/api/v1/pods", 200},
		{
			"deployments in an own namespace",
			"a", "/apis/apps/v1/tenants/a/namespaces/a--web/deployments", "/apis/apps/v1/namespaces/a--web/deployments", 200,
		},
		{"the status of a namespace", "a", "/api/v1/tenants/a/namespaces/a--web/status", "", 403},
		{"another tenant's path", "a", "/api/v1/tenants/b/namespaces/a--web/pods", "", 403},
		{"the path of all tenants", "a", "/api/v1/tenants/all/pods", "", 403},
		{"another tenant's namespace", "a", "/api/v1/tenants/a/namespaces/b--web/pods", "", 403},
		{"deployments on another tenant's path", "a", "/apis/apps/v1/tenants/b/deployments", "", 403},
		{"an empty tenant", "a", "/api/v1/tenants//pods", "", 400},
		{"an encoded letter as the tenant", "a", "/api/v1/tenants/%61/pods", "", 400},
		{"an encoded slash in the tenant", "a", "/api/v1/tenants/a%2fb/pods", "", 400},
		{"a dot as the tenant", "a", "/api/v1/tenants/./pods", "", 400},
		{"the system tenant with a capital letter", "a", "/api/v1/tenants/System/pods", "", 400},
		{"both forms with the same tenant", "a", "/tenants/a/api/v1/tenants/a/pods", "", 400},
		{"both forms with different tenants", "a", "/tenants/a/api/v1/tenants/b/pods", "", 400},
		// These paths are not in the older form. They keep their usual meaning, and tenants may not
		// access them.
		{"a tenant without a resource", "a", "/api/v1/tenants/a", "", 403},
		{"a tenant and a slash", "a", "/api/v1/tenants/a/", "", 403},
		{"two tenants", "a", "/api/v1/tenants/a/tenants/b/pods", "", 403},
		{"the status of an object of kind tenants", "a", "/apis/own.example.com/v1/tenants/a/status", "", 403},
		{"a subresource of an object of kind tenants", "a", "/apis/own.example.com/v1/tenants/b/things", "", 403},
		{"an encoded slash in the version", "a", "/apis/apps/v1%2f/tenants/a/deployments", "", 403},
		{
			"the system tenant reads the status of an object of kind tenants",
			"system", "/apis/own.example.com/v1/tenants/a/status", "/apis/own.example.com/v1/tenants/a/status", 200,
		},
		{"the system tenant in another tenant's namespace", "system", "/api/v1/tenants/a/namespaces/b--web/pods", "", 403},
		{
			"the system tenant in a namespace of the path's tenant",
			"system", "/api/v1/tenants/a/namespaces/a--web/pods", "/api/v1/namespaces/a--web/pods", 200,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := allowingServer(labeledOptions())
			s.older = servesOlderPaths
			got, code := s.send(t, callerOf(c.tenant), http.MethodGet, c.target)
			switch {
			case code != c.code:
				t.Errorf("%s: %d, want %d", c.target, code, c.code)
			case got != nil && got.path != c.path:
				t.Errorf("%s: the handler sees %s, want %s", c.target, got.path, c.path)
			}
			if !strings.HasPrefix(c.target, "/tenants/") {
				if got, _ := allowingServer(labeledOptions()).send(t, callerOf("a"), http.MethodGet, c.target); got != nil {
					t.Errorf("%s is served although older paths are disabled: %s", c.target, got.path)
				}
			}
		})
	}
}

// FuzzOlderTenantPath checks that no path lets a tenant's caller reach an object of another
// tenant if older tenant paths are enabled too.
func FuzzOlderTenantPath(f *testing.F) {
	for _, s := range []string{
		"/api/v1/tenants/a/namespaces/b--web/pods", "/api/v1/tenants/b/pods", "/tenants/a/api/v1/tenants/b/pods",
		"/apis/apps/v1/tenants/a/deployments",
		"/api/v1/tenants/a/tenants/b/pods", "/api/v1/tenants/a/namespaces/a--web/pods/../../b--web", "/api//tenants/a/pods",
		"/api/v1/tenants/a/watch/namespaces/b--web/pods",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if u, err := url.ParseRequestURI(target); err != nil || !strings.HasPrefix(u.Path, "/") || u.Host != "" ||
			strings.ContainsAny(target, " \n\r\t\x00") {
			return
		}
		s := allowingServer(labeledOptions())
		s.older = servesOlderPaths
		got, _ := s.send(t, callerOf("a"), http.MethodGet, "http://x"+target)
		if got == nil || !got.info.IsResourceRequest || got.info.Namespace == "a--web" {
			return
		}
		if strings.Contains(got.selector, "kubetenant.dev/tenant=a") && got.selector == got.info.LabelSelector {
			return
		}
		if got.info.Namespace == "" &&
			(strings.HasPrefix(got.info.Resource, "selfsubject") || got.info.Resource == "storageclasses") {
			return
		}
		t.Fatalf("%q is served: %+v", target, got.info)
	})
}

// exceptionRecorder is an exception that records the requests for which it is evaluated.
type exceptionRecorder struct {
	requests []*authz.CrossTenantRequest
	allow    bool
	until    time.Time
}

func (a *exceptionRecorder) exception() authz.Exception {
	return authz.Exception{
		Reason: authz.ReasonGrant,
		Allows: func(_ context.Context, c *authz.CrossTenantRequest) (bool, time.Time) {
			a.requests = append(a.requests, c)
			return a.allow, a.until
		},
	}
}

// TestExceptions checks that exceptions are evaluated only for cross-tenant requests, and that the
// decision has the reason of the exception.
func TestExceptions(t *testing.T) {
	system := &user.DefaultInfo{Name: "root", Extra: map[string][]string{tenant.ExtraKey: {"system"}}}
	inSystemGroup := &user.DefaultInfo{
		Name:   "eve",
		Groups: []string{"system:nodes"},
		Extra:  map[string][]string{tenant.ExtraKey: {"a"}},
	}
	pod := func(verb, namespace string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{
			Verb:            verb,
			Resource:        "pods",
			Namespace:       namespace,
			Name:            "p",
			ResourceRequest: true,
		}
	}
	for name, c := range map[string]struct {
		user  user.Info
		a     authorizer.AttributesRecord
		asked bool
		space authz.ObjectOwner
	}{
		"another tenant's namespace": {
			callerOf("a"),
			pod("get", "b--web"),
			true,
			authz.ObjectOwner{ID: tenanttest.ID(t, "b")},
		},
		"a namespace of the system tenant": {
			callerOf("a"),
			pod("get", "kube-system"),
			true,
			authz.ObjectOwner{ID: tenant.System()},
		},
		"an unowned namespace": {callerOf("a"), pod("get", "bad"), true, authz.ObjectOwner{}},
		"a missing namespace":  {callerOf("a"), pod("get", "missing"), true, authz.ObjectOwner{}},
		"all namespaces":       {callerOf("a"), pod("list", ""), true, authz.ObjectOwner{All: true}},
		"cluster scope": {
			callerOf("a"),
			authorizer.AttributesRecord{Verb: "get", Resource: "nodes", ResourceRequest: true},
			true,
			authz.ObjectOwner{ID: tenant.System()},
		},
		"a path": {
			callerOf("a"),
			authorizer.AttributesRecord{Verb: "get", Path: "/metrics"},
			true,
			authz.ObjectOwner{ID: tenant.System()},
		},
		"the caller's own namespace":    {callerOf("a"), pod("get", "a--web"), false, authz.ObjectOwner{}},
		"a failed lookup":               {callerOf("a"), pod("get", "away"), false, authz.ObjectOwner{}},
		"a caller of the system tenant": {system, pod("get", "b--web"), false, authz.ObjectOwner{}},
		"no tenant":                     {&user.DefaultInfo{Name: "x"}, pod("get", "b--web"), false, authz.ObjectOwner{}},
		"a system group":                {inSystemGroup, pod("get", "b--web"), false, authz.ObjectOwner{}},
		"a dot segment": {
			callerOf("a"),
			authorizer.AttributesRecord{
				Verb:            "get",
				Resource:        "pods",
				Namespace:       "b--web",
				Name:            "..",
				ResourceRequest: true,
			},
			false,
			authz.ObjectOwner{},
		},
		"a wildcard": {
			callerOf("a"),
			authorizer.AttributesRecord{
				Verb:            "*",
				Resource:        "pods",
				Namespace:       "b--web",
				ResourceRequest: true,
			},
			false,
			authz.ObjectOwner{},
		},
		"a review of others": {
			callerOf("a"),
			authorizer.AttributesRecord{
				Verb:            "create",
				APIGroup:        "authorization.k8s.io",
				Resource:        "localsubjectaccessreviews",
				Namespace:       "b--web",
				ResourceRequest: true,
			},
			false,
			authz.ObjectOwner{},
		},
		"a node with a namespace": {
			callerOf("a"),
			authorizer.AttributesRecord{
				Verb:            "get",
				Resource:        "nodes",
				Namespace:       "b--web",
				Name:            "n",
				ResourceRequest: true,
			},
			true,
			authz.ObjectOwner{ID: tenant.System()},
		},
		"impersonation": {
			callerOf("a"),
			authorizer.AttributesRecord{
				Verb:            "impersonate",
				Resource:        "serviceaccounts",
				Namespace:       "b--web",
				Name:            "x",
				ResourceRequest: true,
			},
			false,
			authz.ObjectOwner{},
		},
		"constrained impersonation": {
			callerOf("a"),
			pod("impersonate-on:user-info:get", "b--web"),
			false,
			authz.ObjectOwner{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, allow := range []bool{true, false} {
				e := &exceptionRecorder{allow: allow}
				o := labeledOptions()
				o.Exceptions = []authz.Exception{e.exception()}
				c.a.User = c.user
				d, reason, err := authz.New(o, nil, nil).Authorize(t.Context(), c.a)
				if (len(e.requests) == 1) != c.asked {
					t.Errorf("evaluated %d times", len(e.requests))
				}
				if c.asked && (e.requests[0].Owner != c.space || e.requests[0].Caller != tenanttest.ID(t, "a")) {
					t.Errorf("evaluated for %+v", e.requests[0])
				}
				if want := c.asked && allow; (d == authorizer.DecisionAllow) != want ||
					(reason == authz.ReasonGrant.String()) != want || err != nil {
					t.Errorf("%v, %q, %v", d, reason, err)
				}
			}
		})
	}
}

// TestExceptionsInRequestFilters checks that exceptions allow neither requests on a tenant path nor
// requests with two label selectors.
func TestExceptionsInRequestFilters(t *testing.T) {
	e := &exceptionRecorder{allow: true}
	o := labeledOptions()
	o.Exceptions = []authz.Exception{e.exception()}
	for target, want := range map[string]int{
		"/api/v1/namespaces/b--web/pods":                                                               200,
		"/tenants/a/api/v1/namespaces/b--web/pods":                                                     403,
		"/tenants/b/api/v1/namespaces/b--web/pods":                                                     403,
		"/api/v1/pods?labelSelector=kubetenant.dev/tenant%3Db":                                         200,
		"/api/v1/pods?labelSelector=kubetenant.dev/tenant%3Db&labelSelector=kubetenant.dev/tenant%3Dc": 403,
		"/api/v1/pods?labelSelector=kubetenant.dev/tenant%3Db&LabelSelector=x":                         403,
		// The exception of this test allows every request, even this one for the objects of all
		// tenants.
		"/apis/metrics.k8s.io/v1beta1/pods?labelSelector=kubetenant.dev/tenant%3Db":                         200,
		"/api/v1/namespaces?labelSelector=kubetenant.dev/tenant%3Db&labelSelector=kubetenant.dev/tenant%3D": 403,
	} {
		t.Run(target, func(t *testing.T) {
			if _, code := allowingServer(o).send(t, callerOf("a"), http.MethodGet, target); code != want {
				t.Errorf("%s = %d, want %d", target, code, want)
			}
		})
	}
}

// TestSessionsEnd checks that the sessions in a namespace end when its owner changes, and not
// before.
func TestSessionsEnd(t *testing.T) {
	ns := func(uid, owner string) *corev1.Namespace {
		n := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "a--web", UID: types.UID(uid), Labels: map[string]string{tenant.Label: owner}},
		}
		if owner == "" {
			n.Labels = nil
		}
		return n
	}
	for name, c := range map[string]struct {
		event func(*authz.Sessions)
		ends  bool
	}{
		"same owner": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("1", "a")) }, false,
		},
		"owner is another tenant": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("1", "b")) }, true,
		},
		"label removed": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("1", "")) },
			true,
		},
		"unowned": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("1", "System")) }, true,
		},
		"created again for the same tenant": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("2", "a")) }, true,
		},
		"created again for another tenant": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnAdd(ns("2", "b"), false) },
			true,
		},
		"deleted": {func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnDelete(ns("1", "a")) }, true},
		"initial list": {
			func(s *authz.Sessions) { s.NamespaceHandler(authz.OwnerOf).OnAdd(ns("1", "a"), true) },
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := allowingServer(labeledOptions())
			s.handle = func(r *http.Request) {
				c.event(&s.sessions)
				if ended := r.Context().Err() != nil; ended != c.ends {
					t.Errorf("ended %t", ended)
				}
			}
			if got, code := s.send(t, callerOf("a"), http.MethodGet, "/api/v1/namespaces/a--web/pods?watch=true"); got == nil {
				t.Fatal(code)
			}
			// Requests of system callers and requests in other namespaces do not end.
			s.handle = func(r *http.Request) {
				s.sessions.NamespaceHandler(authz.OwnerOf).OnUpdate(ns("1", "a"), ns("1", "b"))
				s.sessions.NamespaceHandler(authz.OwnerOf).OnDelete(ns("1", "a"))
				if r.Context().Err() != nil {
					t.Errorf("%s: an unrelated request ended", r.URL.Path)
				}
			}
			s.send(t, callerOf("system"), http.MethodGet, "/api/v1/namespaces/a--web/pods?watch=true")
			s.send(t, callerOf("b"), http.MethodGet, "/api/v1/namespaces/b--web/pods?watch=true")
			s.send(t, callerOf("a"), http.MethodGet, "/api/v1/pods?watch=true")
		})
	}
}

// TestEndedSessionsAreRemoved checks that Sessions does not retain sessions that have ended.
func TestEndedSessionsAreRemoved(t *testing.T) {
	s := allowingServer(labeledOptions())
	for range 3 {
		s.send(t, callerOf("a"), http.MethodGet, "/api/v1/namespaces/a--web/pods?watch=true")
		s.send(t, callerOf("a"), http.MethodGet, "/api/v1/pods?watch=true")
	}
	s.sessions.EndRevoked(func(c *authz.Caller) bool {
		t.Errorf("a session of tenant %s is still stored", c.Tenant)
		return true
	})
}

// TestSessionsInMissingNamespacesEnd checks that a request in a missing namespace ends when another
// tenant creates the namespace.
func TestSessionsInMissingNamespacesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		ends   bool
	}{
		"created for the system tenant":   {nil, true},
		"created for another tenant":      {map[string]string{tenant.Label: "b"}, true},
		"created without an owner":        {map[string]string{tenant.Label: "System"}, true},
		"created for the caller's tenant": {map[string]string{tenant.Label: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := labeledOptions()
			o.PrefixesReserved = true
			s := allowingServer(o)
			s.handle = func(r *http.Request) {
				s.sessions.NamespaceHandler(authz.OwnerOf).OnAdd(&corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: "a--new", Labels: c.labels},
				}, false)
				if ended := r.Context().Err() != nil; ended != c.ends {
					t.Errorf("ended %t", ended)
				}
			}
			if got, code := s.send(t, callerOf("a"), http.MethodPost, "/api/v1/namespaces/a--new/pods"); got == nil {
				t.Fatal(code)
			}
		})
	}
}

// TestImpersonatedGroups checks that an impersonator cannot add the group of a tenant without being
// in the group itself. A caller of the system tenant can.
func TestImpersonatedGroups(t *testing.T) {
	for name, c := range map[string]struct {
		real user.Info
		is   bool
	}{
		"in the group": {
			&user.DefaultInfo{Name: "lead", Groups: []string{"tenant:a"}, Extra: callerOf("a").GetExtra()}, true,
		},
		"in another group": {
			&user.DefaultInfo{Name: "lead", Groups: []string{"tenant:ab"}, Extra: callerOf("a").GetExtra()}, false,
		},
		"in no group":       {&user.DefaultInfo{Name: "bot", Extra: callerOf("a").GetExtra()}, false},
		"the system tenant": {callerOf("system"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := allowingServer(labeledOptions())
			s.impersonated = &user.DefaultInfo{Name: "bob", Extra: callerOf("a").GetExtra()}
			s.handle = func(r *http.Request) {
				u, _ := request.UserFrom(r.Context())
				if inGroup := slices.Contains(u.GetGroups(), "tenant:a"); inGroup != c.is {
					t.Errorf("in the tenant's group: %t", inGroup)
				}
			}
			if got, code := s.send(t, c.real, http.MethodGet, "/api/v1/namespaces/a--web/pods"); got == nil &&
				name != "in another group" {
				t.Errorf("%d", code)
			}
		})
	}
}

// TestRevokedSessionsEnd checks that all sessions of a revoked caller end, and no others. A caller
// of the system tenant can be revoked too.
func TestRevokedSessionsEnd(t *testing.T) {
	mallory := func(id string) user.Info { return &user.DefaultInfo{Name: "mallory", Extra: callerOf(id).GetExtra()} }
	isMallory := func(c *authz.Caller) bool { return c.User.GetName() == "mallory" && c.Tenant.String() != "b" }
	for _, target := range []string{
		"/api/v1/namespaces/a--web/pods?watch=true", "/api/v1/pods?watch=true", "/api/v1/namespaces?watch=true",
		"/api/v1/watch/pods", "/apis/apps/v1/deployments?watch=1", "/api/v1/namespaces/a--web/pods/p/log?follow=true",
	} {
		for name, c := range map[string]struct {
			user user.Info
			ends bool
		}{
			"mallory of a":          {mallory("a"), true},
			"mallory of the system": {mallory("system"), true},
			"alice":                 {callerOf("a"), false},
		} {
			t.Run(name, func(t *testing.T) {
				s := allowingServer(labeledOptions())
				s.handle = func(r *http.Request) {
					s.sessions.EndRevoked(isMallory)
					if ended := r.Context().Err() != nil; ended != c.ends {
						t.Errorf("%s, %s: ended %t", target, name, ended)
					}
				}
				if got, code := s.send(t, c.user, http.MethodGet, target); got == nil {
					t.Errorf("%s, %s: %d", target, name, code)
				}
			})
		}
	}
}

// TestSessionsOfRevokedImpersonatorsEnd checks that a session of an impersonated user ends when its
// impersonator is revoked.
func TestSessionsOfRevokedImpersonatorsEnd(t *testing.T) {
	for name, ends := range map[string]bool{"mallory": true, "alice": false} {
		t.Run(name, func(t *testing.T) {
			s := allowingServer(labeledOptions())
			s.impersonated = &user.DefaultInfo{Name: "bob"}
			s.handle = func(r *http.Request) {
				s.sessions.EndRevoked(func(c *authz.Caller) bool {
					if c.User.GetName() != "bob" || c.Impersonator == nil {
						t.Errorf("%+v", c)
					}
					return c.Impersonator != nil && c.Impersonator.GetName() == "mallory"
				})
				if ended := r.Context().Err() != nil; ended != ends {
					t.Errorf("as bob by %s: ended %t", name, ended)
				}
			}
			if got, code := s.send(t, &user.DefaultInfo{Name: name, Extra: callerOf("a").GetExtra()}, http.MethodGet,
				"/api/v1/pods?watch=true"); got == nil {
				t.Errorf("%d", code)
			}
		})
	}
}

// TestInvalidMethodsAreRejected checks that a method that is not a token is rejected. HTTP/2
// accepts such a method, and the boundary could read it as an impersonation verb.
func TestInvalidMethodsAreRejected(t *testing.T) {
	for method, want := range map[string]int{
		"GET":                          200,
		"get":                          200,
		"POST":                         200,
		"PATCH":                        200,
		"OPTIONS":                      200,
		"MKCOL":                        200,
		"X-1!#$%&'*+.^_`|~":            200,
		"impersonate-on:user-info:get": 400,
		"GET ":                         400,
		"GE T":                         400,
		"":                             400,
		"GET/":                         400,
		"G\u00c9T":                     400,
		"GET\x00":                      400,
		"(GET)":                        400,
		"impersonate:user-info":        400,
	} {
		t.Run(method, func(t *testing.T) {
			reached := false
			handler := authz.WithRequestState(filters.WithRequestInfo(http.HandlerFunc(func(
				_ http.ResponseWriter, r *http.Request,
			) {
				reached = true
				if info, ok := request.RequestInfoFrom(r.Context()); ok && strings.HasPrefix(info.Verb, "impersonate") {
					t.Errorf("%q is the verb %q", method, info.Verb)
				}
			}), &request.RequestInfoFactory{
				APIPrefixes:          sets.NewString("api", "apis"),
				GrouplessAPIPrefixes: sets.NewString("api"),
			}), nil)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
				"/tenants/b/api/v1/namespaces/b--web/pods", http.NoBody)
			r.Method = method
			answer := httptest.NewRecorder()
			if handler.ServeHTTP(answer, r); answer.Code != want || reached != (want == 200) {
				t.Errorf("method %q: %d, want %d", method, answer.Code, want)
			}
		})
	}
}

// TestExceptedSessionsEnd checks that a session that an exception allowed ends when the exception
// expires or the exceptions change.
func TestExceptedSessionsEnd(t *testing.T) {
	e := &exceptionRecorder{allow: true}
	o := labeledOptions()
	o.Exceptions = []authz.Exception{e.exception()}
	for name, c := range map[string]struct {
		target string
		until  time.Time
		during func(*authz.Sessions)
		ends   bool
	}{
		"nothing changes": {"/api/v1/namespaces/b--web/pods?watch=true", time.Time{}, func(*authz.Sessions) {}, false},
		"exceptions in the namespace change": {
			"/api/v1/namespaces/b--web/pods?watch=true", time.Time{}, func(s *authz.Sessions) { s.EndExcepted("b--web") }, true,
		},
		"exceptions in another namespace change": {
			"/api/v1/namespaces/b--web/pods?watch=true", time.Time{}, func(s *authz.Sessions) { s.EndExcepted("c--web") }, false,
		},
		"all exceptions change": {
			"/api/v1/namespaces/b--web/pods?watch=true", time.Time{}, func(s *authz.Sessions) { s.EndExcepted("") }, true,
		},
		"all exceptions change, watch over all namespaces": {
			"/api/v1/pods?watch=true", time.Time{}, func(s *authz.Sessions) { s.EndExcepted("") }, true,
		},
		"expired": {
			"/api/v1/namespaces/b--web/pods?watch=true", time.Now().Add(-time.Second), func(*authz.Sessions) {}, true,
		},
		"not expired": {
			"/api/v1/namespaces/b--web/pods?watch=true", time.Now().Add(time.Hour), func(*authz.Sessions) {}, false,
		},
		"the caller's own namespace": {
			"/api/v1/namespaces/a--web/pods?watch=true", time.Time{}, func(s *authz.Sessions) { s.EndExcepted("") }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e.until = c.until
			s := allowingServer(o)
			s.handle = func(r *http.Request) {
				c.during(&s.sessions)
				if ended := r.Context().Err() != nil; ended != c.ends {
					t.Errorf("ended %t", ended)
				}
			}
			if got, code := s.send(t, callerOf("a"), http.MethodGet, c.target); got == nil {
				t.Errorf("%d", code)
			}
		})
	}
	e.until = time.Time{}
	// A change before the start of the request does not end its session.
	before := allowingServer(o)
	before.sessions.EndExcepted("b--web")
	before.handle = func(r *http.Request) {
		if r.Context().Err() != nil {
			t.Error("a change before the request ended its session")
		}
	}
	before.send(t, callerOf("a"), http.MethodGet, "/api/v1/namespaces/b--web/pods?watch=true")
	// A change while the request is being authorized ends its session.
	s := allowingServer(o)
	s.boundary = authz.New(withException(
		o,
		authz.Exception{
			Reason: authz.ReasonGrant,
			Allows: func(context.Context, *authz.CrossTenantRequest) (bool, time.Time) {
				s.sessions.EndExcepted("b--web")
				return true, time.Time{}
			},
		},
	), nil, nil)
	ended := false
	s.handle = func(r *http.Request) { ended = r.Context().Err() != nil }
	if s.send(t, callerOf("a"), http.MethodGet, "/api/v1/namespaces/b--web/pods?watch=true"); !ended {
		t.Error("a change during authorization did not end the session")
	}
}

func withException(o authz.Options, e authz.Exception) authz.Options {
	o.Exceptions = []authz.Exception{e}
	return o
}
