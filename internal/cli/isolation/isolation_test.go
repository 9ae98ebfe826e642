// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
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
	w := &fixture{}
	for i, name := range []string{"a", "b"} {
		if w.tenants[i], err = tenant.Parse(name); err != nil {
			t.Fatal(err)
		}
	}
	return &matrix{fixture: w, answers: map[*caller]map[question]bool{}}, c
}

// TestRequestsCoverVerbs checks that there is a request for each discovered verb and each patch
// type.
func TestRequestsCoverVerbs(t *testing.T) {
	r := resource{
		schema.GroupVersion{Group: "apps", Version: "v1"},
		"deployments", "", true,
		[]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}
	seen := map[string]int{}
	for _, p := range r.requests("ns", targetForeign) {
		seen[p.review.Verb]++
		if !strings.HasPrefix(p.path, "/apis/apps/v1/") {
			t.Errorf("path %s", p.path)
		}
		if p.method != http.MethodGet && !strings.Contains(p.path, "dryRun=All") {
			t.Errorf("%s %s is not a dry run", p.method, p.path)
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
