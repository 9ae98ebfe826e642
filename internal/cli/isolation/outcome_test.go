// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// status returns a Status in JSON with the given message.
func status(message string) string {
	return `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + strings.ReplaceAll(message, `"`, `\"`) +
		`"}`
}

const (
	authorizers = `pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace ` +
		`"b--isolation"`
	boundary = authorizers + `: tenant boundary: the namespace is not owned by the caller's tenant`
)

// TestOutcomes checks the outcome of each response. For a tenant's caller, a response is a leak or a
// denial only if it shows the boundary's decision.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		body   string
		own    bool
		tenant int
		want   Outcome
		why    string
	}{
		"denied": {403, status(boundary), false, 0, Denied, ""},
		"denied on a path": {
			403,
			status(`forbidden: User "u" cannot get path "/x": tenant boundary: tenants may not access this path`),
			false,
			0,
			Denied,
			"",
		},
		"denied, reason of another release": {
			403, status(authorizers + ": tenant boundary: other words; add -l x=y"), false, 0, Denied, "",
		},
		"no tenant, impersonation denied": {
			403,
			status(`users "n" is forbidden: User "admin" cannot impersonate resource "users" in API group "" at the ` +
				`cluster scope`),
			false,
			-1,
			Denied,
			"",
		},
		"denied by RBAC": {403, status(authorizers), false, 0, Untested, "another authorizer denied"},
		"denied by RBAC, with a reason": {
			403, status(authorizers + ": RBAC: role not found"), false, 0, Untested, "another authorizer denied",
		},
		"anonymous, not authenticated": {401, status("Unauthorized"), false, -1, Denied, ""},
		"tenant, not authenticated": {
			401, status("Unauthorized"), false, 0, Untested, "did not accept the caller's credential",
		},
		"success":                {200, `{}`, false, 0, Leaked, ""},
		"not found":              {404, status("not found"), false, 0, Leaked, ""},
		"conflict":               {409, status("it exists"), false, 0, Leaked, ""},
		"invalid":                {422, status("invalid"), false, 0, Leaked, ""},
		"not supported":          {405, status("no such method"), false, 0, Untested, "405"},
		"throttled":              {429, status("too many requests"), false, 0, Untested, "429"},
		"server error":           {500, status("failed"), false, 0, Untested, "the server failed (500)"},
		"gateway error":          {502, `bad gateway`, false, 0, Untested, "the server failed (502)"},
		"not available":          {503, ``, false, 0, Untested, "the server failed (503)"},
		"a Service without Pods": {503, status(`no endpoints available for service "probe"`), false, 0, Leaked, ""},
		"timeout":                {504, status("timeout"), false, 0, Untested, "the server failed (504)"},
		"redirected":             {302, ``, false, 0, Untested, "redirected the request (302)"},
		"403 of a firewall": {
			403, `<html>User "u" cannot get resource "pods"</html>`, false, 0, Untested, "403 without a Status",
		},
		"404 of a proxy": {404, `404 page not found`, false, 0, Untested, "404 without a Status"},
		"refused by admission": {
			403, status(`configmaps "x" is forbidden: the label names the namespace's owner`), false, 0, Leaked, "",
		},
		"refused by a webhook that quotes the boundary": {
			403, status(`admission webhook "x.example" denied the request: ` + boundary), false, 0, Leaked, "",
		},
		"refused by admission that quotes an authorizer": {
			403,
			status(`configmaps "x" is forbidden: you cannot set this: User "u" cannot get resource "x"`),
			false,
			0,
			Leaked,
			"",
		},
		"own":            {200, `{}`, true, 0, Passed, ""},
		"own, not found": {404, status("not found"), true, 0, Passed, ""},
		"own, refused by admission": {
			403, status(`daemonsets "x" is forbidden: a tenant may not create this`), true, 0, Passed, "",
		},
		"own, denied":                 {403, status(authorizers), true, 0, Refused, ""},
		"own, denied by the boundary": {403, status(boundary), true, 0, Refused, ""},
		"own, not authenticated": {
			401, status("Unauthorized"), true, 0, Untested, "did not accept the caller's credential",
		},
		"own, server error":      {500, status("failed"), true, 0, Untested, "the server failed (500)"},
		"own, 403 of a firewall": {403, `no`, true, 0, Untested, "403 without a Status"},
		"own, Service without Pods": {
			503, status(`no endpoints available for service "probe"`), true, 0, Passed, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, caller := testMatrix(t, respondAlways(c.code, c.body))
			caller.own = c.tenant
			if err := m.try(t.Context(), caller, probe{
				target: targetForeign,
				method: http.MethodGet,
				path:   "/x",
				group:  "get pods",
				own:    c.own,
			}); err != nil {
				t.Fatal(err)
			}
			m.report.finish()
			reason := ""
			if len(m.report.Findings) > 0 {
				reason = m.report.Findings[0].Group
			}
			if m.report.Total(c.want) != 1 || m.report.OK() != (c.want != Leaked && c.want != Refused) ||
				!strings.Contains(reason, c.why) {
				t.Errorf("%+v, %q; want %s, %q", m.report.Cells[0], reason, c.want, c.why)
			}
			var table strings.Builder
			m.report.Write(&table)
			if strings.Contains(table.String(), "LEAKED:") != (c.want == Leaked) ||
				strings.Contains(table.String(), "NOT TESTED:") != (c.want == Untested) {
				t.Errorf("%s", &table)
			}
		})
	}
}

