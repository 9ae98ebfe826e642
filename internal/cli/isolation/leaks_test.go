// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

const (
	foreignObject = `{"kind":"List","type":"ADDED","object":{"metadata":{"namespace":"b--isolation","name":"x"}},` +
		`"items":[{"metadata":{"namespace":"b--isolation","name":"x"}}]}`
	deniedText = `{"kind":"Status","message":"x is forbidden: User \"u\" cannot get resource \"x\" in API group \"\" ` +
		`at the cluster scope: tenant boundary: the namespace is not owned by the caller's tenant"}`
)

// refusedText is the body of an error from a kubetenant admission plugin.
const refusedText = `{"kind":"Status","message":"namespaces \"b--new\" is forbidden: the label kubetenant.dev/tenant ` +
	`may only name the caller's tenant"}`

// outcomeOf returns the outcome that judge determines for a response.
func outcomeOf(judge func(answer) (Outcome, string), code int, body string) Outcome {
	o, _ := judge(answer{code: code, body: []byte(body)})
	return o
}

var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// respondAlways returns a handler with the same response to every request.
func respondAlways(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// kinds returns one resource for each case that the probes distinguish.
func kinds() map[string]resource {
	core, own := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "kubetenant.dev", Version: "v1alpha1"}
	return map[string]resource{
		"a resource":         {schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "", true, allVerbs},
		"a subresource":      {core, "pods", "proxy", true, []string{"get", "create"}},
		"nodes":              {core, "nodes", "", false, allVerbs},
		"quotas":             {own, "tenantquotas", "", false, allVerbs},
		"Tenants":            {own, "tenants", "", false, allVerbs},
		"namespaces":         {core, "namespaces", "", false, allVerbs},
		"namespace statuses": {core, "namespaces", "status", false, []string{"get", "patch", "update"}},
	}
}

// TestEveryForeignAnswerIsALeak checks that any successful response to a request across the
// boundary is a leak, for all verbs and variants of requests. The caller has a tenant or has no
// tenant.
func TestEveryForeignAnswerIsALeak(t *testing.T) {
	for name, r := range kinds() {
		for _, own := range []int{0, -1} {
			m, c := testMatrix(t, respondAlways(http.StatusOK, foreignObject))
			c.own = own
			probes := m.probes(c, r)
			if len(probes) == 0 {
				t.Errorf("%s: no probes", name)
			}
			for _, p := range probes {
				before := m.report.Total(Leaked)
				if err := m.try(t.Context(), c, p); err != nil {
					t.Fatal(err)
				}
				if leaked := m.report.Total(Leaked) > before; leaked == p.own {
					t.Errorf("%s, of tenant %d: %s %s (own %t) is a leak: %t", name, own, p.method, p.path, p.own, leaked)
				}
			}
			if own < 0 && m.report.Total(Passed) > 0 || m.report.found(Leaked) != m.report.Total(Leaked) ||
				m.report.Total(Untested) > 0 {
				t.Errorf("%s, of tenant %d: %d passed, %d problems of %d leaks",
					name, own, m.report.Total(Passed), m.report.found(Leaked), m.report.Total(Leaked))
			}
		}
	}
}

// TestEveryRefusalIsClassified checks that a denial of a request across the boundary is the
// expected outcome. A denial of a request in the caller's own namespace is a finding.
func TestEveryRefusalIsClassified(t *testing.T) {
	for name, r := range kinds() {
		m, c := testMatrix(t, respondAlways(http.StatusForbidden, deniedText))
		own := 0
		for _, p := range m.probes(c, r) {
			if p.own {
				own++
			}
			if err := m.try(t.Context(), c, p); err != nil {
				t.Fatal(err)
			}
		}
		if m.report.Total(Refused) != own || m.report.Total(Leaked)+m.report.Total(Passed)+m.report.Total(Limited) > 0 ||
			m.report.found(Refused) != own || m.report.Total(Untested) > 0 || m.report.Total(Denied) == 0 {
			t.Errorf("%s: %d own, report %+v", name, own, m.report)
		}
		if wants := name == "a resource" || name == "a subresource" || name == "namespaces"; wants != (own > 0) {
			t.Errorf("%s: %d requests are expected to pass", name, own)
		}
	}
}

