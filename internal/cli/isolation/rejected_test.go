// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// TestRejectedWrites checks that each write in rejectedWrites is sent as a dry run in the caller's
// own namespace, if the server serves the resource.
func TestRejectedWrites(t *testing.T) {
	served := []resource{
		{schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "", true, allVerbs},
		{schema.GroupVersion{Version: "v1"}, "secrets", "", true, allVerbs},
		{schema.GroupVersion{Group: "apps", Version: "v1"}, "statefulsets", "status", true, allVerbs},
	}
	for code, want := range map[int][6]int{
		http.StatusForbidden:           {Denied: 2},
		http.StatusOK:                  {Leaked: 2},
		http.StatusNotFound:            {Untested: 2},
		http.StatusUnprocessableEntity: {Untested: 2},
		http.StatusInternalServerError: {Untested: 2},
		http.StatusUnauthorized:        {Untested: 2},
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			var created, tried []string
			handler := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("dryRun") != "All" {
					created = append(created, r.Method+" "+r.URL.Path)
					w.WriteHeader(http.StatusCreated)
					return
				}
				tried = append(tried, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
				respondAlways(code, refusedText)(w, r)
			}
			m, user := testMatrix(t, handler)
			m.Admin, m.fixture.callers = &rest.Config{Host: user.url}, []*caller{user, {name: callerNoTenant, own: -1}}
			if err := m.tryRejectedWrites(t.Context(), served); err != nil {
				t.Fatal(err)
			}
			if got := outcomeCounts(m); got != want || m.report.found(Leaked) != want[Leaked] ||
				m.report.found(Untested) != m.report.Total(Untested) {
				t.Errorf("%v, %v; want %v", got, m.report.Findings, want)
			}
			if want := []string{"POST /apis/apps/v1/namespaces/a--isolation/deployments"}; !slices.Equal(created, want) {
				t.Errorf("created %v; want %v", created, want)
			}
			if want := []string{
				"PATCH /apis/apps/v1/namespaces/a--isolation/deployments/held-2/status application/merge-patch+json",
				"POST /api/v1/namespaces/a--isolation/secrets application/json",
			}; !slices.Equal(tried, want) {
				t.Errorf("sent %v; want %v", tried, want)
			}
		})
	}
	m, user := testMatrix(t, respondAlways(http.StatusConflict, status("it exists")))
	m.Admin, m.fixture.callers = &rest.Config{Host: user.url}, []*caller{user}
	if err := m.tryRejectedWrites(t.Context(), served[:1]); err != nil || m.report.found(Untested) != 1 ||
		!strings.Contains(m.report.Findings[0].Group, "could not be created (409)") {
		t.Errorf("object that cannot be created: %v, %v", err, m.report.Findings)
	}
}
