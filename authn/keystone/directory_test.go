// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// fakeKeystone is a Keystone that serves lists to requests with the token of its last login.
type fakeKeystone struct {
	*httptest.Server
	logins, requests atomic.Int64

	mu       sync.Mutex
	handlers map[string]http.HandlerFunc // keyed by list
	scope    string                      // a JSON member of the token, followed by a comma
	token    string                      // empty if it was revoked
	paths    []string
}

const canary = "CANARY-name"

func smallLists() map[string]string {
	return map[string]string{
		"domains": `{"domains":[{"id":"d1","name":"acme","enabled":true,"links":{"self":"x"}},
			{"id":"d2","name":"` + canary + `","enabled":false}],"links":{"next":null,"self":"x","previous":null}}`,
		"roles": `{"roles":[{"id":"r1","name":"member","domain_id":null},{"id":"r2","name":"reader","domain_id":null}],
			"links":{"next":null}}`,
		"role_inferences": `{"role_inferences":[{"prior_role":{"id":"r1","name":"member"},
			"implies":[{"id":"r2","name":"reader"}]}]}`,
		"role_assignments": `{"role_assignments":[
			{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"system":{"all":true}}},
			{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"project":{"id":"p1"}}},
			{"role":{"id":"r1"},"user":{"id":"u2"},"scope":{"project":{"id":"p1"}}},
			{"role":{"id":"r2"},"group":{"id":"g1"},"scope":{"domain":{"id":"d1"},"OS-INHERIT:inherited_to":"projects"}},
			{"role":{"id":"unknown"},"group":{"id":"g1"},"scope":{"domain":{"id":"d1"}}},
			{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"project":{"id":"deleted"}}},
			{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"domain":{"id":"deleted"}}}],"links":{"next":null}}`,
		"projects": `{"projects":[
			{"id":"p1","name":"web","domain_id":"d1","parent_id":"d1","enabled":true,"is_domain":false,"extra":NaN},
			{"id":"p2","name":"` + canary + `","domain_id":"d1","parent_id":"p1","enabled":false,"is_domain":false},
			{"id":"d3","name":"a domain","domain_id":null,"parent_id":null,"enabled":true,"is_domain":true}],
			"links":{"next":null}}`,
	}
}

func smallContents() *Contents {
	return &Contents{
		Domains: []Domain{{"d1", "acme", true}, {"d2", canary, false}},
		Projects: []Project{
			{"p1", "web", "d1", "d1", true},
			{"p2", canary, "d1", "p1", false},
		},
		Roles: []Role{{"r1", "member", ""}, {"r2", "reader", ""}},
		Assignments: []Assignment{
			{"r1", "p1", "", false},
			{"r2", "", "d1", true},
			{"unknown", "", "d1", false},
		},
		Implied: []Implication{{"r1", "r2"}},
	}
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, code) }
}