// targetsOf returns the targets of the probes, in the order of the table.
func targetsOf(probes []probe) []string {
	return slices.DeleteFunc(slices.Clone(targets), func(target string) bool {
		return !slices.ContainsFunc(probes, func(p probe) bool { return p.target == target })
	})
}

// TestTargets checks the targets of the probes for each kind of caller. A caller that is itself
// impersonated has no impersonation probes.
func TestTargets(t *testing.T) {
	m, c := testMatrix(t, nil)
	everywhere := []string{
		targetOwn,
		targetForeign,
		targetSystem,
		targetMissing,
		targetAll,
		targetPath,
		targetImpersonation,
	}
	for name, want := range map[string]struct {
		own  int
		real bool
		want []string
	}{
		"tenant":               {0, true, everywhere},
		"tenant, impersonated": {0, false, everywhere[:6]},
		"no tenant":            {-1, true, everywhere[1:5]},
	} {
		t.Run(name, func(t *testing.T) {
			c.own, c.real = want.own, want.real
			if got := targetsOf(m.probes(c, kinds()["a resource"])); !slices.Equal(got, want.want) {
				t.Errorf("%v; want %v", got, want.want)
			}
		})
	}
	c.own = 0
	for of, own := range map[string]bool{"storageclasses": true, "selfsubjectaccessreviews": true, "nodes": false} {
		t.Run(of, func(t *testing.T) {
			for _, p := range m.probes(c, resource{schema.GroupVersion{Version: "v1"}, of, "", false, []string{"get"}}) {
				if p.own != own || p.target != targetCluster {
					t.Errorf("own %t in %s", p.own, p.target)
				}
			}
		})
	}
	m.fixture.mode = installation.Webhook
	rules := resource{
		schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"},
		"selfsubjectrulesreviews",
		"",
		false,
		[]string{"create"},
	}
	if m.probes(c, rules)[0].own {
		t.Error("a rules review is expected to pass in webhook mode")
	}
	local := resource{rules.GroupVersion, "localsubjectaccessreviews", "", true, []string{"create"}}
	if slices.Contains(targetsOf(m.probes(c, local)), targetOwn) {
		t.Error("a LocalSubjectAccessReview, which is denied by design, is expected to pass")
	}
}

// TestProbesNameTheTargetNamespace checks that the path of each probe contains the namespace of
// its target. A new Namespace has the prefix of the other tenant.
func TestProbesNameTheTargetNamespace(t *testing.T) {
	m, c := testMatrix(t, nil)
	for _, p := range m.probes(c, kinds()["namespaces"]) {
		about := map[string]string{
			targetForeign: "/b--isolation",
			targetSystem:  "/kube-system",
			targetMissing: "/" + missingNamespace,
			targetOwn:     "/a--isolation",
		}[p.target]
		if strings.Contains(p.path, "/namespaces/") && !strings.Contains(p.path, about) || p.own != (p.target == targetOwn) {
			t.Errorf("in %s (own %t): %s %s", p.target, p.own, p.method, p.path)
		}
		if p.target == targetOwn && p.method == http.MethodDelete {
			t.Error("a probe deletes the caller's own namespace")
		}
		if p.method == http.MethodPost &&
			(!bytes.Contains(p.body, []byte(`"b--new"`)) || outcomeOf(p.limited, http.StatusForbidden, refusedText) != Denied ||
				outcomeOf(p.limited, http.StatusCreated, "{}") != Leaked) {
			t.Errorf("new Namespace: %s", p.body)
		}
	}
}

