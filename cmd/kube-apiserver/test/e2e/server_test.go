// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestOneServer checks requests of tenants and of an operator to one server with kubetenant
// compiled in.
func TestOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.log")
	const canary = "CANARY-token"
	writeFile(t, filepath.Join(dir, "tokens.csv"), canary+",alice,u1,dev,,acme\n")
	writeFile(t, filepath.Join(dir, "passwords.csv"), "CANARY-password,admin,u2,,acme\n")
	s := newServer(t, dir, append([]string{"--", "--v=4"}, auditFlags(t, dir, auditPolicy)...)...)
	s.prepare(t)
	t.Run("namespaces are filtered", func(t *testing.T) { namespacesAreFiltered(t, s) })
	t.Run("a namespace from a file", func(t *testing.T) { namespaceIsApplied(t, s) })
	t.Run("reviews", func(t *testing.T) { reviews(t, s, canary) })
	t.Run("self reviews agree", func(t *testing.T) { selfReviewsAgree(t, s) })
	t.Run("audit", func(t *testing.T) { auditHasDecisions(t, s, audit) })
	t.Run("reload", func(t *testing.T) { filesAreReloaded(t, s) })
	t.Run("reviews are delegated", func(t *testing.T) {
		delegateReviews(t, s)
		reviewsAreDelegated(t, s)
	})
	t.Run("fair use", func(t *testing.T) { fairUseIsEnforced(t, s, fairuse.Limits{}) })
	t.Run("audit streams", func(t *testing.T) { auditStreamsAreIsolated(t, s) })
	t.Run("usage", func(t *testing.T) { usageIsIsolated(t, s) })
	t.Run("no secret is logged", func(t *testing.T) { noSecretIsLogged(t, s, audit) })
}

