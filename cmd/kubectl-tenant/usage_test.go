// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// answers contains the responses of a server with kubetenant, keyed by method and path. A
// number is the status code of an error response.
type answers map[string]any

// around returns a handler with these responses. Other requests are passed to next.
func (a answers) around(next http.Handler) http.Handler {
	return authz.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := a[r.Method+" "+r.URL.Path]
		if !found {
			next.ServeHTTP(w, r)
			return
		}
		code := http.StatusOK
		if status, ok := answer.(int); ok {
			code = status
			answer = map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       code,
				"reason":     map[int]string{http.StatusForbidden: "Forbidden"}[code],
				"message":    strings.ToLower(http.StatusText(code)),
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	}), nil)
}

const (
	whoAmI      = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	tenantOf    = "GET /apis/kubetenant.dev/v1alpha1/tenants/"
	usageOf     = "GET /apis/kubetenant.dev/v1alpha1/tenantusages/"
	listOfUsage = "GET /apis/kubetenant.dev/v1alpha1/tenantusages"
)

// callerOf returns the self review of a caller of a tenant.
func callerOf(id string) map[string]any {
	return map[string]any{
		"kind":       "SelfSubjectReview",
		"apiVersion": "authentication.k8s.io/v1",
		"status": map[string]any{"userInfo": map[string]any{
			"username": "alice",
			"groups":   []any{"system:authenticated"},
			"extra":    map[string]any{tenant.ExtraKey: []any{id}},
		}},
	}
}

// tenantObject returns a Tenant object with the given ID.
func tenantObject(id string) map[string]any {
	return map[string]any{
		"kind":       "Tenant",
		"apiVersion": "kubetenant.dev/v1alpha1",
		"metadata":   map[string]any{"name": id},
		"spec":       map[string]any{"id": id},
	}
}

// hourOf returns the usage in one hour.
func hourOf(at time.Time, requests int) map[string]any {
	return map[string]any{"hour": at.Format(time.RFC3339), "requests": requests, "seatMilliseconds": 1500}
}

// tenantUsage returns the TenantUsage of a tenant with the servers a and b. requests contains
// the number of requests at server a in each of the last hours. Server b has only the first of
// these hours.
func tenantUsage(id string, stored map[string]any, requests ...int) map[string]any {
	var hours []any
	for i, n := range requests {
		hours = append(hours, hourOf(lastHour().Add(time.Duration(i+1-len(requests))*time.Hour), n))
	}
	u := map[string]any{
		"kind":       "TenantUsage",
		"apiVersion": "kubetenant.dev/v1alpha1",
		"metadata":   map[string]any{"name": id},
		"tenant":     id,
		"servers":    []any{map[string]any{"name": "a", "hours": hours}, map[string]any{"name": "b", "hours": hours[:1]}},
	}
	if stored != nil {
		u["stored"] = stored
	}
	return u
}

func lastHour() time.Time { return time.Now().UTC().Truncate(time.Hour) }

