package isolation

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
)

func testMatrix(t *testing.T, handler http.HandlerFunc) (*matrix, *caller) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := newCaller(callerUser, 0, &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	for i, name := range []string{"a", "b"} {
		if w.tenants[i], err = tenant.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	return &matrix{world: w, answers: map[*caller]map[question]bool{}}, c
}

// TestOutcomes: what a server answers to a foreign and to an own request is told apart.
func TestOutcomes(t *testing.T) {
	forbidden := func(message string) string { return `{"kind":"Status","message":"` + message + `"}` }
	for name, c := range map[string]struct {
		code int
		body string
		own  bool
		want Outcome
	}{
		"denied":                             {403, forbidden(`pods is forbidden: User \"x\" cannot get resource pods`), false, Denied},
		"not authenticated":                  {401, ``, false, Denied},
		"read":                               {200, `{}`, false, Leaked},
		"not found is past authorization":    {404, forbidden("not found"), false, Leaked},
		"not allowed is past authorization":  {405, ``, false, Leaked},
		"a server's error":                   {500, ``, false, Leaked},
		"own":                                {200, `{}`, true, Passed},
		"own, not found":                     {404, ``, true, Passed},
		"own, refused by admission":          {403, forbidden(`daemonsets x is forbidden: a tenant may not create this`), true, Passed},
		"let through, refused by admission":  {403, forbidden(`configmaps x is forbidden: the label names the namespace's owner`), false, Leaked},
		"refused by admission in such words": {403, forbidden(`x is forbidden: you cannot set this`), false, Leaked},
		"own, denied":                        {403, forbidden(`pods is forbidden: User \"x\" cannot get resource pods`), true, Refused},
		"own, not authenticated":             {401, ``, true, Refused},
	} {
		m, caller := testMatrix(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		})
		if err := m.try(t.Context(), caller, probe{space: spaceForeign, method: http.MethodGet, path: "/x", own: c.own}); err != nil {
			t.Fatal(err)
		}
		if m.report.Total(c.want) != 1 || m.report.OK() != (c.want != Leaked && c.want != Refused) {
			t.Errorf("%s: %+v, want outcome %d", name, m.report.Cells[0], c.want)
		}
		var table bytes.Buffer
		m.report.Write(&table)
		if strings.Contains(table.String(), "LEAKED:") != (c.want == Leaked) {
			t.Errorf("%s: %s", name, &table)
		}
	}
}

// TestOnlyOwn: one foreign object in a list or a watch is enough.
func TestOnlyOwn(t *testing.T) {
	m, _ := testMatrix(t, nil)
	own := m.world.onlyOwn(0)
	for body, want := range map[string]bool{
		`{"items":[]}`: true,
		`{"items":[{"metadata":{"name":"x","namespace":"a--isolation"}}]}`:                                                       true,
		`{"items":[{"metadata":{"name":"a--isolation"}}]}`:                                                                       true,
		`{"items":[{"metadata":{"name":"x","namespace":"a--isolation"}},{"metadata":{"name":"x","namespace":"b--isolation"}}]}`:  false,
		`{"items":[{"metadata":{"name":"kube-system"}}]}`:                                                                        false,
		`{"type":"ADDED","object":{"metadata":{"namespace":"a--isolation"}}}{"type":"BOOKMARK","object":{"metadata":{}}}`:        true,
		`{"type":"ADDED","object":{"metadata":{"namespace":"a--isolation"}}}{"type":"ADDED","object":{"metadata":{"name":"n"}}}`: false,
		`not JSON`: false,
		`{}`:       false,
	} {
		if got := own(answer{http.StatusOK, []byte(body)}); got != want {
			t.Errorf("%s: %t, want %t", body, got, want)
		}
	}
}

// TestRequestsCoverVerbs: each verb that discovery names becomes a request, each patch in every form.
func TestRequestsCoverVerbs(t *testing.T) {
	r := resource{schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "", true,
		[]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}}
	seen := map[string]int{}
	for _, p := range r.requests("ns", spaceForeign) {
		seen[p.review.Verb]++
		if !strings.HasPrefix(p.path, "/apis/apps/v1/") {
			t.Errorf("path %s", p.path)
		}
		if p.method != http.MethodGet && !strings.Contains(p.path, "dryRun=All") {
			t.Errorf("%s %s writes", p.method, p.path)
		}
	}
	for _, verb := range r.verbs {
		if seen[verb] == 0 {
			t.Errorf("no request for %s", verb)
		}
	}
	if seen["patch"] != 4 || seen["watch"] != 2 {
		t.Errorf("requests %v", seen)
	}
}