// namespacesAreFiltered checks that lists and watches of namespaces return only the tenant's own
// namespaces.
func namespacesAreFiltered(t *testing.T, s *server) {
	acme := s.client(t, "acme")
	if out, err := s.kubectl(t, "acme", "get", "ns", "-o", "name"); err != nil ||
		strings.TrimSpace(out) != "namespace/acme--web" {
		t.Errorf("get ns = %q, %v", out, err)
	}
	if out, err := s.kubectl(t, "acme", "get", "ns", "globex--shop"); err == nil {
		t.Errorf("get of another tenant's namespace = %q", out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := acme.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.mustKubectl(t, "globex", "create", "ns", "globex--secret")
	s.mustKubectl(t, "acme", "create", "ns", "acme--last")
	for event := range w.ResultChan() {
		ns, ok := event.Object.(*corev1.Namespace)
		if !ok {
			t.Fatalf("event %v %v", event.Type, event.Object)
		}
		if ns.Labels[tenant.Label] != "acme" {
			t.Errorf("the watch delivers %s of %q", ns.Name, ns.Labels[tenant.Label])
		}
		if ns.Name == "acme--last" {
			return
		}
	}
	t.Error("the watch ended without an event of acme--last")
}

// namespaceIsApplied checks that a tenant can create and apply its namespace from a file. It also
// checks requests with tenant paths.
func namespaceIsApplied(t *testing.T, s *server) {
	path := filepath.Join(t.TempDir(), "ns.yaml")
	write := func(labels string) {
		t.Helper()
		text := "{apiVersion: v1, kind: Namespace, metadata: {name: acme--byfile, labels: {" + labels + "}}}\n"
		writeFile(t, path, text)
	}
	write("env: one")
	if out, err := s.kubectl(t, "acme", "apply", "-f", path); err != nil {
		t.Errorf("apply of a new namespace = %q, %v", out, err)
	}
	if out, err := s.kubectl(t, "acme", "get", "ns", "byfile"); err == nil ||
		!strings.Contains(out, authz.ReasonNotOwned.String()) {
		t.Errorf("get of a namespace that does not exist = %q, %v", out, err)
	}
	write("env: two")
	for _, args := range [][]string{{"apply", "-f", path}, {"apply", "--server-side", "--force-conflicts", "-f", path}} {
		if out, err := s.kubectl(t, "acme", args...); err != nil {
			t.Errorf("%v = %q", args, out)
		}
	}
	for url, want := range map[string]string{
		"/tenants/acme":   "acme--byfile",
		"/tenants/ALL":    "(BadRequest)",
		"/tenants/globex": "(Forbidden)",
		"/tenants":        "(Forbidden)",
	} {
		if out, _ := s.kubectl(t, "acme", "--server", s.config(t, "acme").Host+url, "get", "ns",
			"-o", "name"); !strings.Contains(out, want) {
			t.Errorf("get ns at %s = %q, want %q", url, out, want)
		}
	}
}

// reviews checks that a TokenReview returns the identity of a token from the token file, and that a
// tenant may not create a TokenReview.
func reviews(t *testing.T, s *server, token string) {
	admin := s.client(t, "admin")
	review := func(token string) authenticationv1.TokenReviewStatus {
		t.Helper()
		r, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	if got := review(token); !got.Authenticated || got.User.Username != "alice" ||
		got.User.Extra[tenant.ExtraKey][0] != "acme" ||
		!slices.Contains(got.User.Groups, "tenant:acme") || len(got.Audiences) == 0 {
		t.Errorf("review of our token = %+v", got)
	}
	if got := review("nonsense"); got.Authenticated {
		t.Errorf("review of nonsense = %+v", got)
	}
	acme := s.client(t, "acme")
	_, err := acme.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), authz.ReasonReview.String()) {
		t.Errorf("a tenant's TokenReview = %v", err)
	}
}

// selfReviewsAgree checks that "kubectl auth can-i" prints the decision that the server makes
// for the request. It also checks that "can-i --list" lists no rights in another tenant's
// namespace, where it may return an error.
func selfReviewsAgree(t *testing.T, s *server) {
	for _, c := range []struct {
		args string
		want bool
	}{
		{"get pods -n acme--web", true},
		{"list namespaces", true},
		{"create namespaces", true},
		{"get pods -n globex--shop", false},
		{"get pods -n missing", false},
		{"list pods --all-namespaces", true}, // limited to the tenant's objects, as the request is
		{"list secrets --all-namespaces", true},
		{"list nodes", false},
		{"* * -n acme--web", false},
		{"impersonate users/system:admin", false},
	} {
		out, _ := s.kubectl(t, "acme", append([]string{"auth", "can-i"}, strings.Fields(c.args)...)...)
		if last := lastLine(out); (last == "yes") != c.want {
			t.Errorf("can-i %s = %q, want %v", c.args, out, c.want)
		}
	}
	for namespace, want := range map[string]bool{"acme--web": true, "globex--shop": false, "kube-system": false} {
		out, err := s.kubectl(t, "acme", "auth", "can-i", "--list", "-n", namespace)
		if err != nil && want || strings.Contains(out, "configmaps") != want || strings.Contains(out, "nodes") ||
			strings.Contains(out, "*.*") {
			t.Errorf("can-i --list in %s: %v\n%s", namespace, err, out)
		}
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	word, _, _ := strings.Cut(lines[len(lines)-1], " ")
	return word
}

// auditHasDecisions checks that audit events contain the decision of the tenant boundary, or the
// source that rejected a credential.
func auditHasDecisions(t *testing.T, s *server, path string) {
	_, _ = s.kubectl(t, "acme", "get", "configmaps", "-n", "globex--shop")
	_, _ = s.kubectl(t, "acme", "get", "configmaps", "-n", "acme--web")
	_, _ = s.kubectl(t, "admin", "get", "configmaps", "-n", "acme--web", "--as", "carol", "--as-group", "tenant:acme")
	admin := s.config(t, "admin")
	basic := rest.AnonymousClientConfig(admin)
	basic.Username, basic.Password = "admin", "wrong"
	_, _ = client(t, basic).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	const z, n = "authorization.kubetenant.dev/", "authentication.kubetenant.dev/"
	wanted := []map[string]string{
		{
			z + "decision":      "deny",
			z + "reason":        authz.ReasonNotOwned.String(),
			z + "reason-code":   "NamespaceNotOwned",
			z + "caller-tenant": "acme",
			z + "owner-tenant":  "globex",
		},
		{z + "decision": "delegate", z + "caller-tenant": "acme", z + "owner-tenant": "acme"},
		{n + "source": "passwords", n + "refused": "wrong user name or password"},
	}
	waittest.Until(t, func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		missing := slices.Clone(wanted)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event struct{ Annotations map[string]string }
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				return err
			}
			missing = slices.DeleteFunc(missing, func(want map[string]string) bool {
				for k, v := range want {
					if event.Annotations[k] != v {
						return false
					}
				}
				return true
			})
		}
		if len(missing) > 0 {
			return fmt.Errorf("no audit event with %v", missing)
		}
		return nil
	})
}

