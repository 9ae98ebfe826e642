// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestAuditNamesTheCluster checks that each event contains the name of its request's cluster,
// even if the request was rejected, and never a name that is not configured. If an earlier
// process left an incomplete line in the log, the events begin on a new line. The client's
// address comes from the connection, not from a header.
func TestAuditNamesTheCluster(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata } ]\n")
	const torn = `{"kind":"Ev`
	w.write("audit.log", torn)
	w.write("tenancy.yaml", strings.Replace(configHeader, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, logPath: audit.log }\n", 1)+clusterEntry("eu1", ""))
	waittest.Until(t, func() error {
		w.get("alice-token", "/clusters/eu1"+podsPath, "X-Forwarded-For", "203.0.113.66", "X-Real-Ip", "203.0.113.67")
		w.get("alice-token", "/clusters/eu1/api/v1/namespaces/globex--shop/secrets")
		w.get("nobody", "/clusters/eu1"+podsPath)
		w.get("alice-token", "/clusters/made-up"+podsPath)
		text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
		if err != nil {
			return err
		}
		for _, want := range []string{`"code":200`, `"code":403`, `"code":401`} {
			if !strings.Contains(string(text), want) {
				return errors.New(string(text))
			}
		}
		return nil
	})
	text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "203.0.113.") || !strings.Contains(string(text), `"sourceIPs":["127.0.0.1"]`) {
		t.Errorf("the address does not come from the connection: %s", text)
	}
	counts := map[string]int{}
	events, found := strings.CutPrefix(string(text), torn+"\n")
	if !found {
		t.Errorf("the incomplete line was not ended: %s", text)
	}
	for line := range strings.Lines(events) {
		switch {
		case strings.Contains(line, `"gateway.kubetenant.dev/cluster":"eu1"`):
			counts["eu1"]++
		case strings.Contains(line, `"gateway.kubetenant.dev/cluster":"(none)"`):
			counts["none"]++
		default:
			t.Errorf("the event contains no cluster: %s", line)
		}
	}
	if counts["eu1"] < 3 || counts["none"] < 1 || strings.Contains(string(text), "made-up") {
		t.Errorf("%v in %s", counts, text)
	}
}

// enableAudit configures an audit log for the cluster of [newRootFixture]. It does not change the
// entry of the cluster, because a changed entry ends active requests.
func (w *fixture) enableAudit(settings string) {
	w.t.Helper()
	w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata } ]\n")
	w.write("tenancy.yaml", strings.Replace(configHeader, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, "+settings+" }\n", 1)+rootClusterEntry())
}

// logLines returns the lines of a log, or none if the log does not exist.
func (w *fixture) logLines(name string) []string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// waitForLog waits until requests are recorded in a log.
func (w *fixture) waitForLog(name string) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		w.get("alice-token", podsPath)
		if len(w.logLines(name)) == 0 {
			return errors.New("nothing is recorded")
		}
		return nil
	})
}

// TestUnauthenticatedAuditEventsAreBounded checks that a caller without a credential cannot fill
// the audit log with long requests or with many requests. Other callers' requests are still
// recorded.
func TestUnauthenticatedAuditEventsAreBounded(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	w.enableAudit("logPath: audit.log")
	w.waitForLog("audit.log")
	const maxEvent = 5 << 10
	long := strings.Repeat("+%22<", 12_000)
	lines := map[string]string{
		"a path":            "GET /" + long + " HTTP/1.1\r\n",
		"a query":           "GET /api?x=" + long + " HTTP/1.1\r\n",
		"a namespace":       "GET /api/v1/namespaces/" + long + "/pods HTTP/1.1\r\n",
		"a name":            "GET " + podsPath + "/" + long + " HTTP/1.1\r\n",
		"a resource":        "GET /apis/" + long + "/v1/" + long + " HTTP/1.1\r\n",
		"a subresource":     "GET " + podsPath + "/p/" + long + " HTTP/1.1\r\n",
		"a timeout":         "GET /api?timeout=" + strings.Repeat("x", 60_000) + " HTTP/1.1\r\n",
		"a selector":        "GET " + podsPath + "?watch=1&fieldSelector=metadata.name%3D" + long + " HTTP/1.1\r\n",
		"a method":          strings.Repeat("X", 60_000) + " /healthz HTTP/1.1\r\n",
		"a cluster's name":  "GET /clusters/" + strings.Repeat("x", 60_000) + "/api HTTP/1.1\r\n",
		"a cluster's path":  "GET /clusters/eu1/" + long + " HTTP/1.1\r\n",
		"no cluster's path": "GET /clusters/us1/" + long + " HTTP/1.1\r\n",
		"a whole URL":       "GET https://" + strings.Repeat("x", 60_000) + "/" + long + " HTTP/1.1\r\n",
		"a client's name":   "GET /api HTTP/1.1\r\nUser-Agent: " + long + "\r\n",
		"an audit ID":       "GET /api HTTP/1.1\r\nAudit-ID: " + long + "\r\n",
		"an address":        "GET /api HTTP/1.1\r\nX-Forwarded-For: " + long + "\r\n",
		"a token":           "GET /api HTTP/1.1\r\nAuthorization: Bearer " + strings.Repeat("x", 60_000) + "\r\n",
	}
	start := time.Now()
	for what, line := range lines {
		t.Run(what, func(t *testing.T) {
			before := len(w.logLines("audit.log"))
			_, _, resp := w.raw(strings.Replace(line, "\r\n", "\r\nHost: x\r\n", 1) + "\r\n")
			if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusBadRequest {
				t.Error(resp.Status)
			}
			for _, event := range w.logLines("audit.log")[before:] {
				if len(event) > maxEvent || !json.Valid([]byte(event)) {
					t.Errorf("an event of %d bytes: %.500s", len(event), event)
				}
			}
		})
	}
	events := func(part string) (found []string) {
		for _, event := range w.logLines("audit.log") {
			if strings.Contains(event, part) {
				found = append(found, event)
			}
		}
		return found
	}
	// The limits for each address. All requests of this test come from one address.
	const flood, burst, perSecond = 300, 50, 1
	for range flood {
		w.get("nobody", podsPath)
	}
	most := burst + 1 + int(time.Since(start)/time.Second)*perSecond
	if n := len(events(`"code":401`)); n < burst/2 || n > most {
		t.Errorf("%d events of %d requests, want at most %d", n, flood, most)
	}
	before := len(events(`"username":"alice"`))
	w.get("alice-token", podsPath)
	if n := len(events(`"username":"alice"`)) - before; n != 2 {
		t.Errorf("%d events of an authenticated request, want 2", n)
	}
}

