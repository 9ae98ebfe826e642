package isolation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// reviewing answers self reviews: of requests with may, of rules by their namespace.
func reviewing(t *testing.T, may func(authorizationv1.ResourceAttributes) bool, rules map[string][]authorizationv1.ResourceRule) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Spec struct {
				ResourceAttributes authorizationv1.ResourceAttributes
				Namespace          string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		status := any(authorizationv1.SubjectAccessReviewStatus{Allowed: may(in.Spec.ResourceAttributes)})
		if strings.HasSuffix(r.URL.Path, "selfsubjectrulesreviews") {
			status = authorizationv1.SubjectRulesReviewStatus{ResourceRules: rules[in.Spec.Namespace]}
		}
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(map[string]any{"status": status}); err != nil {
			t.Error(err)
		}
	}
}

// TestReviews: what a caller is told of its rights must be what its requests were answered, in both directions.
func TestReviews(t *testing.T) {
	own := authorizationv1.ResourceRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	told := func(namespace string, rule authorizationv1.ResourceRule) map[string][]authorizationv1.ResourceRule {
		all := map[string][]authorizationv1.ResourceRule{"a--isolation": {own}}
		all[namespace] = append(all[namespace], rule)
		return all
	}
	with := func(verb, group, resource string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	foreign := question{Verb: "get", Resource: "pods", Namespace: "b--isolation"}
	for name, c := range map[string]struct {
		answered map[question]bool
		rules    map[string][]authorizationv1.ResourceRule
		shape    Shape
		want     string // one problem; "" for none
	}{
		"they agree":            {map[question]bool{foreign: false, {Verb: "get", Resource: "pods", Namespace: "a--isolation"}: true}, told("a--isolation", own), CompiledIn, ""},
		"let through all alike": {map[question]bool{foreign: true}, told("a--isolation", own), CompiledIn, "says false, the request true"},
		"told, but not so":      {map[question]bool{{Verb: "get", Resource: "pods", Namespace: "a--isolation"}: false}, told("a--isolation", own), CompiledIn, "says true, the request false"},
		"another's rules":       {nil, told("b--isolation", with("get", "", "nodes")), CompiledIn, "tenant user is told of 1 rules in b--isolation"},
		"none of its own":       {nil, nil, CompiledIn, "told of no rules in its own namespace"},
		"none, of a webhook":    {nil, nil, Webhook, ""},
		"any verb":              {nil, told("a--isolation", with("*", "", "pods")), CompiledIn, "told of a wildcard in a--isolation"},
		"any group":             {nil, told("a--isolation", with("get", "*", "pods")), CompiledIn, "told of a wildcard in a--isolation"},
		"any resource":          {nil, told("a--isolation", with("get", "", "*")), CompiledIn, "told of a wildcard in a--isolation"},
		"a right that is none":  {nil, told("a--isolation", with("delete", "", "pods")), CompiledIn, "told that it may delete pods."},
		"a subresource":         {nil, told("a--isolation", with("get", "", "pods/log")), CompiledIn, "told that it may get pods. log"},
		"a name":                {nil, told("a--isolation", with("get", "", "pods", "hidden")), CompiledIn, "told that it may get pods."},
		"what is in no place":   {nil, told("a--isolation", with("get", "", "nodes")), CompiledIn, ""},
		"as if it were in one":  {nil, told("a--isolation", with("get", "x.io", "nodes")), CompiledIn, "told that it may get nodes.x.io"},
	} {
		may := func(a authorizationv1.ResourceAttributes) bool {
			return a.Verb == "get" && a.Group == "" && a.Subresource == "" && a.Name == "" && (a.Resource == "pods" && a.Namespace == "a--isolation" || a.Resource == "nodes" && a.Namespace == "")
		}
		m, user := testMatrix(t, reviewing(t, may, c.rules))
		m.Parallel, m.world.callers, m.world.shape, m.answers[user] = 2, []*caller{user}, c.shape, c.answered
		served := []resource{{schema.GroupVersion{Version: "v1"}, "pods", "", true, allVerbs}, {schema.GroupVersion{Version: "v1"}, "nodes", "", false, allVerbs}}
		if err := m.tryReviews(t.Context(), served); err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(m.report.Problems, "\n")
		if c.want == "" && problems != "" || c.want != "" && (len(m.report.Problems) != 1 || !strings.Contains(problems, c.want)) {
			t.Errorf("%s: problems %q; want %q", name, problems, c.want)
		}
	}
}

// TestReviewAnswers: who may not ask may nothing, and another answer is an error that names the review.
func TestReviewAnswers(t *testing.T) {
	for code, want := range map[int]string{401: "", 403: "", 404: "selfsubjectaccessreviews: 404", 500: "selfsubjectaccessreviews: 500"} {
		_, c := testMatrix(t, always(code, `{"status":{"allowed":true}}`))
		ok, err := c.may(t.Context(), &authorizationv1.ResourceAttributes{})
		if ok || want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %t, %v; want %q", code, ok, err, want)
		}
	}
}

