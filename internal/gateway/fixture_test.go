// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/metrics"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/gateway"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestMain configures Kubernetes clients as the gateway's command does. See
// internal/serving/command.
func TestMain(m *testing.M) {
	for name, value := range state.HTTP2Timeouts() {
		_ = os.Setenv(name, value)
	}
	_ = os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	os.Exit(m.Run())
}

// eventTimeout is the time limit for events that take less than a second, except on a busy machine.
const eventTimeout = 20 * time.Second

// The gateway's credentials in a fake cluster.
const (
	readerToken       = "reader-token"
	impersonatorToken = "impersonator-token"
)

// fakeCluster is a fake kube-apiserver. It serves namespaces and the project's resources to the
// gateway's reader, and records forwarded requests.
type fakeCluster struct {
	*httptest.Server
	key     *authntest.Key
	started time.Time

	mu           sync.Mutex
	readerToken  string
	tokens       map[string]string // user names, keyed by token
	namespaces   map[string]string // owners, keyed by namespace
	recreations  map[string]int    // how often each namespace was created again
	backfill     string            // content of the ConfigMap about the backfill of labels
	retired      []string          // IDs of deleted tenants
	definitions  []string          // names of CustomResourceDefinitions, in addition to the project's
	missing      []string          // the project's resources that are not defined
	changed      chan struct{}     // closed at each change
	requests     []request
	tokenReviews int // number of TokenReviews
	// allow decides SubjectAccessReviews. handler handles forwarded requests. If it returns
	// false, the fake cluster responds.
	allow   func(authorizationv1.SubjectAccessReviewSpec) bool
	handler func(http.ResponseWriter, *http.Request) bool
	// readerHandler handles the requests of the gateway itself, in the same way as handler.
	readerHandler func(http.ResponseWriter, *http.Request) bool
}

// request is a request that the gateway forwarded.
type request struct {
	*http.Request
	body string
}

// identity returns the identity with which a request was forwarded.
func (r *request) identity() string {
	if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); token != impersonatorToken &&
		r.Header.Get("Impersonate-User") == "" {
		return "token " + token
	}
	out := r.Header.Get("Impersonate-User") + " [" + strings.Join(r.Header["Impersonate-Group"], " ") + "]"
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if key, ok := strings.CutPrefix(name, "Impersonate-Extra-"); ok {
			out += " " + strings.ToLower(key) + "=" + strings.Join(r.Header[name], ",")
		}
	}
	return out
}

func newFakeCluster(t testing.TB, namespaces map[string]string) *fakeCluster {
	t.Helper()
	s := &fakeCluster{
		readerToken: readerToken,
		started:     time.Now().Truncate(time.Second),
		key:         authntest.MustKey("ES256"),
		tokens:      map[string]string{},
		namespaces:  namespaces,
		changed:     make(chan struct{}),
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// setOwner changes the owner of a namespace.
func (s *fakeCluster) setOwner(namespace, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[namespace] = owner
	close(s.changed)
	s.changed = make(chan struct{})
}

// recreate deletes a namespace and creates it again with an owner.
func (s *fakeCluster) recreate(namespace, owner string) {
	s.update(func() {
		if s.recreations == nil {
			s.recreations = map[string]int{}
		}
		s.recreations[namespace]++
	})
	s.setOwner(namespace, owner)
}

// setBackfill changes the content of the ConfigMap about the backfill of labels.
func (s *fakeCluster) setBackfill(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backfill = text
	close(s.changed)
	s.changed = make(chan struct{})
}

// update changes the fake cluster.
func (s *fakeCluster) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// takeRequests returns and clears the forwarded requests.
func (s *fakeCluster) takeRequests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = nil }()
	return s.requests
}

// namespaceOf returns a Namespace. before is how often it was created again. It was first
// created an hour before the fake cluster started. Each creation time is two hours after the
// previous one, so that no test needs to wait.
func (s *fakeCluster) namespaceOf(name, owner, version string, before int) *corev1.Namespace {
	uid := types.UID(fmt.Sprintf("u-%d", before+1))
	ns := &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               uid,
			ResourceVersion:   version,
			CreationTimestamp: metav1.NewTime(s.started.Add(time.Duration(2*before-1) * time.Hour)),
		},
	}
	if owner != "" {
		ns.Labels = map[string]string{tenant.Label: owner}
	}
	return ns
}

