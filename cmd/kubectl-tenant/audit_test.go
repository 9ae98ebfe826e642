// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/audit"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// auditLine returns a record with the current time.
func auditLine(name, user string) string {
	return `{"time":"` + time.Now().UTC().Format(time.RFC3339Nano) + `","verb":"get","resource":"pods","name":"` + name +
		`","code":200,"user":"` + user + `","new":1}` + "\n"
}

// serving returns a function that makes a server serve audit streams with the given handler.
func serving(serve http.HandlerFunc) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return authz.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == authz.AuditPath {
				serve(w, r)
				return
			}
			answers{tenantOf + "acme": tenantObject("acme"), tenantOf + "globex": tenantObject("globex")}.
				around(next).ServeHTTP(w, r)
		}), nil)
	}
}

// TestAudit checks the request that the command sends, and its output.
func TestAudit(t *testing.T) {
	query := ""
	s := newServer(t, serving(func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		switch r.URL.Query().Get("tenant") {
		case "globex":
			w.WriteHeader(http.StatusForbidden)
		case "":
			_, _ = io.WriteString(w, auditLine("a\\u001b[2J", "alice")+auditLine("b", "bob"))
		}
	}))
	out, err := s.run(t, "audit")
	if err != nil || !strings.HasPrefix(out, audit.Header+"20") || strings.Count(out, "\n") != 3 ||
		!strings.Contains(out, `pods a\x1b[2J `) || !strings.HasSuffix(out, " user bob\n") ||
		!strings.HasPrefix(query, "since=20") {
		t.Errorf("%v, %s\n%s", err, query, out)
	}
	out, err = s.run(t, "audit", "--user", "bob", "--denied=false", "-o", "json", "--since", "2d")
	if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"name":"b"`) ||
		!strings.Contains(out, `"new":1`) || !strings.HasSuffix(query, "&user=bob") {
		t.Errorf("%v, %s\n%s", err, query, out)
	}
	out, err = s.run(t, "audit", "--tenant", "acme", "--denied")
	if err != nil || !strings.HasPrefix(out, "No requests since 20") || !strings.HasPrefix(query, "denied=true&since=") ||
		!strings.HasSuffix(query, "&tenant=acme") {
		t.Errorf("%v, %s\n%s", err, query, out)
	}
	out, err = s.run(t, "audit", "--tenant", "globex")
	if err == nil || exitCode(err) != exitFailed ||
		!strings.HasPrefix(err.Error(), "you may not read the audit stream of tenant globex") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAuditNotServed checks that the error contains a remedy if a server has no streams.
func TestAuditNotServed(t *testing.T) {
	s := newServer(t, serving(http.NotFound))
	if out, err := s.run(t, "audit"); err == nil || exitCode(err) != exitUnusual ||
		!strings.HasPrefix(err.Error(), "the server does not serve audit streams: set audit.directory") || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAuditFollows checks that audit --follow prints the records, and fails if the server ends
// the stream.
func TestAuditFollows(t *testing.T) {
	s := newServer(t, serving(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "true" {
			_, _ = io.WriteString(w, auditLine("a", "alice"))
		}
	}))
	out, err := s.run(t, "audit", "--follow")
	if err == nil || !strings.HasPrefix(err.Error(), "the server ended the stream") ||
		!strings.HasSuffix(out, " user alice\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAuditFromFiles checks that the command reads only the files of the selected stream, and
// finds the UID of a tenant.
func TestAuditFromFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"system.jsonl":     auditLine("of-system", "root"),
		"u-1.jsonl":        auditLine("of-acme", "alice"),
		"eu1+u-1.jsonl":    auditLine("of-gateway", "mallory"),
		"u-2.jsonl":        auditLine("of-predecessor", "mallory"),
		"id-initech.jsonl": auditLine("of-initech", "peter"),
		// The tenant ID is not safe as a file name.
		string(tenantaudit.StreamOf(tenanttest.ID(t, "id-x"), "")) + ".jsonl": auditLine("of-id-x", "peter"),
		"broken.jsonl": auditLine("a", "alice") + "x\x1b\n" + auditLine("b", "bob"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	acme := tenantObject("acme")
	acme["metadata"].(map[string]any)["uid"] = "u-1"
	s := newServer(t, answers{
		tenantOf + "acme": acme,
		"GET /api/v1/namespaces": map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "items": []any{
			map[string]any{"metadata": map[string]any{"name": "initech--web"}},
			map[string]any{"metadata": map[string]any{"name": "id-x--web"}},
		}},
	}.around)
	offline := newServer(t, nil)
	for want, c := range map[string]struct {
		server *server
		args   []string
	}{
		"of-system":      {offline, nil},
		"of-predecessor": {offline, []string{"--uid", "u-2"}},
		"of-gateway":     {offline, []string{"--uid", "eu1+u-1"}},
		"of-acme":        {s, []string{"--tenant", "acme"}},
		"of-initech":     {s, []string{"--tenant", "initech"}},
		"of-id-x":        {s, []string{"--tenant", "id-x"}},
	} {
		t.Run(want, func(t *testing.T) {
			out, err := c.server.run(t, append([]string{"audit", "--from", dir}, c.args...)...)
			if err != nil || strings.Count(out, "\n") != 2 || !strings.Contains(out, "pods "+want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	out, err := offline.run(t, "audit", "--from", dir, "--uid", "broken", "-o", "json")
	if err != nil || strings.Count(out, `"code":200`) != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = offline.run(t, "audit", "--from", dir, "--uid", "none")
	if err != nil || !strings.HasPrefix(out, "No requests since 20") || !strings.Contains(out, " in stream none of ") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = offline.run(t, "audit", "--from", filepath.Join(dir, "none"))
	if err == nil || exitCode(err) != exitUnusual || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
	if len(offline.requests) > 0 {
		t.Errorf("the command sent %v without a cluster", offline.requests)
	}
	if out, err := s.run(t, "audit", "--from", dir, "--tenant", "a.b"); err != nil ||
		!strings.HasPrefix(out, "No requests since 20") {
		t.Errorf("a tenant without a stream: %v\n%s", err, out)
	}
	if out, err := offline.run(t, "audit", "--from", dir, "--tenant", "acme"); err == nil ||
		!strings.Contains(err.Error(), "set --uid instead of --tenant") || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAuditRefusesArguments checks that invalid arguments are rejected before a request is sent.
func TestAuditRefusesArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"--follow cannot be used with --from":        {"--from", ".", "-f"},
		"--uid must be used with --from":             {"--uid", "u"},
		"--uid and --tenant cannot be used together": {"--from", ".", "--uid", "u", "--tenant", "acme"},
		`--uid "../u" is not the UID of a Tenant`:    {"--from", ".", "--uid", "../u"},
		"--since must be longer than 0":              {"--since", "0s"},
		`--tenant "a b": invalid tenant`:             {"--tenant", "a b"},
		"--user must not be empty":                   {"--user", ""},
		"-o yaml: must be json":                      {"-o", "yaml"},
		`kubectl tenant audit takes no arguments`:    {"acme"},
		`--since "yesterday": must be a duration`:    {"--since", "yesterday"},
	} {
		t.Run(want, func(t *testing.T) {
			s := newServer(t, nil)
			out, err := s.run(t, append([]string{"audit"}, args...)...)
			if err == nil || !strings.HasPrefix(err.Error(), want) || out != "" || len(s.requests) > 0 {
				t.Errorf("%v: %q, %v, %v", args, out, err, s.requests)
			}
		})
	}
}