// TestHeld: each write that admission must refuse is tried as a dry run, in the own namespace and of what is served; one
// that passes is a leak.
func TestHeld(t *testing.T) {
	served := []resource{{schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "", true, allVerbs}, {schema.GroupVersion{Version: "v1"}, "secrets", "", true, allVerbs},
		{schema.GroupVersion{Group: "apps", Version: "v1"}, "statefulsets", "status", true, allVerbs}}
	for code, want := range map[int][5]int{http.StatusForbidden: {Denied: 2}, http.StatusOK: {Leaked: 2}, http.StatusNotFound: {Leaked: 2}, http.StatusUnprocessableEntity: {Leaked: 2}} {
		var made, tried []string
		handler := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("dryRun") != "All" {
				made = append(made, r.Method+" "+r.URL.Path)
				w.WriteHeader(http.StatusCreated)
				return
			}
			tried = append(tried, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
			w.WriteHeader(code)
		}
		m, user := testMatrix(t, handler)
		m.Admin, m.world.callers = &rest.Config{Host: user.url}, []*caller{user, {name: callerNobody, own: -1}}
		if err := m.tryHeld(t.Context(), served); err != nil {
			t.Fatal(err)
		}
		if got := counts(m); got != want || len(m.report.Problems) != want[Leaked] {
			t.Errorf("%d: %v, %v; want %v", code, got, m.report.Problems, want)
		}
		if want := []string{"POST /apis/apps/v1/namespaces/a--isolation/deployments"}; !slices.Equal(made, want) {
			t.Errorf("made %v; want %v", made, want)
		}
		if want := []string{"PATCH /apis/apps/v1/namespaces/a--isolation/deployments/held-2/status application/merge-patch+json", "POST /api/v1/namespaces/a--isolation/secrets application/json"}; !slices.Equal(tried, want) {
			t.Errorf("tried %v; want %v", tried, want)
		}
	}
	m, caller := testMatrix(t, always(http.StatusConflict, `{"message":"it is there"}`))
	m.Admin = &rest.Config{Host: caller.url}
	if err := m.tryHeld(t.Context(), served); err == nil || !strings.Contains(err.Error(), "make deployments to try its status: 409 it is there") {
		t.Errorf("what cannot be made: %v", err)
	}
}

// TestShapeOf: a server is behind the webhook service if its webhooks are there, and neither if that cannot be told.
func TestShapeOf(t *testing.T) {
	hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kubetenant"}}
	other := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	for want, k := range map[Shape]*fake.Clientset{Webhook: fake.NewClientset(hooks), CompiledIn: fake.NewClientset(other)} {
		if got, err := ShapeOf(t.Context(), k); got != want || err != nil {
			t.Errorf("ShapeOf() = %q, %v; want %q", got, err, want)
		}
	}
}

