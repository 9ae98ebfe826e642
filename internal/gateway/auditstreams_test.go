// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const auditPath = "/kubetenant/audit"

// newAuditFixture returns a gateway that writes audit streams, in front of two clusters. The
// clusters allow only the callers in readers to read the streams.
func newAuditFixture(t *testing.T, readers ...string) (*fixture, *fakeCluster) {
	t.Helper()
	clusters := map[string]*fakeCluster{}
	for _, name := range []string{"eu1", "us1"} {
		c := newFakeCluster(t, defaultNamespaces())
		c.update(func() {
			c.allow = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
				if path := spec.NonResourceAttributes; path != nil {
					return path.Path == auditPath && path.Verb == "get" && slices.Contains(readers, spec.User)
				}
				return spec.User == "root" // root may impersonate
			}
		})
		clusters[name] = c
	}
	return newFixture(
		t,
		clusterEntry("eu1", "")+clusterEntry("us1", "")+"audit: { directory: streams }\n",
		clusters,
	), clusters["eu1"]
}

// auditRecords waits until a stream has the wanted number of records, and returns them.
func (w *fixture) auditRecords(token, path string, want int) (all []tenantaudit.Record) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		code, text := w.get(token, path)
		if code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		all = nil
		for line := range strings.Lines(text) {
			r := tenantaudit.Record{}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return err
			}
			if r.Path != auditPath && r.Name != "" { // not the reads of the stream, and not the requests of newFixture
				all = append(all, r)
			}
		}
		if len(all) != want {
			return fmt.Errorf("%d records, want %d: %s", len(all), want, text)
		}
		return nil
	})
	return all
}

func TestAuditStreams(t *testing.T) {
	t.Parallel()
	w, _ := newAuditFixture(t, "alice", "bob", "root")
	const pod = "/api/v1/namespaces/acme--web/pods/p"
	for _, request := range []struct {
		token, method, path string
		headers             []string
	}{
		{"alice-token", "GET", "/clusters/eu1" + pod, nil},
		{"bob-token", "DELETE", "/clusters/eu1" + pod, nil}, // rejected
		{"root-token", "DELETE", "/clusters/eu1" + pod + "?secret=1", nil},
		{"root-token", "GET", "/clusters/eu1" + pod, nil},
		{"root-token", "GET", "/clusters/eu1" + pod, []string{
			"Impersonate-User", "carol", "Impersonate-Extra-Kubetenant.dev%2ftenant", "acme",
		}},
		{"nobody", "DELETE", "/clusters/eu1" + pod, nil},
		{"alice-token", "GET", "/clusters/us1" + pod, nil},
	} {
		w.do(request.token, request.method, request.path, "", request.headers...)
	}
	acme := w.auditRecords("alice-token", "/clusters/eu1"+auditPath, 3)
	if r := acme[0]; r.User != "alice" || r.Tenant != "acme" || r.Cluster != "eu1" || r.Source != "tokens" {
		t.Errorf("the caller's own request is %+v", r)
	}
	if r := acme[1]; r.User != "" || r.Tenant != "system" || r.Verb != "delete" || r.Namespace != "acme--web" {
		t.Errorf("the write of the system tenant is %+v", r)
	}
	if r := acme[2]; r.User != "carol" || r.ImpersonatedBy != "system" {
		t.Errorf("the impersonated request is %+v", r)
	}
	if r := w.auditRecords("alice-token", "/clusters/us1"+auditPath, 1); r[0].Cluster != "us1" {
		t.Errorf("the record of the other cluster is %+v", r)
	}
	globex := w.auditRecords("bob-token", "/clusters/eu1"+auditPath, 1)
	if r := globex[0]; r.User != "bob" || r.Code != http.StatusForbidden {
		t.Errorf("the refused request is %+v", r)
	}
	w.auditRecords("alice-token", "/clusters/eu1"+auditPath+"?tenant=acme&denied=true", 0)
	w.auditRecords("root-token", "/clusters/eu1"+auditPath+"?tenant=globex", 1)
	counts := map[string]int{}
	for _, r := range w.auditRecords("root-token", "/clusters/eu1"+auditPath, 6) {
		counts[r.Tenant]++
	}
	if want := map[string]int{
		"acme":   2,
		"globex": 1,
		"system": 2,
		"(none)": 1,
	}; !maps.Equal(counts, want) {
		t.Errorf("the system's stream has %v, want %v", counts, want)
	}
	for _, query := range []string{"?tenant=globex", "?tenant=system", "?tenant=nobody"} {
		if code, text := w.get("alice-token", "/clusters/eu1"+auditPath+query); code != http.StatusForbidden {
			t.Errorf("%s: %d: %s", query, code, text)
		}
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "streams", "*.jsonl"))
	if err != nil || len(files) < 3 {
		t.Errorf("the files are %q (%v)", files, err)
	}
	for _, name := range []string{"eu1+id-acme", "us1+id-acme", "eu1+id-globex", "eu1+system", "us1+system"} {
		if !slices.Contains(files, filepath.Join(w.dir, "streams", name+".jsonl")) {
			t.Errorf("%s has no file: %q", name, files)
		}
	}
	for _, name := range files {
		if !strings.Contains(name, "+") {
			t.Errorf("the file %s does not name a cluster", name)
		}
		text, err := os.ReadFile(name)
		if err != nil || strings.Contains(string(text), "secret") || strings.Contains(string(text), "127.0.0.1") {
			t.Errorf("%s has %s (%v)", name, text, err)
		}
	}
}

// TestAuditStreamsAreAuthorized checks that the cluster decides which callers may read a stream.
func TestAuditStreamsAreAuthorized(t *testing.T) {
	t.Parallel()
	w, c := newAuditFixture(t, "alice")
	for token, want := range map[string]int{
		"alice-token": 200,
		"bob-token":   403,
		"root-token":  403,
		"nobody":      401,
	} {
		t.Run(token, func(t *testing.T) {
			if code, text := w.get(token, "/clusters/eu1"+auditPath); code != want {
				t.Errorf("%d, want %d: %s", code, want, text)
			}
		})
	}
	if code, _ := w.get("alice-token", "/clusters/made-up"+auditPath); code != http.StatusForbidden {
		t.Errorf("an unknown cluster: %d", code)
	}
	for _, r := range c.takeRequests() {
		if r.URL.Path == auditPath {
			t.Error("a request for a stream was sent to the cluster")
		}
	}
}

// TestAuditStreamsAndLog checks that the log contains only the events that its own policy selects.
func TestAuditStreamsAndLog(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "audit.yaml")
	const text = "apiVersion: audit.k8s.io/v1\nkind: Policy\n" +
		"rules: [ { level: None, users: [alice] }, { level: Metadata, omitStages: [RequestReceived] } ]\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	both := "  audit: { policyFile: " + rules + ", logPath: audit.log }\naudit: { directory: streams }\n"
	w := newFixture(
		t,
		clusterEntry("eu1", "")+both,
		map[string]*fakeCluster{"eu1": newFakeCluster(t, defaultNamespaces())},
	)
	w.get("alice-token", "/clusters/eu1"+podsPath)
	w.get("bob-token", "/clusters/eu1"+podsPath)
	log, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), `"alice"`) || strings.Contains(string(log), "RequestReceived") ||
		!strings.Contains(string(log), `"bob"`) {
		t.Errorf("the log has %s", log)
	}
}