// TestAuditRecordsRequestTarget checks that the audit log contains the target of a request that was
// sent with a whole URL. Targets with schemes other than http and https are rejected.
func TestAuditRecordsRequestTarget(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	w.enableAudit("logPath: audit.log")
	w.waitForLog("audit.log")
	waittest.Until(t, func() error { // a slow machine may still be syncing the cluster's caches
		if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	c.takeRequests()
	for target, want := range map[string]int{
		"https://evil.example:1" + podsPath: http.StatusOK,
		"http://evil.example" + podsPath:    http.StatusOK,
		"HTTPS://evil.example" + podsPath:   http.StatusOK,
		"javascript:" + podsPath:            http.StatusBadRequest,
		"ftp://evil.example" + podsPath:     http.StatusBadRequest,
		"file://" + podsPath:                http.StatusBadRequest,
	} {
		t.Run(target, func(t *testing.T) {
			before := len(w.logLines("audit.log"))
			_, _, resp := w.raw("GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n\r\n")
			if resp.StatusCode != want {
				t.Errorf("%s, want %d", resp.Status, want)
			}
			if want != http.StatusOK {
				return
			}
			w.get("alice-token", podsPath)
			events := w.logLines("audit.log")[before:]
			if len(events) != 4 || !strings.Contains(events[0], `"gateway.kubetenant.dev/request-target":"`+target+`"`) ||
				strings.Contains(events[2], "request-target") {
				t.Errorf("%v", events)
			}
		})
	}
}

// TestAuditLogIsReopened checks that the log may be renamed or removed at any time. The next
// request is recorded in a new file at the path, or rejected if the file cannot be created.
func TestAuditLogIsReopened(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	logs := filepath.Join(w.dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	w.enableAudit("logPath: logs/audit.log")
	w.waitForLog("logs/audit.log")
	log := filepath.Join(logs, "audit.log")
	for what, change := range map[string]func() error{
		"renamed": func() error { return os.Rename(log, log+".1") },
		"removed": func() error { return os.Remove(log) },
	} {
		t.Run(what, func(t *testing.T) {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if code, text := w.get("alice-token", podsPath); code != http.StatusOK {
				t.Errorf("%d, %s", code, text)
			}
			if events := w.logLines("logs/audit.log"); len(events) != 2 {
				t.Errorf("%v, want two events", events)
			}
		})
	}
	if err := os.Rename(logs, logs+".old"); err != nil {
		t.Fatal(err)
	}
	c.takeRequests()
	if code, text := w.get("alice-token", podsPath); code != http.StatusInternalServerError {
		t.Errorf("without a log: %d, %s", code, text)
	}
	if received := c.takeRequests(); len(received) != 0 {
		t.Errorf("without a log, %d requests were forwarded", len(received))
	}
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	if code, text := w.get("alice-token", podsPath); code != http.StatusOK || len(w.logLines("logs/audit.log")) != 2 {
		t.Errorf("with a log again: %d, %s, %v", code, text, w.logLines("logs/audit.log"))
	}
}

// TestAuditOnFailure checks that the requests of authenticated callers are rejected while events
// cannot be written, unless onFailure is Ignore.
func TestAuditOnFailure(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	w.enableAudit("logPath: /dev/full")
	w.waitForStatus(http.StatusInternalServerError, "alice-token", podsPath)
	c.takeRequests()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPatch} {
		if code, text := w.do("alice-token", method, podsPath, ""); code != http.StatusInternalServerError {
			t.Errorf("%s: %d, %s", method, code, text)
		}
	}
	if code, text := w.get("alice-token", podsPath+"?watch=1"); code != http.StatusInternalServerError {
		t.Errorf("a watch: %d, %s", code, text)
	}
	if code, text := w.get("nobody", podsPath); code != http.StatusUnauthorized {
		t.Errorf("an unknown caller: %d, %s", code, text)
	}
	if received := c.takeRequests(); len(received) != 0 {
		t.Errorf("%d requests were forwarded", len(received))
	}
	w.enableAudit("logPath: /dev/full, onFailure: Ignore")
	w.waitForStatus(http.StatusOK, "alice-token", podsPath)
}

// TestAuditPolicyIsReloaded checks that a changed policy file applies, even if nothing else
// changes.
func TestAuditPolicyIsReloaded(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": c})
	policy := func(level string) {
		w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: "+level+" } ]\n")
	}
	policy("None")
	w.write("tenancy.yaml", strings.Replace(configHeader, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, logPath: audit.log }\n", 1)+clusterEntry("eu1", ""))
	recorded := func() bool {
		w.get("alice-token", "/clusters/eu1"+podsPath)
		text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
		return err == nil && len(text) > 0
	}
	waittest.Until(t, func() error {
		if _, err := os.Stat(filepath.Join(w.dir, "audit.log")); err != nil {
			return err
		}
		return nil
	})
	if recorded() {
		t.Fatal("a request is recorded at level None")
	}
	policy("Metadata")
	waittest.Until(t, func() error {
		if !recorded() {
			return errors.New("nothing is recorded")
		}
		return nil
	})
}

// TestAuditBudgetOfATenant checks that a tenant's callers cannot push other tenants' events out of
// the log. The gateway cuts the texts of their events, and rejects requests above the tenant's
// budget. When the gateway closes, it writes an event about the omitted events of the tenant. The
// test does not run in parallel, because the budget grows with time.
func TestAuditBudgetOfATenant(t *testing.T) {
	w, c := newSharedFixture(t)
	w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: None, "+
		"nonResourceURLs: [/version] }, { level: Metadata } ]\n")
	w.write("tenancy.yaml", strings.Replace(configHeader, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, maxSizeMegabytes: 1, maxBackups: 2, logPath: audit.log }\n", 1)+
		clusterEntry("eu1", ", root: true, serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }"))
	w.waitForLog("audit.log")
	const others = "/api/v1/namespaces/globex--shop/pods"
	if code, text := w.get("bob-token", others); code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	long, began := strings.Repeat("<", 20_000), time.Now()
	account := c.tokenBetween(t, "system:serviceaccount:acme--web:robot", time.Now(), time.Now().Add(time.Hour))
	for i := range 300 {
		w.get([]string{"alice-token", account}[i%2], podsPath+"?x="+long, "User-Agent", long)
	}
	all := strings.Join(w.logLines("audit.log"), "")
	rotated, _ := filepath.Glob(filepath.Join(w.dir, "audit-*.log"))
	for _, path := range rotated {
		all += strings.Join(w.logLines(filepath.Base(path)), "")
	}
	// On a slow machine, the budget of the tenant grows in the meantime.
	allowed := 1<<20 + int(time.Since(began).Seconds())*64<<10 + 100<<10
	if len(all) > allowed {
		t.Errorf("the log has %d bytes, want at most %d", len(all), allowed)
	}
	if allowed < 2<<20 && !strings.Contains(all, `"bob"`) {
		t.Errorf("the event of another tenant was removed, %d files are left", len(rotated)+1)
	}
	c.takeRequests()
	sent, handled := 0, 0
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPatch} {
		for _, token := range []string{"alice-token", account} {
			for range 20 {
				sent++
				switch code, text := w.do(token, method, podsPath+"?x="+long, ""); code {
				case http.StatusOK:
					handled++
				case http.StatusTooManyRequests:
				default:
					t.Errorf("%s: %d: %s", method, code, text)
				}
			}
		}
	}
	if received := len(c.takeRequests()); received != handled || handled == sent {
		t.Errorf("%d of %d requests were handled, %d reached the cluster", handled, sent, received)
	}
	if code, text := w.get("alice-token", "/version"); code != http.StatusOK {
		t.Errorf("a request that is not recorded: %d: %s", code, text)
	}
	for _, other := range []string{"bob-token", "root-token"} {
		if code, text := w.get(other, others); code != http.StatusOK {
			t.Errorf("%s: %d: %s", other, code, text)
		}
	}
	w.gateway.Close()
	events := w.logLines("audit.log")
	want := `"gateway.kubetenant.dev/omitted-events-tenant":"acme"`
	if last := events[len(events)-1]; !strings.Contains(last, want) {
		t.Errorf("the last event does not state what was omitted: %s", last)
	}
}