// TestImpersonation checks that the probes impersonate each identity that might have more
// rights, in a request for an object of the other tenant.
func TestImpersonation(t *testing.T) {
	m, c := testMatrix(t, nil)
	r := resource{schema.GroupVersion{Version: "v1"}, "configmaps", "", true, []string{"create"}}
	seen := map[string]bool{}
	for _, p := range m.impersonationProbes(c, r) {
		seen[fmt.Sprint(p.header["Impersonate-User"], p.header["Impersonate-Group"],
			p.header["Impersonate-Extra-Kubetenant.dev%2ftenant"])] = true
		if !strings.Contains(p.path, "/b--isolation/") || p.header.Get("Content-Type") == "" || p.review != nil {
			t.Errorf("%s %s as %v", p.method, p.path, p.header)
		}
	}
	for _, as := range []string{
		"[alice] [system:masters] []", "[alice] [tenant:b] []", "[alice] [] [b]",
		"[system:serviceaccount:b--isolation:robot] [] []", "[system:node:n1] [system:nodes] []",
	} {
		if !seen[as] {
			t.Errorf("no probe impersonates %s: %v", as, seen)
		}
	}
}

// TestPaths checks the deprecated watch paths, both forms of tenant paths, and added query
// parameters.
func TestPaths(t *testing.T) {
	for got, want := range map[string]string{
		oldWatch("/api/v1/namespaces/n/pods"):                             "/api/v1/watch/namespaces/n/pods",
		oldWatch("/apis/apps/v1/deployments"):                             "/apis/apps/v1/watch/deployments",
		olderPath("/api/v1/namespaces/n/pods?a=b", "/tenants/x"):          "/api/v1/tenants/x/namespaces/n/pods?a=b",
		olderPath("/apis/apps/v1/namespaces/n/deployments", "/tenants/x"): "/apis/apps/v1/tenants/x/namespaces/n/deployments",
		query("/a", "b", "c"):                                             "/a?b=c",
		query("/a?x=y", "b", "c d"):                                       "/a?x=y&b=c+d",
		withTimeout("/a"):                                                 "/a?timeoutSeconds=1",
		withTimeout("/a?b=c"):                                             "/a?b=c&timeoutSeconds=1",
	} {
		t.Run(got, func(t *testing.T) {
			if got != want {
				t.Errorf("%s; want %s", got, want)
			}
		})
	}
	m, c := testMatrix(t, nil)
	seen := map[string]bool{}
	for _, p := range m.pathProbes(c, kinds()["a resource"]) {
		prefix, _, _ := strings.Cut(p.path, "/namespaces/")
		seen[prefix] = true
	}
	for _, prefix := range []string{
		"/tenants/a/apis/apps/v1", "/tenants/b/apis/apps/v1", "/tenants/all/apis/apps/v1", "/tenants/system/apis/apps/v1",
		"/apis/apps/v1/tenants/b",
	} {
		if !seen[prefix] {
			t.Errorf("no path begins with %s: %v", prefix, seen)
		}
	}
}

// TestContradictingAnswers checks that different decisions about the same request are a finding,
// even if the versions of the resource differ.
func TestContradictingAnswers(t *testing.T) {
	m, c := testMatrix(t, nil)
	of := func(version string) probe {
		return probe{method: "GET", path: "/x", review: &question{Verb: "get", Version: version, Resource: "pods"}}
	}
	allowed, denied := answer{code: http.StatusOK}, answer{code: http.StatusUnauthorized}
	m.record(c, of("v1"), allowed)
	m.record(c, of("v1beta1"), allowed)
	m.record(&caller{name: "other"}, of("v1"), denied)
	if !m.report.OK() || len(m.answers[c]) != 1 {
		t.Errorf("findings %v, answers %v", m.report.Findings, m.answers[c])
	}
	if m.record(c, of("v1"), denied); m.report.found(Contradicted) != 1 ||
		!strings.Contains(m.report.Findings[0].Group, "got different answers") {
		t.Errorf("findings %v", m.report.Findings)
	}
}