// TestUsage checks the usage that callers of a tenant and of the system tenant can read.
func TestUsage(t *testing.T) {
	stored := map[string]any{
		"measuredAt": "2026-11-28T01:02:03Z",
		"namespaces": 2,
		"objects":    34,
		"bytes":      5678,
		"requested":  map[string]any{"requests.memory": "4Gi", "requests.cpu": "2500m"},
	}
	tenants := answers{
		whoAmI:              callerOf("acme"),
		tenantOf + "acme":   tenantObject("acme"),
		tenantOf + "globex": tenantObject("globex"),
		usageOf + "acme":    tenantUsage("acme", stored, 1, 20),
		usageOf + "globex":  http.StatusForbidden,
	}
	system := answers{
		whoAmI:            callerOf("system"),
		tenantOf + "acme": tenantObject("acme"),
		usageOf + "acme":  tenantUsage("acme", stored, 1, 20),
		listOfUsage: map[string]any{"kind": "TenantUsageList", "apiVersion": "kubetenant.dev/v1alpha1", "items": []any{
			tenantUsage("acme", stored, 1, 20), tenantUsage("globex", nil, 300),
		}},
	}
	// The hours in the output depend on the current time.
	const hour = "2006-01-02T15:00:00Z"
	hours := regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:00:00Z`)
	acme := "Tenant:      acme\nSince:       " + hour + "\n" +
		"Stored:      34 objects in 2 namespaces, 5678 bytes as JSON (measured 2026-11-28T01:02:03Z)\n" +
		"Requested:   requests.cpu=2500m, requests.memory=4Gi\n\n" +
		"HOUR                   REQUESTS   DENIED   LIMITED   WATCHES   SEAT SECONDS\n" +
		hour + "   2          0        0         0         3.0\n" +
		hour + "   20         0        0         0         1.5\n" +
		"TOTAL                  22         0        0         0         4.5\n"
	for name, c := range map[string]struct {
		server answers
		args   []string
		want   string
		err    string
		code   int
	}{
		"own tenant":             {server: tenants, want: acme},
		"own tenant by its name": {server: tenants, args: []string{"acme"}, want: acme},
		"another tenant": {
			server: tenants,
			args:   []string{"globex"},
			err:    "you may not read the usage of tenant globex: callers of a tenant read the usage of their own tenant only",
			code:   exitFailed,
		},
		"one of all tenants": {server: system, args: []string{"acme"}, want: acme},
		"all tenants": {
			server: system,
			want: "TENANT   REQUESTS   DENIED   LIMITED   WATCHES   OBJECTS     BYTES\n" +
				"globex   600        0        0         0         <unknown>   <unknown>\n" +
				"acme     22         0        0         0         34          5678\n" +
				"Total of 2 tenants since " + hour + ": 622 requests, 0 denied, 0 limited\n",
		},
		"as CSV": {
			server: system,
			args:   []string{"-o", "csv", "--since", "3h"},
			want: "tenant,uid,hour,requests,denied,limited,watches,seatMilliseconds\nglobex,," + hour + ",600,0,0,0,3000\n" +
				"acme,," + hour + ",2,0,0,0,3000\nacme,," + hour + ",20,0,0,0,1500\n",
		},
		"as JSONPath": {
			server: system,
			args:   []string{"-o", `jsonpath={.kind} {.tenants[*].tenant} {.total.requests}`},
			want:   "Usage globex acme 622",
		},
		"no usage": {
			server: answers{whoAmI: callerOf("initech"), usageOf + "initech": map[string]any{
				"kind":       "TenantUsage",
				"apiVersion": "kubetenant.dev/v1alpha1",
				"metadata":   map[string]any{"name": "initech"},
				"tenant":     "initech",
			}},
			want: "Tenant:   initech\nSince:    " + hour + "\n\nHOUR    REQUESTS   DENIED   LIMITED   WATCHES   SEAT SECONDS\n" +
				"TOTAL   0          0        0         0         0.0\n",
		},
		"no tenants": {
			server: answers{whoAmI: callerOf("system")},
			want:   "No usage since " + hour + "\n",
		},
		"no tenant": {
			server: answers{whoAmI: map[string]any{
				"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
				"status": map[string]any{"userInfo": map[string]any{"username": "alice"}},
			}},
			err:  "you belong to no tenant: name a TENANT",
			code: exitUnusual,
		},
		"a server without usage": {
			server: answers{whoAmI: callerOf("system"), listOfUsage: http.StatusNotFound},
			err:    "the server does not record usage: upgrade its kubetenant",
			code:   exitUnusual,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := newServer(t, c.server.around).run(t, append([]string{"usage"}, c.args...)...)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) || exitCode(err) != c.code ||
					strings.Contains(out, "globex") {
					t.Errorf("%v, %q; want %s", err, out, c.err)
				}
				return
			}
			if out = hours.ReplaceAllString(out, hour); err != nil || out != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, out, c.want)
			}
		})
	}
}

// TestUsageRefusesArguments checks that invalid arguments are rejected before a request is sent.
func TestUsageRefusesArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"--since 49h: the server keeps 48 hours: set --from to a directory": {"--since", "49h"},
		"--since must be longer than 0":                                     {"--since", "0s"},
		`--since "x": must be a duration`:                                   {"--since", "x"},
		`tenant "a b": invalid tenant`:                                      {"a b"},
		"-o xml: must be one of wide, csv":                                  {"-o", "xml"},
		"accepts at most 1 arg(s)":                                          {"a", "b"},
	} {
		t.Run(want, func(t *testing.T) {
			s := newServer(t, nil)
			out, err := s.run(t, append([]string{"usage"}, args...)...)
			if err == nil || !strings.HasPrefix(err.Error(), want) || out != "" ||
				len(s.requests) > 0 {
				t.Errorf("%v: %q, %v, %v", args, out, err, s.requests)
			}
		})
	}
}

// TestUsageFromRecords checks that the command reads records without a server, and reports the
// lines that it cannot read.
func TestUsageFromRecords(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i, id := range []string{"acme", "globex", "acme"} {
		_, _ = fmt.Fprintf(&text, `{"server":"a","started":"2026-11-28T01:00:00.5Z","uid":"u%d","tenant":%q,`+
			`"hour":%q,"requests":%d}`+"\n",
			i, id, lastHour().Add(-1000*time.Hour).Format(time.RFC3339), i+1)
	}
	file := filepath.Join(dir, "usage.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, nil)
	out, err := s.run(t, "usage", "--from", dir, "--since", "50d")
	if err != nil || !strings.Contains(out, "Total of 3 tenants since ") ||
		!strings.Contains(out, ": 6 requests, 0 denied, 0 limited\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = s.run(t, "usage", "acme", "--from", dir, "--since", "50d")
	if err != nil || strings.Count(out, "Tenant:   acme\nUID:      u") != 2 || strings.Contains(out, "globex") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = s.run(t, "usage", "acme", "--from", dir)
	if err != nil || !strings.HasPrefix(out, "No usage of tenant acme since ") {
		t.Errorf("%v\n%s", err, out)
	}
	broken := text.String() + "x\x1b\n" + strings.Repeat("y\n", usage.MaxProblems)
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = s.run(t, "usage", "--from", dir, "--since", "50d", "-o", "csv")
	if err == nil || err.Error() != "the report is not complete: 21 lines or objects could not be read" ||
		exitCode(err) != exitUnusual || !strings.Contains(out, "globex,u1,") ||
		!strings.Contains(out, "warning: "+file+":4: the line is not a usage record") ||
		!strings.HasSuffix(out, "\n... and 1 more\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := s.run(t, "usage", "--from", t.TempDir()); err == nil || exitCode(err) != exitUnusual {
		t.Errorf("an empty directory: %v", err)
	}
	if len(s.requests) > 0 {
		t.Errorf("the command sent %v", s.requests)
	}
}
