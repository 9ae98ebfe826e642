// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// trackerViews configures a view of KubeVela's ResourceTrackers.
const trackerViews = `  views:
    objects:
    - name: trackers
      of: { group: core.oam.dev, version: v1beta1, resource: resourcetrackers }
      namespaceFrom: spec.managedResources[*].namespace
      fields:
      - metadata.labels['app.oam.dev/name']
      - spec.type
      - spec.managedResources[*].kind
      - spec.managedResources[*].name
`

const (
	viewsRoot    = "/clusters/eu1/gateway"
	viewsVersion = viewsRoot + "/apis/gateway.kubetenant.dev/v1alpha1"
	trackersPath = viewsVersion + "/namespaces/acme--web/trackers"
	sourcePath   = "/apis/core.oam.dev/v1beta1/resourcetrackers"
)

// trackerOf returns a ResourceTracker with one resource in each of the namespaces.
func trackerOf(name, version string, namespaces ...string) string {
	entries := make([]string, len(namespaces))
	for i, namespace := range namespaces {
		entries[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","namespace":%q,"name":"secret-of-%[1]s"}`, namespace)
	}
	return fmt.Sprintf(`{"apiVersion":"core.oam.dev/v1beta1","kind":"ResourceTracker","metadata":{"name":%q,`+
		`"resourceVersion":%q,"labels":{"app.oam.dev/name":%[1]q,"hidden":"yes"}},"spec":{"type":"versioned",`+
		`"compression":{"data":"CANARY"},"managedResources":[%[3]s]}}`, name, version, strings.Join(entries, ","))
}

// trackerServer serves ResourceTrackers to the reader of a cluster.
type trackerServer struct {
	mu       sync.Mutex
	items    map[string]string // JSON of the ResourceTrackers, keyed by name
	paths    []string          // paths and queries
	handler  func(http.ResponseWriter, *http.Request) bool
	events   chan string
	reviewed []authorizationv1.SubjectAccessReviewSpec
	denied   bool
}

func (s *trackerServer) serve(w http.ResponseWriter, r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, sourcePath)
	if !ok {
		return false
	}
	s.mu.Lock()
	s.paths = append(s.paths, rest+"?"+r.URL.RawQuery)
	answer := s.handler
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if answer != nil && answer(w, r) {
		return true
	}
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		for {
			select {
			case text := <-s.events:
				_, _ = io.WriteString(w, text)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return true
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := strings.TrimPrefix(rest, "/"); name != "" {
		text, found := s.items[name]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"CANARY"}`
		}
		_, _ = io.WriteString(w, text)
		return true
	}
	all := []string{}
	for _, text := range s.items {
		all = append(all, text)
	}
	slices.Sort(all)
	_, _ = fmt.Fprintf(w, `{"kind":"ResourceTrackerList","apiVersion":"core.oam.dev/v1beta1",`+
		`"metadata":{"resourceVersion":"100"},"items":[%s]}`, strings.Join(all, ","))
	return true
}

// requests returns and clears the recorded requests.
func (s *trackerServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.paths, s.reviewed = nil, nil }()
	return s.paths
}

func (s *trackerServer) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// newTrackerFixture returns a gateway with a view of ResourceTrackers.
func newTrackerFixture(t testing.TB, more string) (*fixture, *fakeCluster, *trackerServer) {
	t.Helper()
	return newTrackerFixtureIn(t, more, defaultNamespaces())
}

func newTrackerFixtureIn(
	t testing.TB,
	more string,
	namespaces map[string]string,
) (*fixture, *fakeCluster, *trackerServer) {
	t.Helper()
	s := &trackerServer{
		events: make(chan string, 16),
		items: map[string]string{
			"shop":   trackerOf("shop", "7", "acme--web", "globex--shop"),
			"shared": trackerOf("shared", "8", "globex--shop", "acme--web", ""),
			"theirs": trackerOf("theirs", "9", "globex--shop"),
			"other":  `{"metadata":{"name":"other","resourceVersion":"3"},"spec":"acme--web"}`,
		},
	}
	c := newFakeCluster(t, namespaces)
	c.readerHandler = s.serve
	c.allow = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reviewed = append(s.reviewed, spec)
		return !s.denied
	}
	return newFixture(t, clusterEntry("eu1", more)+trackerViews, map[string]*fakeCluster{"eu1": c}), c, s
}

// TestObjectViews checks that a view contains only the entries of its namespace and the listed
// fields.
func TestObjectViews(t *testing.T) {
	t.Parallel()
	w, c, s := newTrackerFixture(t, passAccountTokens)
	const (
		own = `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","kind":"Trackers","metadata":{"labels":` +
			`{"app.oam.dev/name":"shop"},"name":"shop","namespace":"acme--web","resourceVersion":"7"},"spec":` +
			`{"managedResources":[{"kind":"Secret","name":"secret-of-acme--web"}],"type":"versioned"}}`
		partial = `"kind":"PartialObjectMetadata"`
		table   = "application/json;as=Table;v=v1;g=meta.k8s.io"
		meta    = "application/json;as=PartialObjectMetadata%s;v=v1;g=meta.k8s.io"
	)
	shared := strings.NewReplacer(`"shop"`, `"shared"`, `"7"`, `"8"`).Replace(own)
	list := func(items string) string {
		return `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","items":[` + items + `],"kind":"TrackersList","metadata":` +
			`{"resourceVersion":"100"}}`
	}
	for what, r := range map[string]struct {
		path, accept string
		code         int
		want         string
	}{
		"a list":                {"", "", 200, list(shared + "," + own)},
		"an object":             {"/shop", "", 200, own},
		"a limit":               {"?limit=1", "", 200, list(shared + "," + own)},
		"a cached list":         {"?resourceVersion=0", "", 200, list(shared + "," + own)},
		"a name":                {"?fieldSelector=metadata.name%3Dshop", "", 200, list(own)},
		"another name":          {"?fieldSelector=metadata.name%3Dtheirs", "", 200, list("")},
		"a namespace":           {"?fieldSelector=metadata.namespace%3Dglobex--shop", "", 200, list("")},
		"a label":               {"?labelSelector=app.oam.dev%2Fname%3Dshop", "", 200, list(own)},
		"a label not shown":     {"?labelSelector=hidden%3Dyes", "", 200, list("")},
		"no label not shown":    {"?labelSelector=!hidden", "", 200, list(shared + "," + own)},
		"YAML":                  {"/shop", "application/yaml", 200, "kind: Trackers"},
		"a table":               {"", table, 200, `"cells":["shop"]`},
		"a table of one":        {"/shop", table, 200, `"cells":["shop"]`},
		"a table with objects":  {"?includeObject=Object", table, 200, own},
		"metadata":              {"/shop", fmt.Sprintf(meta, ""), 200, partial},
		"metadata of a list":    {"", fmt.Sprintf(meta, "List"), 200, `"kind":"PartialObjectMetadataList"`},
		"protocol buffers":      {"", "application/vnd.kubernetes.protobuf", 406, "NotAcceptable"},
		"protobuf or JSON":      {"/shop", "application/vnd.kubernetes.protobuf,application/json", 200, own},
		"a watch of tables":     {"?watch=1", table, 406, "NotAcceptable"},
		"a watch as YAML":       {"?watch=1", "application/yaml", 406, "NotAcceptable"},
		"an initial list":       {"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", 422, "forbidden"},
		"a token":               {"?continue=x", "", 400, "one page"},
		"a field":               {"?fieldSelector=spec.type%3Dx", "", 400, "fieldSelector"},
		"a malformed selector":  {"?labelSelector=%3D%3D", "", 400, "malformed"},
		"a malformed version":   {"?resourceVersion=x", "", 400, "resourceVersion"},
		"a match alone":         {"?resourceVersionMatch=Exact", "", 422, "resourceVersion"},
		"a status":              {"/shop/status", "", 404, ""},
		"below a status":        {"/shop/status/x", "", 404, ""},
		"a hidden object":       {"/theirs", "", 404, `"message":"trackers.gateway.kubetenant.dev \"theirs\" not found"`},
		"a missing object":      {"/nothing", "", 404, `"message":"trackers.gateway.kubetenant.dev \"nothing\" not found"`},
		"a malformed object":    {"/other", "", 404, `"message":"trackers.gateway.kubetenant.dev \"other\" not found"`},
		"a name with a percent": {"/a%25b", "", 404, "not found"},
	} {
		t.Run(what, func(t *testing.T) {
			accept := r.accept
			if accept == "" {
				accept = "application/json"
			}
			code, text := w.getAs(t.Context(), "alice-token", trackersPath+r.path, accept)
			if code != r.code || !strings.Contains(text, r.want) || strings.HasPrefix(r.want, "{") && r.accept == "" &&
				strings.TrimSpace(text) != r.want {
				t.Errorf("%d: %s, want %d: %s", code, text, r.code, r.want)
			}
			for _, hidden := range []string{"globex", "CANARY", "hidden\":"} {
				if what != "a namespace" && strings.Contains(text, hidden) {
					t.Errorf("the response contains %s: %s", hidden, text)
				}
			}
		})
	}
	for _, requested := range s.requests() {
		if strings.Contains(requested, "elector") || strings.Contains(requested, "continue") ||
			strings.Contains(requested, "limit") {
			t.Errorf("the cluster received %s", requested)
		}
	}
	if received := c.takeRequests(); len(received) > 0 {
		t.Errorf("the cluster received %v", received[0].URL)
	}
}

// TestObjectViewPaths checks that a view can be read only at its own path, in one version and one
// namespace.
func TestObjectViewPaths(t *testing.T) {
	t.Parallel()
	w, c, s := newTrackerFixture(t, "")
	for what, r := range map[string]struct {
		token, method, path string
		want                int
	}{
		"discovery":              {"alice-token", "GET", viewsRoot + "/apis", 200},
		"the group":              {"bob-token", "GET", viewsRoot + "/apis/gateway.kubetenant.dev", 200},
		"the version":            {"bob-token", "GET", viewsVersion, 200},
		"no credential":          {"", "GET", trackersPath, 401},
		"discovery, anonymous":   {"", "GET", viewsRoot + "/apis", 401},
		"an unknown token":       {"x", "GET", trackersPath, 401},
		"another tenant":         {"bob-token", "GET", trackersPath, 403},
		"another tenant, object": {"bob-token", "GET", trackersPath + "/shop", 403},
		"another tenant, watch":  {"bob-token", "GET", trackersPath + "?watch=1", 403},
		"an unowned namespace":   {"bob-token", "GET", viewsVersion + "/namespaces/default/trackers", 403},
		"a missing namespace":    {"bob-token", "GET", viewsVersion + "/namespaces/none/trackers", 403},
		"all namespaces":         {"root-token", "GET", viewsVersion + "/trackers", 400},
		"all, older watch path":  {"root-token", "GET", viewsVersion + "/watch/trackers", 404},
		"an older watch path":    {"alice-token", "GET", viewsVersion + "/watch/namespaces/acme--web/trackers", 404},
		"object, no namespace":   {"root-token", "GET", viewsVersion + "/trackers/shop", 404},
		"another view": {
			"alice-token", "GET", viewsVersion + "/namespaces/acme--web/resourcetrackers", 404,
		},
		"the view of clusters": {"root-token", "GET", viewsVersion + "/clusters", 404},
		"another version": {
			"alice-token", "GET", viewsRoot + "/apis/gateway.kubetenant.dev/v1/namespaces/acme--web/trackers", 404,
		},
		"another group": {
			"alice-token", "GET", viewsRoot + "/apis/core.oam.dev/v1beta1/namespaces/acme--web/trackers", 404,
		},
		"no group":        {"alice-token", "GET", viewsRoot + "/api/v1/namespaces/acme--web/trackers", 404},
		"a secret":        {"alice-token", "GET", viewsRoot + "/api/v1/namespaces/acme--web/secrets", 404},
		"a creation":      {"alice-token", "POST", trackersPath, 405},
		"an update":       {"alice-token", "PUT", trackersPath + "/shop", 405},
		"a patch":         {"alice-token", "PATCH", trackersPath + "/shop", 405},
		"a deletion":      {"alice-token", "DELETE", trackersPath + "/shop", 405},
		"all deleted":     {"alice-token", "DELETE", trackersPath, 405},
		"a HEAD":          {"alice-token", "HEAD", trackersPath, 405},
		"another cluster": {"alice-token", "GET", "/clusters/us1/gateway/apis", 403},
		"dots":            {"alice-token", "GET", viewsRoot + "/../apis", 400},
		"a longer path":   {"alice-token", "GET", viewsRoot + "x/apis", 403},
	} {
		t.Run(what, func(t *testing.T) {
			code, text := w.do(r.token, r.method, r.path, "")
			if code != r.want || strings.Contains(text, "globex") || strings.Contains(text, "CANARY") {
				t.Errorf("%d, want %d: %s", code, r.want, text)
			}
		})
	}
	if paths := s.requests(); len(paths) > 0 {
		t.Errorf("the cluster received %v", paths)
	}
	if received := c.takeRequests(); len(received) > 0 {
		t.Errorf("the cluster received %v", received[0].URL)
	}
	const resource = `{"name":"trackers","singularName":"trackers","namespaced":true,"kind":"Trackers",` +
		`"verbs":["get","list","watch"]}`
	if _, text := w.get("alice-token", viewsVersion); !strings.Contains(text, resource) {
		t.Error(text)
	}
}

// TestObjectViewRights checks that the cluster decides about the caller's own identity, and the
// verb, namespace and name of the request. No object is read before the cluster has allowed the
// request.
func TestObjectViewRights(t *testing.T) {
	t.Parallel()
	w, c, s := newTrackerFixtureIn(t,
		passAccountTokens+`, tenantMap: { acme: acme-eu }, identity: { usernamePrefix: "kt:", groupPattern: ops }`,
		map[string]string{"acme--web": "acme-eu"})
	robot := c.token(t, "system:serviceaccount:acme--web:robot")
	s.update(func() { s.denied = true })
	for what, r := range map[string]struct {
		token, path string
		headers     []string
		want        string
	}{
		"a list": {
			"alice-token", "", nil, "kt:alice ops,tenant:acme-eu,system:authenticated list acme--web trackers/",
		},
		"a get": {
			"alice-token", "/shop", nil, "kt:alice ops,tenant:acme-eu,system:authenticated get acme--web trackers/shop",
		},
		"a watch": {
			"alice-token", "?watch=1", nil, "kt:alice ops,tenant:acme-eu,system:authenticated watch acme--web trackers/",
		},
		"a name": {
			"alice-token", "?fieldSelector=metadata.name%3Dshop", nil,
			"kt:alice ops,tenant:acme-eu,system:authenticated list acme--web trackers/shop",
		},
		"an account": {
			robot, "", nil, "system:serviceaccount:acme--web:robot system:serviceaccounts," +
				"system:serviceaccounts:acme--web,system:authenticated list acme--web trackers/",
		},
		"the system tenant": {"root-token", "", nil, "kt:root tenant:system,system:authenticated list acme--web trackers/"},
	} {
		t.Run(what, func(t *testing.T) {
			s.requests()
			code, text := w.get(r.token, trackersPath+r.path, r.headers...)
			if code != http.StatusForbidden || !strings.Contains(text, `cannot`) {
				t.Errorf("%d: %s", code, text)
			}
			s.update(func() {
				if len(s.reviewed) != 1 {
					t.Errorf("reviews: %v", s.reviewed)
					return
				}
				spec, a := s.reviewed[0], s.reviewed[0].ResourceAttributes
				got := fmt.Sprintf("%s %s %s %s %s/%s",
					spec.User, strings.Join(spec.Groups, ","), a.Verb, a.Namespace, a.Resource, a.Name)
				if got != r.want || a.Group != "gateway.kubetenant.dev" || a.Version != "v1alpha1" || a.Subresource != "" {
					t.Errorf("%s, want %s", got, r.want)
				}
			})
			if paths := s.requests(); len(paths) > 0 {
				t.Errorf("the cluster received %v", paths)
			}
		})
	}
}

// TestObjectViewWithImpersonation checks that the roles of the impersonated user apply if the
// caller impersonates a user.
func TestObjectViewWithImpersonation(t *testing.T) {
	t.Parallel()
	w, c, s := newTrackerFixture(t, "")
	as := []string{"Impersonate-User", "carol"}
	if code, text := w.get("alice-token", trackersPath, as...); code != http.StatusOK ||
		!strings.Contains(text, `"shop"`) {
		t.Fatalf("%d: %s", code, text)
	}
	c.update(func() {
		c.allow = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
			return spec.ResourceAttributes.Verb == "impersonate" || spec.User != "dave"
		}
	})
	for name, want := range map[string]int{
		"dave":           403,
		"system:admin":   403,
		impersonatorName: 403,
		readerName:       403,
		"erin":           200,
		"system:serviceaccount:globex--shop:default": 403,
	} {
		t.Run(name, func(t *testing.T) {
			s.requests()
			if code, text := w.get("alice-token", trackersPath, "Impersonate-User", name); code != want {
				t.Errorf("%d: %s", code, text)
			}
			if paths := s.requests(); want != 200 && len(paths) > 0 {
				t.Errorf("the cluster received %v", paths)
			}
		})
	}
}