// definitionOf returns the CustomResourceDefinition of a namespaced kind with the given name.
func definitionOf(name string) json.RawMessage {
	plural, group, _ := strings.Cut(name, ".")
	return fmt.Appendf(nil,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":%q,"uid":"u","resourceVersion":"1"},
		"spec":{"group":%q,"scope":"Namespaced","names":{"plural":%q,"kind":"Custom"},
		"versions":[{"name":"v1","served":true,"storage":true}]},
		"status":{"acceptedNames":{"plural":%[3]q,"kind":"Custom"},"conditions":[{"type":"Established","status":"True"}]}}`,
		name, group, plural)
}

// ownDefinitions returns the CustomResourceDefinitions of the project, except those in lacks.
func ownDefinitions(lacks []string) []any {
	items := []any{}
	for file, text := range deploy.Definitions() {
		definition := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &definition); err != nil {
			panic(err)
		}
		if slices.Contains(lacks, strings.TrimSuffix(file, ".yaml")) {
			continue
		}
		definition["metadata"].(map[string]any)["resourceVersion"] = "1"
		established := map[string]any{"type": "Established", "status": "True"}
		definition["status"] = map[string]any{"conditions": []any{established}}
		items = append(items, definition)
	}
	return items
}

// lists returns the kinds of the lists that the gateway's clients read, keyed by resource.
func lists() map[string]string {
	return map[string]string{
		"namespaces":                      "NamespaceList",
		"configmaps":                      "ConfigMapList",
		"mutatingwebhookconfigurations":   "MutatingWebhookConfigurationList",
		"validatingwebhookconfigurations": "ValidatingWebhookConfigurationList",
		"customresourcedefinitions":       "CustomResourceDefinitionList",
		"accessgrants":                    "AccessGrantList",
		"tenants":                         "TenantList",
		"tenantquotas":                    "TenantQuotaList",
		"retiredtenants":                  "RetiredTenantList",
		"namespacetemplates":              "NamespaceTemplateList",
		"tenantmembers":                   "TenantMembersList",
		"publications":                    "PublicationList",
	}
}

func (s *fakeCluster) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	reader := s.readerToken
	s.mu.Unlock()
	switch r.Header.Get("Authorization") {
	case "Bearer " + reader:
		s.serveReader(w, r)
		return
	case "Bearer " + readerToken: // the old token, after a rotation
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") && r.Header.Get("Impersonate-User") == "" {
		reviewSelf(w, impersonatorName)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.requests = append(s.requests, request{r, string(body)})
	answer := s.handler
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", "theirs")
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
}

func (s *fakeCluster) serveReader(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer := s.readerHandler
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch kind := lists()[resource]; {
	case r.Method == http.MethodPost:
		s.review(w, r)
	case r.URL.Path == "/version":
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.1"}`)
	case r.URL.Path == "/openid/v1/jwks":
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{s.key.JWK()}})
	case kind == "", slices.Contains(s.missing, resource):
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, kind, resource == "namespaces")
	}
}

func (s *fakeCluster) list(w io.Writer, kind string, namespaces bool) {
	items := []any{}
	s.mu.Lock()
	for name, owner := range s.namespaces {
		if namespaces {
			items = append(items, s.namespaceOf(name, owner, "1", s.recreations[name]))
		}
	}
	s.mu.Unlock()
	if kind == "RetiredTenantList" {
		for _, id := range s.retired {
			items = append(items, map[string]any{
				"apiVersion": "kubetenant.dev/v1alpha1",
				"kind":       "RetiredTenant",
				"metadata":   map[string]any{"name": id + "-was", "resourceVersion": "1"},
				"spec":       map[string]any{"id": id, "uid": "was", "retiredAt": "2026-01-01T00:00:00Z"},
			})
		}
	}
	if strings.Contains(kind, "Definition") {
		items = append(items, ownDefinitions(s.missing)...)
		for _, name := range s.definitions {
			items = append(items, definitionOf(name))
		}
	}
	version := "v1"
	switch {
	case strings.Contains(kind, "Webhook"):
		version = "admissionregistration.k8s.io/v1"
	case strings.Contains(kind, "Definition"):
		version = "apiextensions.k8s.io/v1"
	case strings.Contains(kind, "Grant"), strings.Contains(kind, "Tenant"), strings.Contains(kind, "Template"),
		strings.Contains(kind, "Publication"):
		version = "kubetenant.dev/v1alpha1"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind":       kind,
		"apiVersion": version,
		"metadata":   map[string]any{"resourceVersion": "1"},
		"items":      items,
	})
}

