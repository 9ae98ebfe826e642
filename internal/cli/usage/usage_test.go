// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/jsonlines"
	"github.com/kubetenant/kubetenant/internal/cli/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var now = time.Date(2026, 11, 28, 3, 30, 0, 0, time.UTC)

// at returns the beginning of an hour of the day of the tests.
func at(hour int) time.Time { return time.Date(2026, 11, 28, hour, 0, 0, 0, time.UTC) }

// line returns a usage record. Each of its numbers is n.
func line(server, started, tenantName, uid string, hour, n int) string {
	return fmt.Sprintf(`{"cluster":"eu1","server":%q,"started":"2026-11-28T%s:00Z","uid":%q,"tenant":%q,"hour":%q,`+
		`"requests":%d,"denied":%[6]d,"limited":%[6]d,"watches":%[6]d,"seatMilliseconds":%[6]d}`+"\n",
		server, started, uid, tenantName, at(hour).Format(time.RFC3339), n)
}

func numbers(n int64) usage.Numbers {
	return usage.Numbers{
		Requests:         n,
		Denied:           n,
		Limited:          n,
		Watches:          n,
		SeatMilliseconds: n,
	}
}

// directory writes files and returns their directory.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if strings.HasSuffix(name, ".gz") {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			text = b.String()
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// records returns the report for records in files. The zero ID selects all tenants.
func records(t *testing.T, files map[string]string, id tenant.ID, since time.Duration) *usage.Report {
	t.Helper()
	r, err := usage.FromRecords(directory(t, files), id, now, since)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLatestRecordOfAKey checks that only the latest record of a key applies, regardless of the
// order of the files. Records with different keys are added.
func TestLatestRecordOfAKey(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"in order": {
			"usage-2026-11-28T01-10-00.000.jsonl.gz": line("a", "00:00", "acme", "u1", 1, 1) +
				line("a", "00:00", "acme", "u1", 1, 5),
			"usage.jsonl": line("a", "00:00", "acme", "u1", 1, 10) + // the same process
				line("a", "01:30", "acme", "u1", 1, 100) + // another process of the server in the same hour
				line("b", "00:00", "acme", "u1", 1, 1000) + line("b", "00:00", "acme", "u1", 2, 7), // another server
		},
		"replayed": {
			"a.jsonl": line("a", "00:00", "acme", "u1", 1, 10) + line("b", "00:00", "acme", "u1", 2, 7),
			"b.jsonl": line("a", "00:00", "acme", "u1", 1, 5) + line("a", "01:30", "acme", "u1", 1, 100) +
				line("b", "00:00", "acme", "u1", 1, 1000) + line("b", "00:00", "acme", "u1", 1, 1000),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := records(t, files, tenant.ID{}, 24*time.Hour)
			total, first := numbers(1117), numbers(1110)
			first.Watches = 1100 // the larger of the two processes, plus the other server
			total.Watches = 1100 // the busiest hour
			want := &usage.Report{
				Since: at(3).Add(-24 * time.Hour),
				Tenants: []*usage.Tenant{{
					Tenant: "acme",
					UID:    "u1",
					Total:  total,
					Hours:  []usage.Hour{{at(1), first}, {at(2), numbers(7)}},
				}},
				Total: total,
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(usage.Report{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRecordsOfSelectedTenants checks the selection by tenant and time. The usage of a recreated
// tenant is not added to that of its predecessor.
func TestRecordsOfSelectedTenants(t *testing.T) {
	files := map[string]string{"usage.jsonl": line("a", "00:00", "acme", "u1", 0, 1) +
		line("a", "00:00", "acme", "u2", 2, 2) +
		line("a", "00:00", "globex", "", 2, 30) + line("a", "00:00", "(none)", "", 1, 4) +
		line("a", "00:00", "(others)", "", 2, 5) + line("a", "00:00", "acme-2", "u3", 2, 6)}
	lastHours := []string{"globex  30", "acme-2 u3 6", "(others)  5", "(none)  4", "acme u2 2"}
	for name, c := range map[string]struct {
		id    tenant.ID
		since time.Duration
		want  []string
	}{
		"all":                         {tenant.ID{}, 24 * time.Hour, append(lastHours, "acme u1 1")},
		"since":                       {tenant.ID{}, 2 * time.Hour, lastHours},
		"tenant":                      {tenanttest.ID(t, "acme"), 24 * time.Hour, []string{"acme u2 2", "acme u1 1"}},
		"tenant and since":            {tenanttest.ID(t, "acme"), time.Hour, []string{"acme u2 2"}},
		"tenant without recent usage": {tenanttest.ID(t, "acme"), time.Minute, nil},
		"tenant without usage":        {tenanttest.ID(t, "initech"), 24 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := records(t, files, c.id, c.since)
			var got []string
			for _, u := range r.Tenants {
				got = append(got, fmt.Sprintf("%s %s %d", u.Tenant, u.UID, u.Total.Requests))
			}
			if diff := cmp.Diff(c.want, got); diff != "" || r.ProblemsTotal != 0 {
				t.Errorf("%v\n%s", r.Problems, diff)
			}
		})
	}
}

// TestInvalidRecords checks that each invalid line is a problem with its file and line number. The
// report must contain neither the text of the line nor a formula.
func TestInvalidRecords(t *testing.T) {
	validLine := line("a", "00:00", "acme", "u1", 2, 1)
	for invalidLine, want := range map[string]string{
		`{"tenant":`: "incomplete",
		"SECRET":     "incomplete",
		strings.Replace(validLine, `"acme"`, `"=cmd|SECRET"`, 1):                 "tenant must be the ID of a tenant",
		strings.Replace(validLine, `"acme"`, `"all"`, 1):                         "tenant must be the ID of a tenant",
		strings.Replace(validLine, `"acme"`, `"(SECRET)"`, 1):                    "tenant must be the ID of a tenant",
		strings.Replace(validLine, `"u1"`, `"+SECRET"`, 1):                       "uid must be the UID of a Tenant",
		strings.Replace(validLine, `"u1"`, `"u\u001b[2J"`, 1):                    "uid must be the UID of a Tenant",
		strings.Replace(validLine, `"requests":1`, `"requests":-1`, 1):           "numbers must not be negative",
		strings.Replace(validLine, `"requests":1`, `"requests":"SECRET"`, 1):     "requests has the wrong type",
		strings.Replace(validLine, `"requests":1`, `"requests":1e30`, 1):         "requests has the wrong type",
		strings.Replace(validLine, "T02:00:00Z", "T02:30:00Z", 1):                "hour must be the beginning of an hour",
		strings.Replace(validLine, `"hour"`, `"hours"`, 1):                       "hour must be the beginning of an hour",
		strings.Replace(validLine, "2026-11-28T00:00:00Z", "SECRET", 1):          "not a usage record",
		strings.Replace(validLine, `"server":"a"`, `"server":""`, 1):             "server is required",
		strings.Replace(validLine, `"eu1"`, `"`+strings.Repeat("S", 254)+`"`, 1): "at most 253 bytes",
		`{"x":"` + strings.Repeat("x", jsonlines.MaxLine) + `"}`:                 "longer than",
		`[` + strings.TrimSpace(validLine) + `]`:                                 "not a usage record",
	} {
		t.Run(want, func(t *testing.T) {
			if invalidLine == validLine {
				t.Fatalf("the line for %q is valid", want)
			}
			text := validLine + strings.TrimSpace(invalidLine) + "\n" + line("a", "00:00", "acme", "u1", 3, 1)
			dir := directory(t, map[string]string{"usage.jsonl": text})
			r, err := usage.FromRecords(dir, tenant.ID{}, now, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			text = strings.Join(r.Problems, "\n")
			if r.ProblemsTotal != 1 || !strings.HasPrefix(text, filepath.Join(dir, "usage.jsonl")+":2: ") ||
				!strings.Contains(text, want) || strings.Contains(text, "SECRET") {
				t.Errorf("%.80s: %d problems: %s, want %s", invalidLine, r.ProblemsTotal, text, want)
			}
			if len(r.Tenants) != 1 || r.Total.Requests != 2 {
				t.Errorf("%.80s: the valid lines have the total %v", invalidLine, r.Total)
			}
		})
	}
	r := records(t, map[string]string{"usage.jsonl": strings.Repeat("x\n", 1000)}, tenant.ID{}, time.Hour)
	if r.ProblemsTotal != 1000 || len(r.Problems) != usage.MaxProblems {
		t.Errorf("%d of %d problems", len(r.Problems), r.ProblemsTotal)
	}
}

// TestRecordsThatCannotBeRead checks that a directory without records is an error. A file that
// cannot be read to its end is a problem of the report, which still contains the records of the
// other files.
func TestRecordsThatCannotBeRead(t *testing.T) {
	dir := directory(t, map[string]string{"usage.json": "{}"})
	if r, err := usage.FromRecords(dir, tenant.ID{}, now, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "no such *.jsonl") {
		t.Errorf("%v, %v", r, err)
	}
	dir = directory(t, map[string]string{
		"a.jsonl.gz": line("a", "00:00", "acme", "u1", 3, 1) + strings.Repeat("x", 100),
		"b.jsonl":    line("b", "00:00", "acme", "u1", 3, 20),
	})
	cut, broken := filepath.Join(dir, "a.jsonl.gz"), filepath.Join(dir, "c.jsonl.gz")
	data, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{cut: data[:len(data)-9], broken: []byte("no archive")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := usage.FromRecords(dir, tenant.ID{}, now, time.Hour)
	if err != nil || r.Total.Requests < 20 {
		t.Fatalf("%v, %+v", err, r)
	}
	text := strings.Join(r.Problems, "\n")
	for _, name := range []string{cut, broken} {
		if !strings.Contains(text, name) {
			t.Errorf("no problem names %s: %s", name, text)
		}
	}
}

// TestRenamedFile checks that a report contains the records of a file that a server renames during
// the read.
func TestRenamedFile(t *testing.T) {
	dir := directory(t, map[string]string{
		"a.jsonl": line("a", "00:00", "acme", "u1", 3, 1),
		"b.jsonl": line("b", "00:00", "acme", "u1", 3, 20),
	})
	rename := func() {
		if err := os.Rename(filepath.Join(dir, "b.jsonl"), filepath.Join(dir, "b-2026.jsonl")); err != nil {
			t.Error(err)
		}
	}
	r, err := usage.FromRecordsAfter(dir, now, rename)
	if err != nil || r.Total.Requests != 21 || r.ProblemsTotal > 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestFutureHours checks that a report omits an hour that is later than the accepted clock skew.
func TestFutureHours(t *testing.T) {
	r := records(t, map[string]string{"usage.jsonl": line("a", "00:00", "acme", "u1", 4, 1) +
		line("a", "00:00", "acme", "u1", 5, 20)}, tenant.ID{}, time.Hour)
	if r.Total.Requests != 1 || r.ProblemsTotal > 0 {
		t.Errorf("%+v", r)
	}
}

// TestManyKeys checks that the number of keys is limited, and that repeated records with the same
// key are counted once.
func TestManyKeys(t *testing.T) {
	var text strings.Builder
	for range 100 {
		for server := range 10 {
			text.WriteString(line(fmt.Sprint("s", server), "00:00", "acme", "u1", 3, 1))
		}
	}
	dir := directory(t, map[string]string{"usage.jsonl": text.String()})
	r, err := usage.FromRecordsWithLimit(dir, now, 10)
	if err != nil || r.Total.Requests != 10 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := usage.FromRecordsWithLimit(dir, now, 9); err == nil || !strings.Contains(err.Error(), "name a TENANT") {
		t.Errorf("%v", err)
	}
}

// TestLargeNumbers checks that sums do not overflow.
func TestLargeNumbers(t *testing.T) {
	largest := strings.Replace(line("a", "00:00", "acme", "u1", 3, 1), `"requests":1`,
		fmt.Sprintf(`"requests":%d`, math.MaxInt64), 1)
	files := map[string]string{"usage.jsonl": largest + line("b", "00:00", "acme", "u1", 3, 1)}
	r := records(t, files, tenant.ID{}, time.Hour)
	if r.Total.Requests != math.MaxInt64 || r.Total.Denied != 2 {
		t.Errorf("%v, %v", r.Total, r.Problems)
	}
}

// object returns a TenantUsage with one server for each of the given numbers, all in one hour.
func object(name, tenantName, uid string, hour int, servers ...int64) *v1alpha1.TenantUsage {
	u := &v1alpha1.TenantUsage{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindTenantUsage},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Tenant:     tenantName,
		UID:        uid,
	}
	for i, n := range servers {
		u.Servers = append(u.Servers, v1alpha1.ServerUsage{
			Name: fmt.Sprint("s", i),
			Hours: []v1alpha1.HourUsage{{
				Hour:             metav1.NewTime(at(hour)),
				Requests:         n,
				Denied:           n,
				Limited:          n,
				Watches:          n,
				SeatMilliseconds: n,
			}},
		})
	}
	return u
}

// cluster returns a client for a fake cluster that contains objects.
func cluster(t *testing.T, objects ...runtime.Object) *fake.FakeDynamicClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewSimpleDynamicClient(scheme, objects...)
}

// TestOfTenant checks that the numbers of all servers of a TenantUsage are added for each hour.
func TestOfTenant(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	u := object("acme", "acme", "u1", 2, 1, 20)
	u.Servers[0].Hours = append(u.Servers[0].Hours, object("", "", "", 3, 5).Servers[0].Hours[0])
	u.Stored = &v1alpha1.StoredUsage{Objects: 7, Bytes: 100}
	for name, c := range map[string]struct {
		since time.Duration
		want  []usage.Hour
	}{
		"all hours":     {48 * time.Hour, []usage.Hour{{at(2), numbers(21)}, {at(3), numbers(5)}}},
		"the last hour": {time.Minute, []usage.Hour{{at(3), numbers(5)}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := usage.OfTenant(t.Context(), cluster(t, u, object("globex", "globex", "", 2, 500)), acme, now, c.since)
			if err != nil || len(r.Tenants) != 1 {
				t.Fatalf("%v, %v", r, err)
			}
			got := r.Tenants[0]
			if diff := cmp.Diff(c.want, got.Hours); diff != "" || got.Stored.Objects != 7 || r.Total != got.Total {
				t.Errorf("%v: %s", got, diff)
			}
		})
	}
}

// TestOfAPredecessor checks that the usage of a deleted Tenant is not reported for a new Tenant of
// the same name.
func TestOfAPredecessor(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	for uid, want := range map[string]int{"old": 0, "new": 1, "": 0} {
		t.Run(uid, func(t *testing.T) {
			current := &v1alpha1.Tenant{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Tenant"},
				ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: "new"},
			}
			d := cluster(t, object("acme", "acme", uid, 2, 1), current)
			r, err := usage.OfTenant(t.Context(), d, acme, now, 24*time.Hour)
			if err != nil || len(r.Tenants) != want || r.ProblemsTotal != 0 {
				t.Errorf("UID %q: %v, %v", uid, r, err)
			}
			d.PrependReactor("get", v1alpha1.ResourceTenants, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
			})
			if r, err := usage.OfTenant(t.Context(), d, acme, now, 24*time.Hour); err == nil {
				t.Errorf("UID %q, unreadable Tenant: %v", uid, r)
			}
		})
	}
}

// TestAll checks that All returns the usage of all tenants, sorted by their number of requests.
func TestAll(t *testing.T) {
	d := cluster(t, object("acme", "acme", "u1", 2, 1), object("globex", "globex", "", 2, 30),
		object("initech", "initech", "u2", 3, 4))
	r, err := usage.All(t.Context(), d, now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range r.Tenants {
		names = append(names, u.Tenant)
	}
	want := numbers(35)
	want.Watches = 31 // at 2 o'clock
	if diff := cmp.Diff([]string{"globex", "initech", "acme"}, names); diff != "" || r.Total != want {
		t.Errorf("%v: %s", r.Total, diff)
	}
	r, err = usage.All(t.Context(), cluster(t), now, time.Hour)
	if err != nil || r.Tenants == nil || len(r.Tenants) != 0 || r.Total != (usage.Numbers{}) {
		t.Errorf("no objects: %v, %v", r, err)
	}
}

// TestForgedObjects checks that an object is reported as a problem if its tenant does not match
// its name, or if it has an invalid value.
func TestForgedObjects(t *testing.T) {
	unknown := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(),
		"kind":       v1alpha1.KindTenantUsage,
		"metadata":   map[string]any{"name": "acme"},
		"tenant":     "acme",
		"servers":    "many",
	}}
	for want, forged := range map[string]runtime.Object{
		"the field tenant is of another tenant": object("acme", "globex", "", 2, 1),
		"TenantUsage acme: the field tenant":    object("acme", "=1+1", "", 2, 1),
		"the field uid is not a UID":            object("acme", "acme", "=1+1", 2, 1),
		"a number of server s0 is negative":     object("acme", "acme", "u1", 2, -1),
		"does not decode":                       unknown,
	} {
		t.Run(want, func(t *testing.T) {
			d := cluster(t, forged)
			all, err := usage.All(t.Context(), d, now, 24*time.Hour)
			if err != nil || all.ProblemsTotal != 1 || !strings.Contains(all.Problems[0], want) || all.Total.Requests != 0 {
				t.Errorf("%v, %v", all, err)
			}
			one, err := usage.OfTenant(t.Context(), d, tenanttest.ID(t, "acme"), now, 24*time.Hour)
			if err != nil || one.ProblemsTotal != 1 || !strings.Contains(one.Problems[0], want) || one.Total.Requests != 0 {
				t.Errorf("%v, %v", one, err)
			}
		})
	}
}

// TestRefusedReads checks the advice that is added to errors from the server.
func TestRefusedReads(t *testing.T) {
	resource := v1alpha1.Resource(v1alpha1.ResourceTenantUsages)
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		err       error
		of, all   string
		forbidden bool
	}{
		"forbidden": {
			err:       apierrors.NewForbidden(resource, "acme", nil),
			of:        "you may not read the usage of tenant acme: callers of a tenant read the usage of their own tenant only",
			all:       "you may not list the usage of all tenants: name a TENANT",
			forbidden: true,
		},
		"no such kind": {
			err: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true),
			of:  "the server does not record usage: upgrade",
			all: "the server does not record usage: upgrade",
		},
		"no such object": {err: apierrors.NewNotFound(resource, "acme"), all: "the server does not record usage"},
		"failure": {
			err: apierrors.NewInternalError(context.DeadlineExceeded),
			of:  "Internal error",
			all: "Internal error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := cluster(t)
			d.PrependReactor("*", v1alpha1.ResourceTenantUsages, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, c.err
			})
			r, err := usage.OfTenant(t.Context(), d, acme, now, time.Hour)
			if c.of == "" && (err != nil || len(r.Tenants) != 0) ||
				c.of != "" && (err == nil || !strings.HasPrefix(err.Error(), c.of)) {
				t.Errorf("one tenant: %v, %v", r, err)
			}
			if apierrors.IsForbidden(err) != c.forbidden {
				t.Errorf("%v does not wrap its cause", err)
			}
			if r, err := usage.All(t.Context(), d, now, time.Hour); err == nil || !strings.HasPrefix(err.Error(), c.all) {
				t.Errorf("all tenants: %v, %v", r, err)
			}
		})
	}
}