// TestObjectViewFaults checks the responses to callers if the cluster returns errors or invalid
// objects. The responses contain no text from the cluster.
func TestObjectViewFaults(t *testing.T) {
	t.Parallel()
	w, _, s := newTrackerFixture(t, "")
	status := func(code int, reason string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,`+
				`"message":"CANARY"}`, reason, code)
			return true
		}
	}
	respond := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, text); return true }
	}
	endless := func(start string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			_, err := io.WriteString(w, start)
			for err == nil && r.Context().Err() == nil {
				_, err = w.Write(make([]byte, 1<<16))
			}
			return true
		}
	}
	for what, c := range map[string]struct {
		answer    func(http.ResponseWriter, *http.Request) bool
		list, get int
	}{
		"no rights":      {status(403, "Forbidden"), 502, 502},
		"no credential":  {status(401, "Unauthorized"), 503, 503},
		"no definition":  {status(404, "NotFound"), 404, 404},
		"an old version": {status(410, "Expired"), 410, 410},
		"a bad version":  {status(400, "BadRequest"), 400, 400},
		"a fault":        {status(500, "InternalError"), 503, 503},
		"a redirect":     {status(302, ""), 503, 503},
		"an endless fault": {func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return endless(`{`)(w, r)
		}, 503, 503},
		"nothing":         {respond(""), 503, 404},
		"no object":       {respond(`"CANARY"`), 503, 404},
		"a cut list":      {respond(`{"metadata":{"resourceVersion":"1"},"items":[{}`), 503, 404},
		"no items":        {respond(`{"metadata":{"resourceVersion":"1"}}`), 503, 404},
		"items, no list":  {respond(`{"metadata":{"resourceVersion":"1"},"items":{"CANARY":1}}`), 503, 404},
		"no version":      {respond(`{"metadata":{},"items":[]}`), 503, 404},
		"a page":          {respond(`{"metadata":{"resourceVersion":"1","continue":"CANARY"},"items":[]}`), 503, 404},
		"an endless text": {endless(`{"items":["`), 503, 503},
		"another object":  {respond(trackerOf("another", "1", "acme--web")), 503, 404},
	} {
		t.Run(what, func(t *testing.T) {
			s.update(func() { s.handler = c.answer })
			for request, r := range map[string]struct {
				path string
				want int
			}{
				"a list":                 {"", c.list},
				"a watch":                {"?watch=1", c.list},
				"a watch from a version": {"?watch=1&resourceVersion=5", c.list},
				"an object":              {"/shop", c.get},
			} {
				t.Run(request, func(t *testing.T) {
					code, text := w.get("alice-token", trackersPath+r.path)
					if code != r.want || strings.Contains(text, "CANARY") || strings.Contains(text, "another") {
						t.Errorf("%d, want %d: %s", code, r.want, text)
					}
				})
			}
		})
	}
	s.update(func() { s.handler = nil })
	if code, text := w.get("alice-token", trackersPath+"/shop"); code != http.StatusOK {
		t.Errorf("after the faults: %d: %s", code, text)
	}
}

// TestObjectViewLimits checks that a tenant reads at most four lists at the same time.
func TestObjectViewLimits(t *testing.T) {
	t.Parallel()
	w, _, s := newTrackerFixture(t, "")
	arrived, wait := make(chan struct{}, 8), make(chan struct{})
	s.update(func() {
		s.handler = func(http.ResponseWriter, *http.Request) bool {
			arrived <- struct{}{}
			<-wait
			return false
		}
	})
	done := make(chan int, 4)
	for range 4 {
		go func() { code, _ := w.get("alice-token", trackersPath); done <- code }()
		<-arrived
	}
	for _, path := range []string{"", "?watch=1"} {
		if code, text := w.get("alice-token", trackersPath+path); code != http.StatusTooManyRequests {
			t.Errorf("%s: a fifth list: %d: %s", path, code, text)
		}
	}
	s.update(func() { s.handler = nil })
	if code, text := w.get("bob-token", viewsVersion+"/namespaces/globex--shop/trackers"); code != http.StatusOK {
		t.Errorf("another tenant: %d: %s", code, text)
	}
	close(wait)
	for range 4 {
		if code := <-done; code != http.StatusOK {
			t.Error(code)
		}
	}
	if code, text := w.get("alice-token", trackersPath); code != http.StatusOK {
		t.Errorf("after the lists: %d: %s", code, text)
	}
}

// TestObjectViewsAreDisabledByDefault checks that views are off by default, and exist only below
// the name of a cluster. Otherwise, their paths are paths of the cluster.
func TestObjectViewsAreDisabledByDefault(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	for _, path := range []string{viewsRoot + "/apis", trackersPath} {
		if code, text := w.get("alice-token", path); code != http.StatusForbidden || len(c.takeRequests()) > 0 {
			t.Errorf("%s: %d: %s", path, code, text)
		}
	}
	tracker, cluster, _ := newTrackerFixture(t, ", root: true")
	if code, text := tracker.get("alice-token", "/gateway/apis"); code != http.StatusForbidden ||
		len(cluster.takeRequests()) > 0 {
		t.Errorf("without the name of the cluster: %d: %s", code, text)
	}
}

// TestRemovedAccountsCannotReadViews checks that a stored TokenReview does not authenticate a
// request that the gateway answers itself.
func TestRemovedAccountsCannotReadViews(t *testing.T) {
	t.Parallel()
	w, c, _ := newTrackerFixture(t, passAccountTokens)
	token := c.token(t, "system:serviceaccount:acme--web:robot")
	if code, text := w.get(token, trackersPath); code != http.StatusOK {
		t.Fatalf("a service account: %d %s", code, text)
	}
	c.update(func() { delete(c.tokens, token) })
	if code, _ := w.get(token, trackersPath); code != http.StatusUnauthorized {
		t.Errorf("a deleted service account: %d", code)
	}
}