func (s *fakeCluster) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.(http.Flusher).Flush()
	known := map[string]int{}
	sendEvent := func(what string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": what, "object": object})
	}
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	for version := 2; ; version++ {
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		s.mu.Lock()
		changed = s.changed // before the objects are read, so that no later change is missed
		if resource == "configmaps" {
			sendEvent("ADDED", &corev1.ConfigMap{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				Data:     map[string]string{state.BackfillKey: s.backfill},
				ObjectMeta: metav1.ObjectMeta{
					Name:            state.BackfillName,
					Namespace:       "kubetenant-system",
					ResourceVersion: fmt.Sprint(version),
				},
			})
		}
		for name, owner := range s.namespaces {
			if resource != "namespaces" {
				continue
			}
			now := s.namespaceOf(name, owner, fmt.Sprint(version), s.recreations[name])
			if known[name] == s.recreations[name] {
				sendEvent("MODIFIED", now)
				continue
			}
			sendEvent("DELETED", s.namespaceOf(name, owner, fmt.Sprint(version), known[name]))
			sendEvent("ADDED", now)
			known[name] = s.recreations[name]
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
	}
}

// The gateway's user names in a fake cluster.
const readerName, impersonatorName = "gateway-reads", "gateway-acts"

// reviewSelf responds to a SelfSubjectReview.
func reviewSelf(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
		Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: name}},
	})
}

func (s *fakeCluster) review(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
		reviewSelf(w, readerName)
		return
	}
	w.WriteHeader(http.StatusCreated)
	body, _ := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review) // empty if the body is malformed
		s.mu.Lock()
		name, known := s.tokens[review.Spec.Token]
		s.tokenReviews++
		s.mu.Unlock()
		if known {
			groups := []string{"system:serviceaccounts", user.AllAuthenticated}
			if parts := strings.Split(name, ":"); len(parts) == 4 {
				groups = append(groups, "system:serviceaccounts:"+parts[2])
			}
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true,
				User:          authenticationv1.UserInfo{Username: name, UID: "sa-uid", Groups: groups},
			}
		}
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	var review authorizationv1.SubjectAccessReview
	_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review) // empty if the body is malformed
	s.mu.Lock()
	allow := s.allow
	s.mu.Unlock()
	review.Status.Allowed = allow != nil && allow(review.Spec)
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}
	_ = json.NewEncoder(w).Encode(review)
}

// token returns a token for a subject that the cluster's key signed and that expires in an hour.
func (s *fakeCluster) token(t *testing.T, subject string) string {
	t.Helper()
	return s.tokenUntil(t, subject, time.Now().Add(time.Hour))
}

// tokenUntil is token with an expiration time.
func (s *fakeCluster) tokenUntil(t *testing.T, subject string, end time.Time) string {
	t.Helper()
	return s.tokenBetween(t, subject, time.Now(), end)
}