// TestWriteCSV checks that each tenant and hour has one row.
func TestWriteCSV(t *testing.T) {
	r := records(t, map[string]string{"usage.jsonl": line("a", "00:00", "acme", "u1", 2, 1) +
		line("a", "00:00", "acme", "u1", 3, 2) + line("a", "00:00", "(none)", "", 3, 4)}, tenant.ID{}, 24*time.Hour)
	var b bytes.Buffer
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	want := "tenant,uid,hour,requests,denied,limited,watches,seatMilliseconds\n" +
		"(none),,2026-11-28T03:00:00Z,4,4,4,4,4\n" +
		"acme,u1,2026-11-28T02:00:00Z,1,1,1,1,1\nacme,u1,2026-11-28T03:00:00Z,2,2,2,2,2\n"
	if b.String() != want {
		t.Errorf("%s", &b)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if strings.ContainsAny(cell[:min(1, len(cell))], "=+-@\t\r") {
				t.Errorf("%q is a formula", cell)
			}
		}
	}
	b.Reset()
	if err := (&usage.Report{}).WriteCSV(&b); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("empty: %q, %v", &b, err)
	}
	if err := r.WriteCSV(fullDisk{}); err == nil {
		t.Error("no error for a full disk")
	}
}

// fullDisk is a writer that always returns an error.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestWriteJSON checks that the JSON contains the report, an API version and a kind.
func TestWriteJSON(t *testing.T) {
	for name, text := range map[string]string{
		"none":    line("a", "00:00", "acme", "u1", 2, 1) + "x\n",
		"several": line("a", "00:00", "acme", "u1", 2, 1) + line("a", "00:00", "globex", "", 3, 2),
	} {
		t.Run(name, func(t *testing.T) {
			id := tenant.ID{}
			if name == "none" {
				id = tenanttest.ID(t, "initech")
			}
			r := records(t, map[string]string{"usage.jsonl": text}, id, 24*time.Hour)
			var b bytes.Buffer
			if err := r.WriteJSON(&b, "example.com/v1", "Usage"); err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			if err := json.Unmarshal(b.Bytes(), &got); err != nil {
				t.Fatalf("%v\n%s", err, &b)
			}
			whole, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(whole, &want); err != nil {
				t.Fatal(err)
			}
			want["apiVersion"], want["kind"] = "example.com/v1", "Usage"
			if diff := cmp.Diff(want, got); diff != "" || got["tenants"] == nil {
				t.Errorf("%s", diff)
			}
			if err := r.WriteJSON(fullDisk{}, "", ""); err == nil {
				t.Error("no error for a full disk")
			}
		})
	}
}