// filesAreReloaded checks that a token is accepted after it is added to the token file, and
// rejected after it is removed. An invalid file must not change the accepted tokens.
func filesAreReloaded(t *testing.T, s *server) {
	write := func(text string) {
		t.Helper()
		s.write(t, "tokens.csv", text)
	}
	base := s.config(t, "admin")
	works := func(token string, want bool) func() error {
		return func() error {
			_, err := whoami(t.Context(), withToken(base, token))
			if (err == nil) != want {
				return fmt.Errorf("token %s works: %v, want %v", token, err == nil, want)
			}
			return nil
		}
	}
	before := s.read(t, "tokens.csv")
	defer write(before)
	write("first,alice,u1,,acme\n")
	waittest.Until(t, works("first", true))
	write("second,alice,u1,,acme\n")
	waittest.Until(t, works("second", true))
	waittest.Until(t, works("first", false))
	write("third,alice\n")
	waittest.Until(t, func() error { return newVersions(t, s, "tokens.csv", "error", 1) })
	waittest.Until(t, works("second", true))
}

// newVersions returns an error unless the server's metrics report want reloads of the file with the
// given result. The result is "success" or "error".
func newVersions(t *testing.T, s *server, file, result string, want int) error {
	t.Helper()
	out, err := s.metrics(t)
	if counted := fmt.Sprintf("kubetenant_config_reloads_total{path=%q,result=%q} %d\n",
		filepath.Join(s.Dir, file), result, want); err == nil && !strings.Contains(out, counted) {
		err = fmt.Errorf("not in the metrics: %s", counted)
	}
	return err
}

