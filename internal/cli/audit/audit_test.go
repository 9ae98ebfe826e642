// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/audit"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var start = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)

// line returns a record in JSON. Its time is the given number of minutes after start.
func line(minutes, code int, user string) string {
	return fmt.Sprintf(`{"time":%q,"verb":"get","resource":"pods","name":"p%d","code":%d,"user":%q,"tenant":"acme"}`+"\n",
		start.Add(time.Duration(minutes)*time.Minute).Format(time.RFC3339Nano), minutes, code, user)
}

// seen contains the records and the invalid lines that a visitor received.
type seen struct {
	names   []string
	invalid []string
	lines   strings.Builder
}

func (s *seen) visitor() *audit.Visitor {
	return &audit.Visitor{
		Record: func(r *tenantaudit.Record, line []byte) error {
			s.names = append(s.names, r.Name)
			_, _ = s.lines.Write(append(bytes.Clone(line), '\n'))
			return nil
		},
		Invalid: func(where string, err error) { s.invalid = append(s.invalid, where+": "+err.Error()) },
	}
}

func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFromFiles checks the order and the selection of records, and that only the selected stream
// is read.
func TestFromFiles(t *testing.T) {
	const uid = "0b5f1c1e-0000-4000-8000-000000000001"
	dir := directory(t, map[string]string{
		uid + ".jsonl": line(5, 200, "bob") + "cut off\n" + line(6, 403, "bob"),
		uid + "@20261128T010400.000000000Z.jsonl": line(3, 200, "alice") + line(4, 401, ""),
		uid + "@20261128T010200.000000000Z.jsonl": line(1, 200, "alice") + line(2, 429, "alice"),
		uid + "a.jsonl": line(91, 200, "mallory"),
		"system.jsonl":  line(93, 200, "root"),
		uid + "@20261128T010200.000000000Z.jsonl.old": "x",
	})
	for name, c := range map[string]struct {
		stream tenantaudit.Stream
		query  audit.Query
		want   []string
	}{
		"all":             {uid, audit.Query{}, []string{"p1", "p2", "p3", "p4", "p5", "p6"}},
		"system stream":   {tenantaudit.System, audit.Query{}, []string{"p93"}},
		"since":           {uid, audit.Query{Since: start.Add(4 * time.Minute)}, []string{"p4", "p5", "p6"}},
		"by user":         {uid, audit.Query{User: "alice"}, []string{"p1", "p2", "p3"}},
		"denied":          {uid, audit.Query{Denied: true}, []string{"p4", "p6"}},
		"denied and user": {uid, audit.Query{Denied: true, User: "bob"}, []string{"p6"}},
		"no stream":       {"none", audit.Query{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var s seen
			err := audit.FromFiles(t.Context(), dir, c.stream, &c.query, s.visitor())
			if diff := cmp.Diff(c.want, s.names); diff != "" || err != nil || len(s.invalid) > 0 {
				t.Errorf("%v, %v\n%s", err, s.invalid, diff)
			}
		})
	}
	var s seen
	err := audit.FromFiles(t.Context(), filepath.Join(dir, "none"), tenantaudit.System, &audit.Query{}, s.visitor())
	if !errors.Is(err, os.ErrNotExist) || len(s.names) > 0 {
		t.Errorf("no directory: %v, %v", err, s.names)
	}
	for _, stream := range []tenantaudit.Stream{"../" + uid, "../" + tenantaudit.Stream(filepath.Base(dir)) + "/" + uid} {
		if err := audit.FromFiles(t.Context(), dir, stream, &audit.Query{}, s.visitor()); err == nil || len(s.names) > 0 {
			t.Errorf("%s: %v, %v", stream, err, s.names)
		}
	}
}

// TestInvalidLines checks that each invalid line from a server is reported with its number, and
// without its text.
func TestInvalidLines(t *testing.T) {
	client := server(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, line(1, 200, "a")+"SECRET\n"+`{"verb":"SECRET"}`+"\n"+line(2, 200, "a")+
			`{"time":"SECRET"`+"\n"+strings.Repeat("S", 70_000)+"\n"+strings.TrimSpace(line(3, 200, "a"))[:50])
	})
	var s seen
	if err := audit.FromServer(t.Context(), client, &audit.Query{}, s.visitor()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"p1", "p2"}, s.names); diff != "" {
		t.Error(diff)
	}
	text := strings.Join(s.invalid, "\n")
	for _, number := range []string{"2", "3", "5", "6", "7"} {
		if !strings.Contains(text, "line "+number+" of the stream: ") {
			t.Errorf("line %s is not reported: %s", number, text)
		}
	}
	if len(s.invalid) != 5 || strings.Contains(text, "SECRET") || strings.Contains(text, "SSS") {
		t.Errorf("%s", text)
	}
}

