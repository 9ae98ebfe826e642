// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// reviewing returns a handler for self reviews. may reports whether a request is allowed. rules
// contains the rules to list, keyed by namespace.
func reviewing(
	t *testing.T, may func(authorizationv1.ResourceAttributes) bool, rules map[string][]authorizationv1.ResourceRule,
) http.HandlerFunc {
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

// TestReviews checks that a self review that disagrees with the response to the request is a
// finding, in both directions.
func TestReviews(t *testing.T) {
	own := authorizationv1.ResourceRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	listedRules := func(namespace string, rule authorizationv1.ResourceRule) map[string][]authorizationv1.ResourceRule {
		all := map[string][]authorizationv1.ResourceRule{"a--isolation": {own}}
		all[namespace] = append(all[namespace], rule)
		return all
	}
	with := func(verb, group, resource string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{
			Verbs:         []string{verb},
			APIGroups:     []string{group},
			Resources:     []string{resource},
			ResourceNames: names,
		}
	}
	foreign := question{Verb: "get", Resource: "pods", Namespace: "b--isolation"}
	for name, c := range map[string]struct {
		answered map[question]bool
		rules    map[string][]authorizationv1.ResourceRule
		mode     installation.Mode
		want     string // part of the finding, or "" if there is none
	}{
		"reviews and requests agree": {
			map[question]bool{foreign: false, {Verb: "get", Resource: "pods", Namespace: "a--isolation"}: true},
			listedRules("a--isolation", own),
			installation.CompiledIn,
			"",
		},
		"request allowed, review denied": {
			map[question]bool{foreign: true},
			listedRules("a--isolation", own),
			installation.CompiledIn,
			"allowed by the review: false; allowed for the request: true",
		},
		"request denied, review allowed": {
			map[question]bool{{Verb: "get", Resource: "pods", Namespace: "a--isolation"}: false},
			listedRules("a--isolation", own),
			installation.CompiledIn,
			"allowed by the review: true; allowed for the request: false",
		},
		"rules in another tenant's namespace": {
			nil,
			listedRules("b--isolation", with("get", "", "nodes")),
			installation.CompiledIn,
			"1 request by tenant user, for example 1 rules in b--isolation",
		},
		"no rules in the own namespace": {nil, nil, installation.CompiledIn, "no rules for the caller's own namespace"},
		"no rules in webhook mode":      {nil, nil, installation.Webhook, ""},
		"any verb": {
			nil, listedRules("a--isolation", with("*", "", "pods")), installation.CompiledIn, "rules with a wildcard",
		},
		"any group": {
			nil, listedRules("a--isolation", with("get", "*", "pods")), installation.CompiledIn, "rules with a wildcard",
		},
		"any resource": {
			nil,
			listedRules("a--isolation", with("get", "", "*")),
			installation.CompiledIn,
			"rules with a wildcard",
		},
		"listed rule, review denied": {
			nil,
			listedRules("a--isolation", with("delete", "", "pods")),
			installation.CompiledIn,
			"rules and self reviews differ: delete pods",
		},
		"listed subresource, review denied": {
			nil,
			listedRules("a--isolation", with("get", "", "pods/log")),
			installation.CompiledIn,
			"rules and self reviews differ: get pods/log",
		},
		"listed name, review denied": {
			nil,
			listedRules("a--isolation", with("get", "", "pods", "hidden")),
			installation.CompiledIn,
			"rules and self reviews differ: get pods",
		},
		"cluster-scoped resource": {nil, listedRules("a--isolation", with("get", "", "nodes")), installation.CompiledIn, ""},
		"resource of an unknown API group": {
			nil,
			listedRules("a--isolation", with("get", "x.io", "nodes")),
			installation.CompiledIn,
			"rules and self reviews differ: get nodes.x.io",
		},
	} {
		t.Run(name, func(t *testing.T) {
			allowed := func(a authorizationv1.ResourceAttributes) bool {
				return a.Verb == "get" && a.Group == "" && a.Subresource == "" && a.Name == "" &&
					(a.Resource == "pods" && a.Namespace == "a--isolation" || a.Resource == "nodes" && a.Namespace == "")
			}
			m, user := testMatrix(t, reviewing(t, allowed, c.rules))
			m.Parallel, m.fixture.callers, m.fixture.mode, m.answers[user] = 2, []*caller{user}, c.mode, c.answered
			served := []resource{
				{schema.GroupVersion{Version: "v1"}, "pods", "", true, allVerbs},
				{schema.GroupVersion{Version: "v1"}, "nodes", "", false, allVerbs},
			}
			if err := m.tryReviews(t.Context(), served); err != nil {
				t.Fatal(err)
			}
			var found string
			for _, f := range m.report.Findings {
				found += f.String() + "\n"
				if len(f.Targets) > 0 {
					t.Errorf("%s: the finding has the targets %q", f.Group, f.Targets)
				}
			}
			if c.want == "" && found != "" ||
				c.want != "" && (m.report.found(Contradicted) != 1 || !strings.Contains(found, c.want)) {
				t.Errorf("findings %q; want %q", found, c.want)
			}
		})
	}
}

// TestDiscover checks that the resources of every version are discovered, including subresources.
// If groups are specified, only their resources are tested.
func TestDiscover(t *testing.T) {
	k := fake.NewClientset()
	k.Resources = []*metav1.APIResourceList{
		{
			GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "pods", Namespaced: true, Verbs: []string{"get"}},
				{Name: "pods/exec", Namespaced: true, Verbs: []string{"create"}},
			},
		},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Namespaced: true}}},
	}
	for _, name := range required {
		k.Resources[0].APIResources = append(k.Resources[0].APIResources,
			metav1.APIResource{Name: name, Verbs: []string{"use"}})
	}
	m, _ := testMatrix(t, nil)
	all, err := m.discover(k)
	if err != nil {
		t.Fatal(err)
	}
	names := func(all []resource) string {
		var names []string
		for _, r := range all {
			if slices.Contains(required, r.name) {
				continue
			}
			names = append(names, fmt.Sprintf("%s %s %t %v", r.path(""), r.subresource, r.namespaced, r.verbs))
		}
		slices.Sort(names)
		return strings.Join(names, "; ")
	}
	const pods, deployments = "/api/v1/pods  true [get]; /api/v1/pods exec true [create]",
		"/apis/apps/v1/deployments  true []"
	for groups, want := range map[string]string{"": pods, "apps": deployments, "none": ""} {
		t.Run(groups, func(t *testing.T) {
			if got := names(ofGroups(all, []string{groups})); got != want {
				t.Errorf("of group %q: %s; want %s", groups, got, want)
			}
		})
	}
	if got := names(ofGroups(all, nil)); got != pods+"; "+deployments {
		t.Errorf("all: %s", got)
	}
	if m.report.found(Untested) != len(required) || m.report.Findings[0].Group != "no request has this verb" ||
		len(m.report.Findings[0].Callers) > 0 {
		t.Errorf("verb without a request: %v", m.report.Findings)
	}
}

// TestOwnOnly checks that, in webhook mode, the path of a list over all namespaces selects the
// caller's tenant. Other paths do not change.
func TestOwnOnly(t *testing.T) {
	m, c := testMatrix(t, nil)
	for mode, want := range map[installation.Mode]string{
		installation.CompiledIn: "/api/v1/secrets",
		installation.Webhook:    "/api/v1/secrets?labelSelector=kubetenant.dev%2Ftenant%3Da",
	} {
		m.fixture.mode = mode
		if got := m.fixture.ownOnly(c, "/api/v1/secrets"); got != want {
			t.Errorf("%s: %s; want %s", mode, got, want)
		}
		if got := m.fixture.ownOnly(c, "/api/v1/namespaces/x/secrets"); strings.Contains(got, "?") {
			t.Errorf("%s: %s", mode, got)
		}
	}
}