// TestRunCleansUp: a run that cannot make its tenants says why, and leaves nothing of what it made; one whose tenants are
// none makes nothing.
func TestRunCleansUp(t *testing.T) {
	const roles, bindings = "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	all := []string{"POST " + roles, "POST " + bindings, "POST " + bindings, "POST /api/v1/namespaces", "DELETE " + bindings, "DELETE " + bindings, "DELETE " + roles}
	for name, c := range map[string]struct {
		second string
		shape  Shape
		want   []string
		err    string
	}{
		"no namespace may be made": {"b", "", all, "namespaces is forbidden"},
		"the shape is given":       {"b", CompiledIn, all, "namespaces is forbidden"},
		"no tenant":                {"NO/", CompiledIn, nil, `tenant "NO/"`},
	} {
		var mu sync.Mutex
		var writes []string
		looked := false
		_, caller := testMatrix(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			code, reason := http.StatusCreated, ""
			switch {
			case r.Method == http.MethodGet:
				looked, code, reason = true, http.StatusNotFound, "NotFound"
			case r.URL.Path == "/api/v1/namespaces":
				code, reason = http.StatusForbidden, "Forbidden"
			case r.Method == http.MethodDelete:
				r.URL.Path, code = r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], http.StatusOK
			}
			if r.Method != http.MethodGet {
				writes = append(writes, r.Method+" "+r.URL.Path)
			}
			w.WriteHeader(code)
			if reason == "" {
				_, _ = fmt.Fprint(w, "{}")
				return
			}
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"namespaces is forbidden"}`, code, reason)
		})
		admin := &rest.Config{Host: caller.url, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
		report, err := Run(t.Context(), Options{Admin: admin, Tenants: [2]string{"a", c.second}, Shape: c.shape})
		if report != nil || err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v; want %q", name, report, err, c.err)
		}
		if !slices.Equal(writes, c.want) || looked != (c.shape == "") {
			t.Errorf("%s: wrote %q, looked %t; want %q", name, writes, looked, c.want)
		}
	}
}

// TestDiscover: every resource of every version is tried, subresources by themselves, or those of the groups that are named.
func TestDiscover(t *testing.T) {
	k := fake.NewClientset()
	k.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Verbs: []string{"get"}}, {Name: "pods/exec", Namespaced: true, Verbs: []string{"create"}}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Namespaced: true}}}}
	all, err := discover(k)
	if err != nil {
		t.Fatal(err)
	}
	names := func(all []resource) string {
		var names []string
		for _, r := range all {
			names = append(names, fmt.Sprintf("%s %s %t %v", r.path(""), r.subresource, r.namespaced, r.verbs))
		}
		slices.Sort(names)
		return strings.Join(names, "; ")
	}
	const pods, deployments = "/api/v1/pods  true [get]; /api/v1/pods exec true [create]", "/apis/apps/v1/deployments  true []"
	for groups, want := range map[string]string{"": pods, "apps": deployments, "none": ""} {
		if got := names(ofGroups(all, []string{groups})); got != want {
			t.Errorf("of group %q: %s; want %s", groups, got, want)
		}
	}
	if got := names(ofGroups(all, nil)); got != pods+"; "+deployments {
		t.Errorf("all: %s", got)
	}
}

// TestOwnOnly: behind a webhook a list over all namespaces says itself whose it is about; nothing else is changed.
func TestOwnOnly(t *testing.T) {
	m, c := testMatrix(t, nil)
	for shape, want := range map[Shape]string{CompiledIn: "/api/v1/secrets", Webhook: "/api/v1/secrets?labelSelector=kubetenant.dev%2Ftenant%3Da"} {
		m.world.shape = shape
		if got := m.world.ownOnly(c, "/api/v1/secrets"); got != want {
			t.Errorf("%s: %s; want %s", shape, got, want)
		}
		if got := m.world.ownOnly(c, "/api/v1/namespaces/x/secrets"); strings.Contains(got, "?") {
			t.Errorf("%s: %s", shape, got)
		}
	}
}