// TestOnlyOwn checks that one object of another tenant in a list or a watch is a leak. A response
// that is not a list or a watch is not tested.
func TestOnlyOwn(t *testing.T) {
	m, _ := testMatrix(t, nil)
	for body, want := range map[string][2]Outcome{ // outcomes for a list and for a watch
		`{"items":[]}`: {Limited, Limited},
		`{"items":[{"metadata":{"name":"x","namespace":"a--isolation"}}]}`: {Limited, Limited},
		`{"items":[{"metadata":{"name":"a--isolation"}}]}`:                 {Limited, Limited},
		`{"items":[{"metadata":{"name":"x","namespace":"a--isolation"}},` +
			`{"metadata":{"name":"x","namespace":"b--isolation"}}]}`: {
			Leaked, Leaked,
		},
		`{"items":[{"metadata":{"name":"kube-system"}}]}`: {Leaked, Leaked},
		`{"type":"ADDED","object":{"metadata":{"namespace":"a--isolation"}}}{"type":"BOOKMARK","object":{"metadata":{}}}`: {
			Limited, Limited,
		},
		`{"type":"ADDED","object":{"metadata":{"namespace":"a--isolation"}}}{` +
			`"type":"ADDED","object":{"metadata":{"name":"n"}}}`: {
			Leaked, Leaked,
		},
		`{"type":"ERROR","object":{"kind":"Status","code":410}}`: {Limited, Limited},
		`{"type":"ERROR","object":{"kind":"Status","code":500}}`: {Untested, Untested},
		`{}{"type":"ADDED","object":{"metadata":{"name":"n"}}}`:  {Leaked, Leaked},
		`not JSON`: {Untested, Untested},
		`{}`:       {Untested, Untested},
		``:         {Untested, Limited},
	} {
		t.Run(body, func(t *testing.T) {
			for i, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true"} {
				if got := outcomeOf(m.fixture.onlyOwn(0, path), http.StatusOK, body); got != want[i] {
					t.Errorf("%s of %s: %s; want %s", body, path, got, want[i])
				}
			}
		})
	}
	if got := outcomeOf(m.fixture.onlyOwn(0, "/api/v1/pods"), http.StatusGone, status("too old")); got != Limited {
		t.Errorf("client error: %s", got)
	}
}

// TestContinuations checks that a response that reveals that more objects exist is a leak. In
// webhook mode, it is not a leak, because a webhook cannot hide this.
func TestContinuations(t *testing.T) {
	m, _ := testMatrix(t, nil)
	own, quotas := m.fixture.onlyOwn(0, "/api/v1/pods"), onlyAbout(m.fixture.tenants[0], "tenant", false)
	m.fixture.mode = installation.Webhook
	webhook := m.fixture.onlyOwn(0, "/api/v1/pods")
	for body, want := range map[string][3]Outcome{
		`{"metadata":{"continue":"x"},"items":[]}`:                    {Leaked, Limited, Leaked},
		`{"metadata":{"remainingItemCount":3},"items":[]}`:            {Leaked, Limited, Leaked},
		`{"metadata":{"continue":""},"items":[]}`:                     {Limited, Limited, Limited},
		`{"items":[{"spec":{"tenant":"a"}}]}`:                         {Leaked, Leaked, Limited},
		`{"items":[{"spec":{"tenant":"a"}},{"spec":{"tenant":"b"}}]}`: {Leaked, Leaked, Leaked},
		`{"spec":{"tenant":"a"}}`:                                     {Untested, Untested, Leaked},
		`{}`:                                                          {Untested, Untested, Untested},
		``:                                                            {Untested, Untested, Untested},
	} {
		t.Run(body, func(t *testing.T) {
			got := [3]Outcome{outcomeOf(own, 200, body), outcomeOf(webhook, 200, body), outcomeOf(quotas, 200, body)}
			if got != want {
				t.Errorf("%v; want %v", got, want)
			}
		})
	}
}