// noSecretIsLogged checks that the server's log, the audit log and responses with status 401
// contain no credential.
func noSecretIsLogged(t *testing.T, s *server, audit string) {
	base := rest.AnonymousClientConfig(s.config(t, "admin"))
	transport, err := rest.TransportFor(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{
		"Bearer CANARY-unknown", "Basic Q0FOQVJZOkNBTkFSWQ==", "Basic CANARY", "Bearer CANARY CANARY",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/namespaces", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 4096)
		n, _ := resp.Body.Read(body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(string(body[:n]), "CANARY") {
			t.Errorf("%d: %s", resp.StatusCode, body[:n])
		}
	}
	for _, path := range []string{filepath.Join(s.Dir, "kube-apiserver.log"), audit} {
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 {
			t.Fatalf("%s: %d bytes, %v", path, len(text), err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "CANARY") {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
}

// TestRestart checks that kubetenant-local can be restarted in its directory after a clean stop and
// after a kill. It also checks that a second server in the same directory does not start.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newServer(t, dir)
	s.prepare(t)
	if _, err := localserver.Start(t.Context(), binary(t, "kubetenant-local"), dir); err == nil ||
		!strings.Contains(err.Error(), "is in use by another server (process "+fmt.Sprint(s.PID)+")") {
		t.Errorf("a second server = %v", err)
	}
	transitions := func() string { // how often the leader of the controllers has changed
		return s.awaitKubectl(t, "admin", "get", "lease", "-n", "kube-system", "kubetenant-controller", "-o",
			"jsonpath={.spec.leaseTransitions}")
	}
	url := s.URL
	for _, stop := range []func() error{s.Stop, nil} {
		isKilled := stop == nil
		if isKilled {
			stop = s.Kill
		}
		before := transitions()
		if err := stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
		left := readFile(t, filepath.Join(dir, "etcd", "sockets"))
		s = newServer(t, dir)
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the sockets of the previous server remain: %v", err)
		}
		if s.URL != url {
			t.Errorf("the server moved from %s to %s", url, s.URL)
		}
		if out, err := s.kubectl(t, "acme", "get", "ns", "-o", "name"); err != nil ||
			strings.TrimSpace(out) != "namespace/acme--web" {
			t.Errorf("after a restart: get ns = %q, %v", out, err)
		}
		// A stopped server has released the Lease. The Lease of a killed server must first expire.
		begun := time.Now()
		waittest.Until(t, func() error {
			if now := transitions(); now == before {
				return fmt.Errorf("no new leader after %s transitions", now)
			}
			return nil
		})
		if took := time.Since(begun); !isKilled && took > 10*time.Second {
			t.Errorf("the server leads %s after its start, so the Lease was not released", took)
		}
	}
}

// TestRefusedStarts checks that kubetenant-local does not start with unsafe or invalid settings,
// and reports the reason in one line.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	shared := filepath.Join(t.TempDir(), "tenancy.yaml")
	text := "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
		"authentication: { sources: [ { name: certs, x509: { clientCAFile: pki/front-proxy-ca.crt } } ] }\n"
	writeFile(t, shared, text)
	for name, c := range map[string]struct {
		dir  string
		args []string
		want string
	}{
		"replaced handler chain": {
			t.TempDir(),
			[]string{
				"--", "--feature-gates=StorageVersionAPI=true,APIServerIdentity=true",
				"--runtime-config=internal.apiserver.k8s.io/v1alpha1=true",
			},
			"replace the handler chain",
		},
		"same authority for clients and front proxies": {
			filepath.Dir(shared),
			[]string{"--tenancy-config", shared, "--", "--requestheader-allowed-names="},
			"every client could assert any identity",
		},
		"missing configuration": {
			t.TempDir(), []string{"--tenancy-config", "/nonexistent/tenancy.yaml"}, "/nonexistent/tenancy.yaml: no such file",
		},
		"invalid tenant ID":              {t.TempDir(), []string{"--tenant", "ALL"}, "invalid tenant"},
		"unknown flag of kube-apiserver": {t.TempDir(), []string{"--", "--no-such-flag"}, "no-such-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := localserver.Start(t.Context(), binary(t, "kubetenant-local"), c.dir, c.args...)
			if err == nil {
				_ = s.Stop()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 1 {
				t.Errorf("%v; want one line with %q", err, c.want)
			}
		})
	}
}

// TestScopesMatchTheServer checks that [authz.Scopes] returns the scope of each built-in resource
// that a server with nearly all alpha and beta APIs serves.
func TestScopesMatchTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--", "--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true,"+
		"StorageVersionAPI=false,UnknownVersionInteroperabilityProxy=false,ConcurrentWatchObjectDecode=false")
	_, lists, err := s.client(t, "admin").Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || gv.Group == tenant.Domain { // skip subresources and our own resources
				continue
			}
			seen++
			want := authz.ScopeCluster
			if r.Namespaced {
				want = authz.ScopeNamespaced
			}
			if got := (authz.Scopes{}).Of(schema.GroupResource{Group: gv.Group, Resource: r.Name}); got != want {
				t.Errorf("%s.%s: scope %d, want %d", r.Name, gv.Group, got, want)
			}
		}
	}
	if seen < 70 {
		t.Errorf("the server serves only %d resources", seen)
	}
}