// server returns a client of a server that handles requests for streams.
func server(t *testing.T, handler http.HandlerFunc) rest.Interface {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	k, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL + "/tenants/acme", BearerToken: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return k.Discovery().RESTClient()
}

// TestFromServer checks the query of the request, and that FromServer omits records that do not
// match the query.
func TestFromServer(t *testing.T) {
	for name, c := range map[string]struct {
		query audit.Query
		want  string
		names []string
	}{
		"all": {
			audit.Query{Since: start},
			"/tenants/acme/kubetenant/audit?since=2026-11-28T01%3A00%3A00Z",
			[]string{"p1", "p2"},
		},
		"selected": {
			audit.Query{
				Since:  start,
				User:   "a&tenant=globex",
				Denied: true,
				Tenant: tenanttest.ID(t, "acme"),
			},
			"/tenants/acme/kubetenant/audit?denied=true&since=2026-11-28T01%3A00%3A00Z&tenant=acme&user=a%26tenant%3Dglobex",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			requested := ""
			client := server(t, func(w http.ResponseWriter, r *http.Request) {
				requested = r.URL.String()
				_, _ = io.WriteString(w, line(-1, 200, "a")+line(1, 200, "a")+line(2, 403, "b"))
			})
			var s seen
			err := audit.FromServer(t.Context(), client, &c.query, s.visitor())
			if diff := cmp.Diff(c.names, s.names); diff != "" || err != nil || requested != c.want {
				t.Errorf("%v, %s\n%s", err, requested, diff)
			}
		})
	}
}