// TestWatchesOfOwnObjects checks a watch of objects whose spec names their tenant. An object of
// another tenant is a leak.
func TestWatchesOfOwnObjects(t *testing.T) {
	m, _ := testMatrix(t, nil)
	for body, want := range map[string]Outcome{
		``: Limited, // no event before the timeout
		`{"type":"ADDED","object":{"spec":{"id":"a"}}}`:                                                Limited,
		`{"type":"BOOKMARK","object":{"metadata":{}}}`:                                                 Limited,
		`{"type":"ADDED","object":{"spec":{"id":"b"}}}`:                                                Leaked,
		`{"type":"ADDED","object":{"spec":{"id":"a"}}}{"type":"DELETED","object":{"spec":{"id":"b"}}}`: Leaked,
		`{"type":"ADDED","object":{}}`:                                                                 Leaked,
		`{"type":"ERROR","object":{"code":500}}`:                                                       Untested,
		`{"items":[{"spec":{"id":"b"}}]}`:                                                              Leaked,
		`{"type":"ADDED","object":{"spec":{"id":"a"}}}{"type":`:                                        Untested,
	} {
		t.Run(body, func(t *testing.T) {
			if got := outcomeOf(onlyAbout(m.fixture.tenants[0], "id", true), http.StatusOK, body); got != want {
				t.Errorf("%v; want %v", got, want)
			}
		})
	}
}

// TestTruncated checks that a truncated response is recorded as not tested.
func TestTruncated(t *testing.T) {
	p := probe{limited: func(answer) (Outcome, string) { return Limited, "" }}
	if got, reason := p.judge(&caller{}, answer{code: http.StatusOK, truncated: true}); got != Untested ||
		reason != untestedTruncated {
		t.Errorf("%s, %q", got, reason)
	}
}

// TestUnserved checks that a 404 or 405 response is not a leak if kube-apiserver may not support
// the operation.
func TestUnserved(t *testing.T) {
	for code, want := range map[int]Outcome{
		404: Limited,
		405: Limited,
		200: Untested,
		500: Untested,
		403: Denied,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			m, c := testMatrix(t, nil)
			p := probe{unserved: true, limited: m.fixture.onlyOwn(0, "/api/v1/pods")}
			body := "{}"
			if code == http.StatusForbidden {
				body = status(boundary)
			}
			if got, _ := p.judge(c, answer{code: code, body: []byte(body)}); got != want {
				t.Errorf("%s; want %s", got, want)
			}
		})
	}
}

// TestRejectedByAdmission checks that only an error from kubetenant's admission, or from an
// admission plugin of the server itself, is treated as the expected rejection.
func TestRejectedByAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		want Outcome
	}{
		"admission plugin": {403, refusedText, Denied},
		"webhook of kubetenant": {
			403, status(`admission webhook "validate.kubetenant.dev" denied the request: no`), Denied,
		},
		"policy of kubetenant": {
			403,
			status(`pods "x" is forbidden: ValidatingAdmissionPolicy 'status.kubetenant.dev' with binding 'b' denied ` +
				`request: no`),
			Denied,
		},
		"another webhook": {403, status(`admission webhook "validation.gatekeeper.sh" denied the request: no`), Untested},
		"webhook with a similar name": {
			403, status(`admission webhook "kubetenant.dev.example" denied the request: no`), Untested,
		},
		"another policy": {
			403, status(`pods "x" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'b' denied request: no`), Untested,
		},
		"authorizer":                 {403, status(boundary), Untested},
		"firewall":                   {403, `no`, Untested},
		"not found before admission": {404, status("not found"), Untested},
		"invalid before admission":   {422, status("invalid"), Untested},
		"webhook does not respond":   {500, status("failed calling webhook"), Untested},
		"accepted":                   {200, `{}`, Leaked},
		"accepted, created":          {201, `{}`, Leaked},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcomeOf(rejectedByAdmission, c.code, c.body); got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// TestRetries checks that a request is retried if the server requests this, but only a limited
// number of times.
func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int
		header   string
		want     Outcome
		requests int
	}{
		"throttled twice":               {2, "0", Leaked, 3},
		"throttled every time":          {1000, "0", Untested, retries + 1},
		"throttled without Retry-After": {1000, "", Untested, 1},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			m, caller := testMatrix(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				if requests > c.refusals {
					respondAlways(200, `{}`)(w, r)
					return
				}
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				respondAlways(429, status("throttled"))(w, r)
			})
			if err := m.try(t.Context(), caller, probe{target: targetForeign, method: http.MethodGet, path: "/x"}); err != nil {
				t.Fatal(err)
			}
			if m.report.Total(c.want) != 1 || requests != c.requests {
				t.Errorf("%+v after %d requests; want %s after %d", m.report.Cells[0].Counts, requests, c.want, c.requests)
			}
		})
	}
}