func newFake(t testing.TB) *fakeKeystone {
	t.Helper()
	f := &fakeKeystone{handlers: map[string]http.HandlerFunc{}}
	for list, body := range smallLists() {
		f.handlers[list] = text(body)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *fakeKeystone) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeKeystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if r.Method == http.MethodPost {
		defer f.mu.Unlock()
		f.token = fmt.Sprintf("CANARY-token-%d", f.logins.Add(1))
		w.Header().Set("X-Subject-Token", f.token)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{%s"expires_at":%q}}`, f.scope, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		return
	}
	f.requests.Add(1)
	f.paths = append(f.paths, r.URL.String())
	handler, token := f.handlers[strings.TrimPrefix(r.URL.Path, "/v3/")], f.token
	f.mu.Unlock()
	switch {
	case token == "" || r.Header.Get("X-Auth-Token") != token:
		w.WriteHeader(http.StatusUnauthorized)
	case handler == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		handler(w, r)
	}
}

const testCloud = "clouds: { kube: { auth: { username: u, password: CANARY-password, user_domain_name: Default, " +
	"system_scope: all } } }\n"

func directory(t testing.TB, authURL string) *Directory {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(path, []byte(testCloud), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour) // so that the reloader does not wait for a writer of the file
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	d, _, err := OpenDirectory(path, "kube", authURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unlimitedDirectory returns a directory without a rate limit.
func unlimitedDirectory(t testing.TB, authURL string) *Directory {
	d := directory(t, authURL)
	d.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	return d
}

func expectReadError(t *testing.T, name string, d *Directory, want error, problem string) {
	t.Helper()
	c, err := d.Read(t.Context())
	if c != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), problem) {
		t.Errorf("%s: %v, %v; want %v with %q", name, c, err, want, problem)
	}
	if err != nil && (strings.Contains(err.Error(), "CANARY") || strings.ContainsAny(err.Error(), "\n")) {
		t.Errorf("%s: the error contains content from Keystone: %v", name, err)
	}
}

func TestDirectory(t *testing.T) {
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	if f.logins.Load() != 0 {
		t.Error("OpenDirectory sent a request")
	}
	for range 2 {
		got, err := d.Read(t.Context())
		if err != nil || !reflect.DeepEqual(got, smallContents()) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	want := []string{
		"/v3/domains?limit=1000", "/v3/roles?limit=1000", "/v3/role_inferences", "/v3/role_assignments?limit=1000",
		"/v3/projects?limit=1000",
	}
	if f.logins.Load() != 1 || !slices.Equal(f.paths, slices.Concat(want, want)) {
		t.Errorf("%d logins, %q", f.logins.Load(), f.paths)
	}
}

// TestIncompleteLists checks that an incomplete list causes ErrIncomplete, and that the error names
// the list and the problem.
func TestIncompleteLists(t *testing.T) {
	const project = `{"id":"p1","name":"web","domain_id":"d1","enabled":true}`
	long := strings.Repeat("x", maxNameBytes+1)
	for name, c := range map[string]struct{ list, body, problem string }{
		"truncated": {
			"projects", `{"projects":[` + project + `],"truncated":true,"links":{"next":null}}`, "truncated",
		},
		"truncated, wrong type": {"projects", `{"projects":[],"truncated":"false"}`, "wrong type"},
		"no list":               {"projects", `{"links":{}}`, "no list"},
		"another list":          {"projects", `{"Projects":[` + project + `]}`, "no list"},
		"a null list":           {"projects", `{"projects":null}`, "no list"},
		"an object":             {"projects", `{"projects":{}}`, "wrong type"},
		"a string":              {"projects", `{"projects":["p1"]}`, "wrong type"},
		"a null entry":          {"projects", `{"projects":[null]}`, "projects"},
		"null":                  {"projects", `null`, "no list"},
		"an array":              {"projects", `[]`, "not a complete JSON object"},
		"no bytes":              {"projects", ``, "not a complete JSON object"},
		"HTML":                  {"projects", `<html>CANARY</html>`, "not a complete JSON object"},
		"a cut list":            {"projects", `{"projects":[` + project, "not a complete JSON object"},
		"a cut object":          {"projects", `{"projects":[` + project + `]`, "not a complete JSON object"},
		"text after it":         {"projects", `{"projects":[]}{"projects":[]}`, "not a complete JSON object"},
		"NaN as a list":         {"projects", `{"projects":NaN}`, "wrong type"},
		"no id":                 {"projects", strings.Replace(`{"projects":[`+project+`]}`, `"id":"p1",`, "", 1), "no id"},
		"an empty id":           {"projects", strings.Replace(`{"projects":[`+project+`]}`, "p1", "", 1), "no id"},
		"a null id":             {"projects", strings.Replace(`{"projects":[`+project+`]}`, `"p1"`, "null", 1), "no id"},
		"a number as id":        {"projects", strings.Replace(`{"projects":[`+project+`]}`, `"p1"`, "1", 1), "wrong type"},
		"no name":               {"projects", strings.Replace(`{"projects":[`+project+`]}`, "web", "", 1), "no name"},
		"a long name": {
			"projects", strings.Replace(`{"projects":[`+project+`]}`, "web", long, 1), "more than 1024",
		},
		"no enabled": {
			"projects", strings.Replace(`{"projects":[`+project+`]}`, `,"enabled":true`, "", 1), "no enabled",
		},
		"enabled in quotes": {
			"projects", strings.Replace(`{"projects":[`+project+`]}`, `true`, `"true"`, 1), "wrong type",
		},
		"an unknown domain": {
			"projects", strings.Replace(`{"projects":[`+project+`]}`, "d1", "d9", 1), `the domain of "p1" is not`,
		},
		"no domain": {"projects", strings.Replace(`{"projects":[`+project+`]}`, `"d1"`, "null", 1), "the domain of"},
		"two entries": {
			"projects", `{"projects":[` + project + `,` + strings.Replace(project, "true", "false", 1) + `]}`, "two different",
		},
		"its own parent": {
			"projects", `{"projects":[` + strings.Replace(project, `"name"`, `"parent_id":"p1","name"`, 1) + `]}`, "ancestor",
		},
		"a cycle": {
			"projects", `{"projects":[{"id":"a","name":"a","domain_id":"d1","enabled":true,"parent_id":"b"},
			{"id":"b","name":"b","domain_id":"d1","enabled":true,"parent_id":"c"},
			{"id":"c","name":"c","domain_id":"d1","enabled":true,"parent_id":"b"}]}`, "ancestor",
		},
		"an unknown parent": {
			"projects", `{"projects":[` + strings.Replace(project, `"name"`, `"parent_id":"p9","name"`, 1) + `]}`,
			"the parent of",
		},

		"no domains":          {"domains", `{"domains":[]}`, "the list is empty"},
		"no projects":         {"projects", `{"projects":[]}`, "the list is empty"},
		"domains only":        {"projects", `{"projects":[{"id":"d1","is_domain":true}]}`, "the list is empty"},
		"domain, no id":       {"domains", `{"domains":[{"name":"a","enabled":true}]}`, "no id"},
		"domain, no name":     {"domains", `{"domains":[{"id":"a","enabled":true}]}`, "no name"},
		"domain, no enabled":  {"domains", `{"domains":[{"id":"a","name":"a"}]}`, "no enabled"},
		"no roles":            {"roles", `{"roles":[]}`, "the list is empty"},
		"role, no name":       {"roles", `{"roles":[{"id":"a"}]}`, "no name"},
		"inference, no prior": {"role_inferences", `{"role_inferences":[{"implies":[]}]}`, "prior_role"},
		"inference, no implied": {
			"role_inferences", `{"role_inferences":[{"prior_role":{"id":"a"}}]}`, "implies",
		},
		"inference, no id": {
			"role_inferences", `{"role_inferences":[{"prior_role":{"id":"a"},"implies":[{}]}]}`, "has no id",
		},
		"no assignments": {"role_assignments", `{"role_assignments":[]}`, "the list is empty"},
		"assignment, no role": {
			"role_assignments", `{"role_assignments":[{"scope":{"project":{"id":"p1"}}}]}`, "role.id",
		},
		"assignment, no scope": {"role_assignments", `{"role_assignments":[{"role":{"id":"r1"}}]}`, "0 scopes"},
		"assignment, two scopes": {
			"role_assignments",
			`{"role_assignments":[{"role":{"id":"r1"},"scope":{"project":{"id":"p1"},"domain":{"id":"d1"}}}]}`, "2 scopes",
		},
		"assignment, project and system": {
			"role_assignments",
			`{"role_assignments":[{"role":{"id":"r1"},"scope":{"project":{"id":"p1"},"system":{"all":true}}}]}`, "2 scopes",
		},
		"assignment, no id": {
			"role_assignments", `{"role_assignments":[{"role":{"id":"r1"},"scope":{"project":{"name":"CANARY"}}}]}`,
			"the scope of an entry has no id",
		},
		"assignment, inherited to something": {
			"role_assignments", `{"role_assignments":[{"role":{"id":"r1"},"scope":{"domain":{"id":"d1"},
			"OS-INHERIT:inherited_to":"CANARY"}}]}`, "unknown inheritance",
		},
		"assignment, inherited as a boolean": {
			"role_assignments", `{"role_assignments":[{"role":{"id":"r1"},"scope":{"domain":{"id":"d1"},
			"OS-INHERIT:inherited_to":true}}]}`, "wrong type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.handlers[c.list] = text(c.body)
			expectReadError(t, name, unlimitedDirectory(t, f.URL), ErrIncomplete, c.problem)
			if n := f.requests.Load(); n < 2 || n > 10 || n%2 != 0 {
				t.Errorf("%d requests; want two passes", n)
			}
			f.Close()
		})
	}
}

// TestStatuses checks which status codes cause ErrIncomplete and which cause ErrUnavailable.
func TestStatuses(t *testing.T) {
	for code := 201; code < 600; code++ {
		if http.StatusText(code) == "" || code == http.StatusNonAuthoritativeInfo || code == http.StatusUnauthorized {
			continue
		}
		f := newFake(t)
		f.handlers["projects"] = status(code)
		want := ErrIncomplete
		if code >= 500 || code == http.StatusTooManyRequests {
			want = ErrUnavailable
		}
		expectReadError(t, fmt.Sprint(code), unlimitedDirectory(t, f.URL), want, "projects: ")
		f.Close()
	}
	f := newFake(t)
	f.handlers["domains"] = status(http.StatusForbidden)
	expectReadError(t, "403", unlimitedDirectory(t, f.URL), ErrIncomplete, "role reader with system scope")
}

// TestTruncatedResponses checks that a response is complete only if all its bytes arrive, even if
// the received bytes are a whole document.
func TestTruncatedResponses(t *testing.T) {
	body := smallLists()["projects"]
	raw := func(head, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+head+"\r\n\r\n"+body)
			_ = conn.Close()
		}
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    error
		problem string
	}{
		"a larger Content-Length":  {raw(fmt.Sprintf("Content-Length: %d", len(body)+1), body), ErrIncomplete, "ends early"},
		"a smaller Content-Length": {raw("Content-Length: 100", body[:100]), ErrIncomplete, "not a complete JSON"},
		"no last chunk":            {raw("Transfer-Encoding: chunked", chunk), ErrIncomplete, "ends early"},
		"half a chunk":             {raw("Transfer-Encoding: chunked", chunk[:100]), ErrIncomplete, "ends early"},
		"no length, cut":           {raw("Connection: close", body[:len(body)-2]), ErrIncomplete, "not a complete JSON"},
		"invalid gzip":             {raw("Content-Encoding: gzip\r\nConnection: close", body), ErrIncomplete, "ends early"},
		"no body":                  {raw("Connection: close", ""), ErrIncomplete, "not a complete JSON"},
		"closed": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable, "no response",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.handlers["projects"] = c.handler
			expectReadError(t, name, unlimitedDirectory(t, f.URL), c.want, c.problem)
			f.Close()
		})
	}
	f := newFake(t)
	f.handlers["projects"] = raw("Transfer-Encoding: chunked", chunk+"0\r\n\r\n")
	if got, err := unlimitedDirectory(t, f.URL).Read(t.Context()); err != nil || !reflect.DeepEqual(got, smallContents()) {
		t.Errorf("with the last chunk: %+v, %v", got, err)
	}
}

func TestUnavailable(t *testing.T) {
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	f.handlers["projects"] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := d.Read(ctx); c != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("no response in time: %v, %v", c, err)
	}
	f.set(func() {
		f.handlers["projects"] = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"projects":[`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := d.Read(ctx); c != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("a body that does not end in time: %v, %v", c, err)
	}
	d.reads <- struct{}{}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if c, err := d.Read(ctx); c != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("another read: %v, %v", c, err)
	}
	<-d.reads
	f.CloseClientConnections()
	f.Close()
	expectReadError(t, "connection refused", d, ErrUnavailable, "")
	expectReadError(t, "login refused", unlimitedDirectory(t, f.URL), ErrUnavailable, "log in")
}

// TestDirectoryLogins checks that a revoked token causes one login. A Keystone that accepts no
// token receives only a few logins.
func TestDirectoryLogins(t *testing.T) {
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	projects := f.handlers["projects"]
	revoked := false
	f.handlers["roles"] = func(w http.ResponseWriter, r *http.Request) {
		f.set(func() {
			if !revoked { // the token is revoked after this response
				revoked, f.token = true, ""
			}
		})
		text(smallLists()["roles"])(w, r)
	}
	got, err := d.Read(t.Context())
	if err != nil || !reflect.DeepEqual(got, smallContents()) || f.logins.Load() != 2 {
		t.Errorf("%+v, %v, %d logins", got, err, f.logins.Load())
	}
	f.set(func() { f.handlers["projects"] = status(http.StatusUnauthorized) })
	for range 5 {
		if c, err := d.Read(t.Context()); c != nil || !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrUnavailable) {
			t.Errorf("401: %v, %v", c, err)
		}
	}
	if n := f.logins.Load(); n > loginBurst+1 {
		t.Errorf("%d logins", n)
	}
	f.set(func() { f.handlers["projects"] = projects })
}