// TestFollow checks that records are visited before the stream ends. If the server ends the
// stream, FromServer returns an error. If the context is canceled, it returns nil.
func TestFollow(t *testing.T) {
	client := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, line(1, 200, "a"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	visited := 0
	err := audit.FromServer(ctx, client, &audit.Query{Follow: true}, &audit.Visitor{
		Record: func(*tenantaudit.Record, []byte) error {
			visited++
			cancel()
			return nil
		},
	})
	if err != nil || visited != 1 {
		t.Errorf("%v after %d records", err, visited)
	}
	client = server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") != "true" {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	var s seen
	if err := audit.FromServer(t.Context(), client, &audit.Query{Follow: true}, s.visitor()); err == nil ||
		!strings.HasPrefix(err.Error(), "the server ended the stream: run the command again") {
		t.Errorf("%v", err)
	}
	client = server(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, line(1, 200, "a")+"{")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if err := audit.FromServer(t.Context(), client, &audit.Query{}, s.visitor()); err == nil ||
		!strings.HasPrefix(err.Error(), "the stream was interrupted: ") || len(s.names) != 1 || len(s.invalid) != 0 {
		t.Errorf("%v, %v", err, s)
	}
}

// TestRefused checks the advice in errors for 403 and 404 responses.
func TestRefused(t *testing.T) {
	missing := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		status := apierrors.NewNotFound(schema.GroupResource{Resource: "audit streams"}, "acme").Status()
		status.Kind, status.APIVersion = "Status", "v1"
		_ = json.NewEncoder(w).Encode(status)
	})
	if err := audit.FromServer(t.Context(), missing, &audit.Query{}, &audit.Visitor{}); err == nil ||
		!strings.HasPrefix(err.Error(), "the server has no audit stream of the tenant: it needs a Tenant or a namespace") {
		t.Errorf("a tenant without a stream: %v", err)
	}
	for name, c := range map[string]struct {
		code int
		id   tenant.ID
		want string
	}{
		"not served": {
			http.StatusNotFound,
			tenant.ID{},
			"the server does not serve audit streams: set audit.directory in its configuration",
		},
		"another tenant": {
			http.StatusForbidden, tenanttest.ID(t, "globex"),
			"you may not read the audit stream of tenant globex: callers of a tenant",
		},
		"own tenant": {
			http.StatusForbidden,
			tenant.ID{},
			"you may not read your audit stream: your admin must allow get on the path /kubetenant/audit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) })
			var s seen
			err := audit.FromServer(t.Context(), client, &audit.Query{Tenant: c.id}, s.visitor())
			if err == nil || !strings.HasPrefix(err.Error(), c.want) ||
				apierrors.IsForbidden(err) != (c.code == http.StatusForbidden) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWriteText checks that each record is one line, even if its strings contain control
// characters.
func TestWriteText(t *testing.T) {
	at := start.Add(time.Millisecond)
	for want, r := range map[string]tenantaudit.Record{
		"2026-11-28T01:00:00Z   200    get          pods p -n acme--web                            user alice\n": {
			Time:      at,
			Code:      200,
			Verb:      "get",
			Resource:  "pods",
			Name:      "p",
			Namespace: "acme--web",
			User:      "alice",
			Tenant:    "acme",
		},
		"2026-11-28T01:00:00Z   403    update       deployments.apps/scale web                     tenant globex\n": {
			Time:        at,
			Code:        403,
			Verb:        "update",
			Group:       "apps",
			Resource:    "deployments",
			Subresource: "scale",
			Name:        "web",
			Tenant:      "globex",
		},
		"2026-11-28T01:00:00Z   200    get          secrets s                                      " +
			"user alice, impersonated by system\n": {
			Time:           at,
			Code:           200,
			Verb:           "get",
			Resource:       "secrets",
			Name:           "s",
			User:           "alice",
			ImpersonatedBy: "system",
		},
		"2026-11-28T01:00:00Z   401    get          /healthz                                       tenant (none)\n": {
			Time:   at,
			Code:   401,
			Verb:   "get",
			Path:   "/healthz",
			Tenant: "(none)",
		},
		"2026-11-28T01:00:00Z   -                                                                  -\n": {Time: at},
		`2026-11-28T01:00:00Z   200    g\n          pods a\x1b[2Jb                                 ` +
			`user tenant globex\r\u202e` + "\n": {
			Time:     at,
			Code:     200,
			Verb:     "g\n",
			Resource: "pods",
			Name:     "a\x1b[2Jb",
			User:     "tenant globex\r\u202e",
		},
	} {
		t.Run(want, func(t *testing.T) {
			var b bytes.Buffer
			if err := audit.WriteText(&b, &r); err != nil || b.String() != want {
				t.Errorf("%v\n%q, want\n%q", err, &b, want)
			}
		})
	}
	if strings.Index(audit.Header, "OBJECT") != strings.Index("2026-11-28T01:00:00Z   200    get          pods", "pods") {
		t.Errorf("the header does not fit: %s", audit.Header)
	}
}

// TestWriteJSON checks that the JSON value of a record does not change, and that no printed
// character can control a terminal.
func TestWriteJSON(t *testing.T) {
	for _, text := range []string{
		`{"time":"2026-11-28T01:00:00Z", "new": {"field": [1, 2]},"name":"a<b"}`,
		"{\"name\":\"a\u009b2Jb\u202e\u2028\U000e0041\x7f\\u001b\"}",
		"{\t\"name\"\r: \"Z\u00fcrich\"}",
	} {
		var b bytes.Buffer
		if err := audit.WriteJSON(&b, []byte(text)); err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := errors.Join(json.Unmarshal(b.Bytes(), &got), json.Unmarshal([]byte(text), &want)); err != nil {
			t.Fatalf("%s: %v", &b, err)
		}
		if diff := cmp.Diff(want, got); diff != "" || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s: %s", &b, diff)
		}
		if strings.ContainsAny(strings.TrimSuffix(b.String(), "\n"), "\u009b\u202e\u2028\U000e0041\x7f\x1b\t\r") {
			t.Errorf("%q", &b)
		}
	}
	var b bytes.Buffer
	if err := audit.WriteJSON(&b, []byte("{\"name\":\"a\x9b\"}")); err != nil || b.String() != "{\"name\":\"a\ufffd\"}\n" {
		t.Errorf("%q, %v", &b, err)
	}
	if err := audit.WriteJSON(&b, []byte("{")); err == nil {
		t.Error("an incomplete record is written")
	}
}

// FuzzVisit checks that the reader accepts any line, and that each printed record is one line.
func FuzzVisit(f *testing.F) {
	f.Add(line(1, 200, "a\x1b"))
	f.Add(`{"time":"2026-11-28T01:00:00Z","name":"\n\u0085"}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := directory(t, map[string]string{"system.jsonl": text})
		var b bytes.Buffer
		printed := 0
		err := audit.FromFiles(t.Context(), dir, tenantaudit.System, &audit.Query{}, &audit.Visitor{
			Record: func(r *tenantaudit.Record, line []byte) error {
				printed += 2
				return errors.Join(audit.WriteText(&b, r), audit.WriteJSON(&b, line))
			},
		})
		if err != nil || strings.Count(b.String(), "\n") != printed || strings.ContainsAny(b.String(), "\x1b\r\t\x00\u202e") {
			t.Errorf("%v, %q", err, &b)
		}
	})
}