// tokenBetween is tokenUntil with a time of issue.
func (s *fakeCluster) tokenBetween(t *testing.T, subject string, issued, end time.Time) string {
	t.Helper()
	text := s.key.MustSign(map[string]any{
		"iss": "https://kubernetes.default.svc",
		"sub": subject,
		"iat": issued.Unix(),
		"exp": end.Unix(),
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[text] = subject
	return text
}

// kubeconfig writes a kubeconfig with a token.
func (s *fakeCluster) kubeconfig(t testing.TB, path, token string) {
	t.Helper()
	writeKubeconfig(t, path, s.URL, s.Certificate().Raw, token)
}

// fixture is a gateway in front of fake clusters.
type fixture struct {
	t             testing.TB
	dir           string
	server        *httptest.Server
	gateway       *gateway.Gateway
	clusters      map[string]*fakeCluster
	registry      metrics.KubeRegistry
	connectionAge atomic.Int64 // age that is added to each connection, in ns
}

// configHeader is the beginning of a configuration. Its tokens belong to callers of two tenants and
// to one caller of the system tenant.
const configHeader = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
fairUse: { watches: 4 }
gateway:
  limits: { timeout: 5s }
  clusters:
`

const noRevocations = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"

// clusterEntry returns the entry of a cluster in a configuration. The entry ends with the fields in
// more.
func clusterEntry(name, more string) string {
	return fmt.Sprintf("  - { name: %[1]s, tenants: [\"*\", system], admission: Unchecked, reader: { kubeConfigFile: "+
		"%[1]s-reader }, impersonator: { kubeConfigFile: %[1]s-imp }%[2]s }\n",
		name, more)
}

// newFixture starts a gateway and waits until it forwards requests to all clusters. The
// configuration is configHeader followed by config.
func newFixture(t testing.TB, config string, clusters map[string]*fakeCluster) *fixture {
	t.Helper()
	return newTracedFixture(t, config, clusters, nil)
}

// newTracedFixture is newFixture with a tracer for the gateway.
func newTracedFixture(
	t testing.TB,
	config string,
	clusters map[string]*fakeCluster,
	recorded trace.TracerProvider,
) *fixture {
	t.Helper()
	w := &fixture{
		t:        t,
		dir:      t.TempDir(),
		clusters: clusters,
		registry: metrics.NewKubeRegistry(),
	}
	for name, c := range clusters {
		c.kubeconfig(t, filepath.Join(w.dir, name+"-reader"), readerToken)
		c.kubeconfig(t, filepath.Join(w.dir, name+"-imp"), impersonatorToken)
	}
	w.write("tokens.csv", "alice-token,alice,u1,\"dev,ops\",,acme\nbob-token,bob,u2,dev,,globex\n"+
		"root-token,root,u3,\"system:masters\",,system\n")
	w.write("revoked.yaml", noRevocations)
	w.write("tenancy.yaml", configHeader+config)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	var err error
	if w.gateway, err = gateway.Open(ctx, filepath.Join(w.dir, "tenancy.yaml"),
		gateway.Options{Register: w.registry.Register, Tracer: recorded}); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewUnstartedServer(w.gateway)
	w.server.EnableHTTP2 = true
	w.server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return serving.WithConnectionStart(ctx, time.Now().Add(-time.Duration(w.connectionAge.Load())))
	}
	w.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	w.server.StartTLS()
	t.Cleanup(func() { w.server.CloseClientConnections(); w.server.Close() })
	for name := range clusters {
		waittest.Until(t, func() error {
			if code, text := w.get("alice-token", "/clusters/"+name+"/api/v1/namespaces/acme--web/pods"); code != http.StatusOK {
				return fmt.Errorf("%d: %s", code, text)
			}
			return nil
		})
		clusters[name].takeRequests()
	}
	return w
}

func (w *fixture) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}

// tryAgain is part of the response to a request that a new configuration interrupts.
const tryAgain = "try again"

// waitForStatus repeats a request until it gets a status and no new configuration is being applied.
func (w *fixture) waitForStatus(want int, token, path string) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		if code, text := w.get(token, path); code != want || strings.Contains(text, tryAgain) {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
}

// getAgain is get with retries while a new configuration interrupts the request.
func (w *fixture) getAgain(token, path string) (code int, text string) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		if code, text = w.get(token, path); strings.Contains(text, tryAgain) {
			return errors.New(text)
		}
		return nil
	})
	return code, text
}

// get sends a request over HTTP/2, and returns the response.
func (w *fixture) get(token, path string, headers ...string) (int, string) {
	w.t.Helper()
	return w.do(token, http.MethodGet, path, "", headers...)
}

// do sends a request over HTTP/2, and returns the response. If the gateway ends the request, for
// example because of a new configuration, do returns the status 0 and a text that contains
// tryAgain.
func (w *fixture) do(token, method, path, body string, headers ...string) (int, string) {
	w.t.Helper()
	status, text := 0, []byte(nil)
	resp, err := w.send(w.t.Context(), token, method, path, body, headers...)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		status = resp.StatusCode
		text, err = io.ReadAll(resp.Body)
	}
	if ended := (http2.StreamError{}); errors.As(err, &ended) {
		return 0, tryAgain + ": " + err.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return status, string(text)
}

// read returns the status and body of a response.
func (w *fixture) read(resp *http.Response, err error) (int, string) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// open sends a request over HTTP/2, and returns the response, whose body the test closes.
func (w *fixture) open(ctx context.Context, token, method, path, body string, headers ...string) *http.Response {
	w.t.Helper()
	resp, err := w.send(ctx, token, method, path, body, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

func (w *fixture) send(ctx context.Context, token, method, path, body string, headers ...string) (
	*http.Response, error,
) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.server.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	client := *w.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client.Do(req)
}

// dial connects to the gateway over TLS with an ALPN protocol.
func (w *fixture) dial(protocol string) *tls.Conn {
	w.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(w.server.Certificate())
	conn, err := (&tls.Dialer{Config: &tls.Config{
		RootCAs:    pool,
		ServerName: "example.com",
		NextProtos: []string{protocol},
		MinVersion: tls.VersionTLS12,
	}}).
		DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.server.URL, "https://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn)
}

// openUpgrade opens an upgraded exec connection from alice to a Pod.
func (w *fixture) openUpgrade() (*tls.Conn, *bufio.Reader) {
	w.t.Helper()
	conn, reader, resp := w.raw("POST " + podsPath + "/p/exec?command=x HTTP/1.1\r\nHost: x\r\n" +
		"Authorization: Bearer alice-token\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatal(resp.Status)
	}
	return conn, reader
}

// raw sends text over an HTTP/1.1 connection, and returns the connection and the response.
func (w *fixture) raw(text string) (*tls.Conn, *bufio.Reader, *http.Response) {
	w.t.Helper()
	conn := w.dial("http/1.1")
	if err := conn.SetDeadline(time.Now().Add(eventTimeout)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn, reader, resp
}