// TestDomainScope checks that no lists are read with a domain-scoped token. Keystone would silently
// omit the projects and assignments of other domains.
func TestDomainScope(t *testing.T) {
	f := newFake(t)
	f.scope = `"domain":{"id":"d1","name":"acme"},`
	expectReadError(t, "domain scope", unlimitedDirectory(t, f.URL), ErrIncomplete, "use system scope")
	if f.requests.Load() != 0 {
		t.Error("lists were read")
	}
}

// TestExtraAttributes checks that extra attributes, which the admin of a project can set, do not
// change other attributes and do not cause an error.
func TestExtraAttributes(t *testing.T) {
	for name, extra := range map[string]string{
		"other case":         `"ID":"p9","Name":"x","NAME":"x","Domain_ID":"d2","Enabled":false,"Is_Domain":true`,
		"Unicode case":       `"i\u0064s":"x","i\u017fdomain":true,"enab\u017fed":false,"\u212aind":1`,
		"wrong types":        `"ID":{},"eNABLED":[1],"Truncated":true,"truncated":true,"links":{"next":"http://attacker/"}`,
		"NaN":                `"a":NaN,"b":[Infinity,-Infinity],"c":"NaN","d":"\\",` + `"e":-Infinity`,
		"numbers":            `"a":1e999999,"b":123456789012345678901234567890,"c":-0.0E-5`,
		"depth":              `"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"size":               `"a":"` + strings.Repeat("x", 8<<20) + `"`,
		"many":               strings.Repeat(`"a":{"id":"p9"},`, 100_000) + `"b":1`,
		"duplicates":         `"a":1,"a":2,"":1`,
		"lone surrogates":    `"a":"\ud800","\udfff":1`,
		"a list in an entry": `"projects":[],"domains":null`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.handlers["projects"] = text(strings.Replace(smallLists()["projects"], `"extra":NaN`, extra, 1))
			if got, err := unlimitedDirectory(t, f.URL).Read(t.Context()); err != nil ||
				!reflect.DeepEqual(got, smallContents()) {
				t.Errorf("%+v, %v", got, err)
			}
			f.Close()
		})
	}
}

// TestUnusualNames checks that unusual names are not changed and do not cause an error.
func TestUnusualNames(t *testing.T) {
	for _, name := range []string{
		" ", "\n", "\x00", "../..", "system:masters", "\u202eabc", "%00", strings.Repeat("\U0001f600", 255), "a\ufffdb",
	} {
		f := newFake(t)
		quoted, _ := json.Marshal(name)
		f.handlers["projects"] = text(strings.Replace(smallLists()["projects"], `"web"`, string(quoted), 1))
		got, err := unlimitedDirectory(t, f.URL).Read(t.Context())
		if err != nil || got.Projects[0].Name != name {
			t.Errorf("%.20q: %v, %v", name, got, err)
		}
		f.Close()
	}
}

// TestIncompleteReadIsRetried checks that a change between two lists is not an error if the next
// pass is complete.
func TestIncompleteReadIsRetried(t *testing.T) {
	f := newFake(t)
	var reads atomic.Int64
	f.handlers["projects"] = func(w http.ResponseWriter, r *http.Request) {
		if reads.Add(1) == 1 {
			text(`{"projects":[{"id":"p1","name":"web","domain_id":"new","enabled":true}]}`)(w, r)
			return
		}
		text(smallLists()["projects"])(w, r)
	}
	if got, err := unlimitedDirectory(t, f.URL).Read(t.Context()); err != nil || !reflect.DeepEqual(got, smallContents()) {
		t.Errorf("%+v, %v", got, err)
	}
	if f.requests.Load() != 10 {
		t.Errorf("%d requests", f.requests.Load())
	}
}

// TestConcurrentReads checks that concurrent reads return the same contents and share one login.
func TestConcurrentReads(t *testing.T) {
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got, err := d.Read(t.Context()); err != nil || !reflect.DeepEqual(got, smallContents()) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	if f.logins.Load() != 1 {
		t.Errorf("%d logins", f.logins.Load())
	}
}

// TestRateLimit checks that the directory sends at most 10 requests per second.
func TestRateLimit(t *testing.T) {
	f := newFake(t)
	d := directory(t, f.URL)
	start := time.Now()
	for range 3 {
		if _, err := d.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took, n := time.Since(start), f.requests.Load(); took < time.Duration(n-1)*time.Second/requestsPerSecond {
		t.Errorf("%d requests in %s", n, took)
	}
}

// BenchmarkDirectory measures a read of 1,000 projects and 10,000 assignments of distinct users.
func BenchmarkDirectory(b *testing.B) {
	f := newFake(b)
	id := func(kind string, n int) string { return fmt.Sprintf("%s%031x", kind, n) }
	entries := map[string][]string{"role_assignments": nil, "projects": nil}
	for n := range 10_000 {
		entries["role_assignments"] = append(entries["role_assignments"], fmt.Sprintf(
			`{"links":{"assignment":"http://127.0.0.1:5000/v3/projects/%[1]s/users/%[2]s/roles/r1"},`+
				`"scope":{"project":{"id":%[1]q}},"user":{"id":%[2]q},"role":{"id":"r1"}}`, id("p", n%1000), id("u", n)))
	}
	for n := range 1_000 {
		entries["projects"] = append(entries["projects"], fmt.Sprintf(
			`{"id":%q,"name":"project-%d","domain_id":"d1","description":"","enabled":true,"parent_id":"d1",`+
				`"is_domain":false,"tags":[],"options":{},"links":{"self":"http://127.0.0.1:5000/v3/projects/x"}}`, id("p", n), n))
	}
	for list, all := range entries {
		f.handlers[list] = text(`{"` + list + `":[` + strings.Join(all, ",") + `],"links":{"next":null}}`)
	}
	d := directory(b, f.URL)
	var peak atomic.Uint64
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			time.Sleep(10 * time.Millisecond)
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		c, err := d.Read(ctx)
		if err != nil || len(c.Projects) != 1_000 || len(c.Assignments) != 1_000 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(peak.Load())/1e6, "peak-MB")
}