// TestNoAnswer checks that requests without a response are recorded as not tested. If the server
// is unreachable, the run ends.
func TestNoAnswer(t *testing.T) {
	m, caller := testMatrix(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
			return
		}
		panic(http.ErrAbortHandler)
	})
	caller.client.Timeout = 50 * time.Millisecond
	if err := m.try(t.Context(), caller, probe{
		target: targetOwn,
		method: http.MethodGet,
		path:   "/slow",
		own:    true,
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	for range maxUnanswered {
		if err != nil {
			t.Fatalf("the run ended early: %v", err)
		}
		err = m.try(t.Context(), caller, probe{target: targetForeign, method: http.MethodGet, path: "/x"})
	}
	if err == nil || m.report.Total(Untested) != maxUnanswered+1 || m.report.Findings[0].Group != untestedNoAnswer {
		t.Errorf("error %v, findings %v", err, m.report.Findings)
	}
}

// TestReviewsWithoutAnAnswer checks that a failed review is not treated as a denial.
func TestReviewsWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		code, own int
		body      string
		want      string // part of the error
	}{
		"allowed":                      {201, 0, `{"status":{"allowed":true}}`, ""},
		"denied":                       {201, 0, `{"status":{"allowed":false}}`, ""},
		"review denied":                {403, 0, status(boundary), ""},
		"anonymous, not authenticated": {401, -1, status("Unauthorized"), ""},
		"tenant, not authenticated":    {401, 0, status("Unauthorized"), "selfsubjectaccessreviews: 401"},
		"403 of a firewall":            {403, 0, `no`, "selfsubjectaccessreviews: 403"},
		"not found":                    {404, 0, status("not found"), "selfsubjectaccessreviews: 404"},
		"server error":                 {500, 0, status("failed"), "selfsubjectaccessreviews: 500"},
		"empty object":                 {201, 0, `{}`, "no status"},
		"empty response":               {201, 0, ``, "no status"},
		"HTML page":                    {200, 0, `<html>`, "selfsubjectaccessreviews: 200"},
	} {
		t.Run(name, func(t *testing.T) {
			m, caller := testMatrix(t, respondAlways(c.code, c.body))
			caller.own = c.own
			ok, err := caller.isAllowed(t.Context(), &authorizationv1.ResourceAttributes{})
			if ok != (name == "allowed") || (err != nil) != (c.want != "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%t, %v; want %q", ok, err, c.want)
			}
			m.Parallel, m.answers[caller] = 1, map[question]bool{{Verb: "get", Resource: "pods"}: false}
			if err := m.tryReviews(t.Context(), nil); err != nil || m.report.found(Untested) > 0 != (c.want != "") {
				t.Errorf("%v, findings %v", err, m.report.Findings)
			}
		})
	}
}

// TestRefusedRules checks that a server may deny a rules review for a namespace of another
// tenant. A 403 response without a Status is recorded as not tested.
func TestRefusedRules(t *testing.T) {
	for body, want := range map[string]int{status("forbidden: the namespace does not belong to the caller's " +
		"tenant"): 0, "no": 1} {
		t.Run(body, func(t *testing.T) {
			m, caller := testMatrix(t, respondAlways(http.StatusForbidden, body))
			if err := m.tryRules(t.Context(), caller, "b--isolation", nil); err != nil || m.report.found(Untested) != want {
				t.Errorf("%v, findings %v", err, m.report.Findings)
			}
		})
	}
}
