// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/healthz"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
	"github.com/kubetenant/kubetenant/tenant"
)

const token = "s3cret-token-of-alice"

// fixture contains the options of a service and its fakes.
type fixture struct {
	service.Options
	stale      atomic.Bool
	authorizer authorizer.AuthorizerFunc
	registry   metrics.KubeRegistry
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureWith(t, "\nadmission: {attribution: {creator: {enabled: false}}}")
}

// newFixtureWith is newFixture with additional configuration.
func newFixtureWith(t testing.TB, more string) *fixture {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("tokens.csv", token+",alice,u1,dev,,a\n")
	config := write("tenancy.yaml", `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication: {sources: [{name: tokens, tokenFile: {path: tokens.csv}}]}`+more+"\n")
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, label := range map[string]string{"a--web": "a", "b--web": "b"} {
		if err := namespaces.Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: label}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w := &fixture{registry: metrics.NewKubeRegistry()}
	var err error
	if w.Stack, err = stack.Open(t.Context(), config, stack.Server{
		Authentication: stack.Authentication{Credentials: stack.BearerTokens},
		Cluster:        lookuptest.OwnedBy(authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil)),
		Stale:          w.stale.Load,
		Register:       w.registry.Register,
		Authorization: stack.Authorization{
			ServerAnswersReviews: true,
			Authorizer: authorizer.AuthorizerFunc(func(
				ctx context.Context, a authorizer.Attributes,
			) (authorizer.Decision, string, error) {
				if w.authorizer == nil {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return w.authorizer(ctx, a)
			}),
		},
	}); err != nil {
		t.Fatal(err)
	}
	w.Limits = service.Limits{
		Concurrent: 4,
		Queued:     4,
		Timeout:    5 * time.Second,
		BodyBytes:  1 << 20,
		Memory:     1 << 30,
	}
	w.OwnerOf = func(namespace string) string { return namespace[:1] }
	w.Register = w.registry.Register
	w.Live = []healthz.HealthChecker{healthz.PingHealthz}
	w.Ready = []healthz.HealthChecker{
		healthz.PingHealthz, healthz.NamedCheck("watches", func(*http.Request) error { return nil }),
	}
	return w
}

func (w *fixture) handler(t testing.TB) http.Handler {
	t.Helper()
	h, err := service.New(w.Options)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// post sends a body and returns the status and the body of the response.
func post(h http.Handler, path, body string) (int, string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer,
		httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body)))
	return answer.Code, answer.Body.String()
}

func access(version, groupsField, namespace string) string {
	return fmt.Sprintf(
		`{"apiVersion":"authorization.k8s.io/%s","kind":"SubjectAccessReview","spec":{"user":"alice",%q:["dev",`+
			`"system:authenticated"],
"extra":{"kubetenant.dev/tenant":["a"]},"resourceAttributes":{"verb":"get","version":"v1","resource":"pods",`+
			`"namespace":%q,"name":"p"}}}`,
		version, groupsField, namespace,
	)
}

func TestAuthorize(t *testing.T) {
	w := newFixture(t)
	h := w.handler(t)
	w.authorizer = func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if len(a.GetUser().GetGroups()) == 3 && a.GetName() == "p" { // the groups of the review and the tenant's group
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
	pinned := func(selector string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"alice",` +
			`"extra":{"kubetenant.dev/tenant":["a"]},
"resourceAttributes":{"verb":"list","version":"v1","resource":"namespaces"` + selector + `}}}`
	}
	for name, c := range map[string]struct{ body, want string }{
		"own": {
			access("v1", "groups", "a--web"),
			`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`,
		},
		"own, v1beta1": {
			access("v1beta1", "group", "a--web"),
			`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":true}}`,
		},
		"v1 with the field group": {
			access("v1", "group", "a--web"),
			`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`,
		},
		"another tenant": {
			access("v1", "groups", "b--web"),
			`"denied":true,"reason":"tenant boundary: the namespace is not owned by the caller's tenant"`,
		},
		"no tenant": {
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"bob",` +
				`"nonResourceAttributes":{"verb":"get","path":"/metrics"}}}`,
			`"denied":true,"reason":"tenant subject: the caller has no tenant"`,
		},
		"all namespaces": {pinned(``), `"denied":true`},
		"all namespaces, own label": {
			pinned(`,"labelSelector":{"requirements":[{"key":"kubetenant.dev/tenant","operator":"In","values":["a"]}]}`),
			`"status":{"allowed":false}`,
		},
		"all namespaces, label of another tenant": {
			pinned(`,"labelSelector":{"requirements":[{"key":"kubetenant.dev/tenant","operator":"In","values":["b"]}]}`),
			`"denied":true`,
		},
		"raw label selector": {pinned(`,"labelSelector":{"rawSelector":"kubetenant.dev/tenant=a"}`), `"denied":true`},
		"unknown operator": {
			pinned(`,"labelSelector":{"requirements":[{"key":"kubetenant.dev/tenant","operator":"Near","values":["a"]}]}`),
			`"denied":true`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if code, got := post(h, service.AuthorizePath, c.body); code != http.StatusOK || !strings.Contains(got, c.want) {
				t.Errorf("%d %s; want %s", code, got, c.want)
			}
		})
	}
	w.authorizer = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", fmt.Errorf("a detail")
	}
	if _, got := post(h, service.AuthorizePath, access("v1", "groups", "a--web")); strings.Contains(got,
		`"allowed":true`) || strings.Contains(got, "detail") {
		t.Errorf("an error: %s", got)
	}
}

// TestTenantsAreDeniedWithStaleState checks that tenants' callers are denied with a specific
// reason while the state of the cluster is too old. Callers of the system tenant are not denied.
func TestTenantsAreDeniedWithStaleState(t *testing.T) {
	w := newFixture(t)
	h := w.handler(t)
	w.stale.Store(true)
	if _, got := post(h, service.AuthorizePath, access("v1", "groups", "a--web")); !strings.Contains(got,
		`"denied":true,"reason":"tenant state: `) {
		t.Errorf("stale: %s", got)
	}
	system := strings.Replace(access("v1", "groups", "a--web"), `["a"]`, `["system"]`, 1)
	if _, got := post(h, service.AuthorizePath, system); strings.Contains(got, "denied") {
		t.Errorf("stale, caller of the system tenant: %s", got)
	}
}

func tokenReview(version, token string) string {
	return fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/%s","kind":"TokenReview","spec":{"token":%q}}`,
		version, token)
}

func TestAuthenticate(t *testing.T) {
	h := newFixture(t).handler(t)
	for name, c := range map[string]struct{ body, want string }{
		"known": {
			tokenReview("v1", token),
			`"authenticated":true,"user":{"username":"alice","uid":"u1","groups":["dev","tenant:a","system:authenticated"]`,
		},
		"v1beta1": {
			tokenReview("v1beta1", token), `"apiVersion":"authentication.k8s.io/v1beta1","status":{"authenticated":true`,
		},
		"unknown":     {tokenReview("v1", "nope"), `"status":{"user":{}}`},
		"empty":       {tokenReview("v1", ""), `"status":{"user":{}}`},
		"two headers": {tokenReview("v1", token+`\r\nAuthorization: Bearer x`), `"status":{"user":{}}`},
		"unknown audience": {
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + token +
				`","audiences":["vault"]}}`,
			`"status":{"user":{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, got := post(h, service.AuthenticatePath, c.body)
			if code != http.StatusOK || !strings.Contains(got, c.want) {
				t.Errorf("%d %s; want %s", code, got, c.want)
			}
			if strings.Contains(got, token) {
				t.Error("the response contains the token")
			}
		})
	}
	if _, got := post(h, service.AuthenticatePath, tokenReview("v1", token)); !strings.Contains(got,
		`"kubetenant.dev/tenant":["a"]`) {
		t.Errorf("the response contains no tenant: %s", got)
	}
}

func admissionReview(operation, object, old string) string {
	if old == "" {
		old = "null"
	}
	return fmt.Sprintf(
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
"request":{"uid":"u-1","kind":{"group":"","version":"v1","kind":"ConfigMap"},
"resource":{"group":"","version":"v1","resource":"configmaps"},"namespace":"a--web","name":"c","operation":%q,
"userInfo":{"username":"alice","extra":{"kubetenant.dev/tenant":["a"]}},"object":%s,"oldObject":%s,"dryRun":false}}`,
		operation, object, old,
	)
}

func configMap(labels string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"a--web"` + labels +
		`},"data":{"n":"1"}}`
}

func TestAdmit(t *testing.T) {
	h := newFixture(t).handler(t)
	const own, others = `,"labels":{"kubetenant.dev/tenant":"a"}`, `,"labels":{"kubetenant.dev/tenant":"b"}`
	for name, c := range map[string]struct{ path, body, want string }{
		"unlabeled, mutated": {
			service.MutatePath, admissionReview("CREATE", configMap(""), ""), `"uid":"u-1","allowed":true,"patch":"`,
		},
		"labeled, mutated": {
			service.MutatePath, admissionReview("CREATE", configMap(own), ""), `"response":{"uid":"u-1","allowed":true}`,
		},
		"valid": {
			service.ValidatePath, admissionReview("CREATE", configMap(own), ""), `"response":{"uid":"u-1","allowed":true}`,
		},
		"unlabeled": {
			service.ValidatePath,
			admissionReview("CREATE", configMap(""), ""),
			`"allowed":false,"status":{"metadata":{},"status":"Failure","message":"configmaps \"c\" is forbidden: the label`,
		},
		"other tenant's label": {service.ValidatePath, admissionReview("CREATE", configMap(others), ""), `"code":403`},
		"no object":            {service.ValidatePath, admissionReview("CREATE", "null", ""), `"allowed":false`},
		"deleted":              {service.ValidatePath, admissionReview("DELETE", "null", configMap(own)), `"allowed":true`},
		"v1beta1 in kind": {
			service.ValidatePath,
			strings.Replace(admissionReview("CREATE", configMap(own), ""), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1),
			`"apiVersion":"admission.k8s.io/v1beta1"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if code, got := post(h, c.path, c.body); code != http.StatusOK || !strings.Contains(got, c.want) {
				t.Errorf("%d %s; want %s", code, got, c.want)
			}
		})
	}
	_, got := post(h, service.MutatePath, admissionReview("CREATE", configMap(""), ""))
	var answer struct{ Response struct{ Patch []byte } }
	if err := json.Unmarshal([]byte(got), &answer); err != nil ||
		string(answer.Response.Patch) != `[{"op":"add","path":"/metadata/labels","value":{"kubetenant.dev/tenant":"a"}}]` {
		t.Errorf("patch %s, %v", answer.Response.Patch, err)
	}
}

// TestInvalidReviewIsAnError checks that the response to an invalid review is an HTTP error. With
// failurePolicy Fail or Deny, kube-apiserver then rejects the request.
func TestInvalidReviewIsAnError(t *testing.T) {
	h := newFixture(t).handler(t)
	good := map[string]string{
		service.AuthenticatePath: tokenReview("v1", token),
		service.AuthorizePath:    access("v1", "groups", "a--web"),
		service.MutatePath:       admissionReview("CREATE", configMap(""), ""),
		service.ValidatePath:     admissionReview("CREATE", configMap(""), ""),
	}
	for path, body := range good {
		t.Run(path, func(t *testing.T) {
			bad := map[string]string{
				"empty":                 "",
				"no JSON":               "{",
				"null":                  "null",
				"a list":                "[" + body + "]",
				"twice":                 body + body,
				"another version":       strings.Replace(body, "/v1\"", "/v2\"", 1),
				"another kind":          strings.Replace(body, "Review\"", "Reviews\"", 1),
				"a key twice":           strings.Replace(body, `"kind"`, `"kind":"X","kind"`, 1),
				"a key in another case": strings.Replace(body, `"apiVersion"`, `"APIVersion"`, 1),
			}
			if strings.HasPrefix(path, "/admit") {
				for _, operation := range []string{"", "REPLACE", "create", "*"} {
					bad["operation "+strconv.Quote(operation)] = strings.Replace(body, `"CREATE"`, strconv.Quote(operation), 1)
				}
			}
			for other, foreign := range good {
				if other != path && !strings.HasPrefix(other, "/admit") {
					bad["a review of "+other] = foreign
				}
			}
			for name, text := range bad {
				t.Run(name, func(t *testing.T) {
					if code, got := post(h, path, text); code != http.StatusBadRequest || strings.Contains(got, token) {
						t.Errorf("%d %s", code, got)
					}
				})
			}
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if answer.Code != http.StatusMethodNotAllowed {
				t.Errorf("GET: %d", answer.Code)
			}
		})
	}
	for _, path := range []string{"/", "/authorize/", "/authorize/x", "/admit", "/metrics", "/debug/pprof/"} {
		if code, _ := post(h, path, good[service.AuthorizePath]); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// endlessBody is a body without an end.
type endlessBody struct{ read int64 }

func (c *endlessBody) Read(b []byte) (int, error) {
	c.read += int64(len(b))
	if c.read > 1<<30 {
		return 0, io.EOF
	}
	return len(b), nil
}

func (*endlessBody) Close() error { return nil }

// TestHugeBody checks that the service reads no more than the limit from a body of 1 GB.
func TestHugeBody(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, length := range []int64{-1, 1 << 30} {
		body := &endlessBody{}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, service.AuthorizePath, body)
		r.ContentLength = length
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if answer.Code != http.StatusRequestEntityTooLarge || answer.Header().Get("Connection") != "close" ||
			body.read > 4<<20 {
			t.Errorf("length %d: %d, %d bytes read", length, answer.Code, body.read)
		}
	}
}

// TestLimits checks that requests above the limits of a path get 429, and that other paths are not
// affected.
func TestLimits(t *testing.T) {
	w := newFixture(t)
	w.Limits.Concurrent, w.Limits.Queued = 1, 2
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	w.authorizer = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		entered <- struct{}{}
		<-leave
		return authorizer.DecisionAllow, "", nil
	}
	h := w.handler(t)
	codes := make(chan int, 4)
	send := func() {
		code, _ := post(h, service.AuthorizePath, access("v1", "groups", "a--web"))
		codes <- code
	}
	go send()
	<-entered
	for range 3 {
		go send()
	}
	if code := <-codes; code != http.StatusTooManyRequests { // the request that did not fit into the queue
		t.Errorf("above the limit of the queue: %d", code)
	}
	if code, got := post(h, service.AuthenticatePath, tokenReview("v1", token)); code != http.StatusOK ||
		!strings.Contains(got, "alice") {
		t.Errorf("another path: %d", code)
	}
	close(leave)
	for range 3 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("queued: %d", code)
		}
	}
}

// TestMemoryLimit checks that a request that may need more than the available memory is rejected,
// because of its size or because plugins read its content.
func TestMemoryLimit(t *testing.T) {
	w := newFixtureWith(t, "\nadmission: {binding: {kinds: [{group: argoproj.io, kind: Application}]}}")
	w.Limits.Memory = 1 << 20
	h := w.handler(t)
	review := func(size int) string {
		return strings.NewReplacer(`"group":"","version":"v1",`+
			`"kind":"ConfigMap"`, `"group":"argoproj.io","version":"v1alpha1","kind":"Application"`,
			`"group":"","version":"v1",`+
				`"resource":"configmaps"`, `"group":"argoproj.io","version":"v1alpha1","resource":"applications"`).
			Replace(admissionReview("CREATE", configMap(`,"annotations":{"a":"`+strings.Repeat("x", size)+`"}`), ""))
	}
	for name, c := range map[string]struct{ size, code int }{
		"small":      {1000, http.StatusOK},
		"a tree":     {20_000, http.StatusRequestEntityTooLarge},
		"any object": {60_000, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if code, said := post(h, service.MutatePath, review(c.size)); code != c.code {
				t.Errorf("%d %s", code, said)
			}
		})
	}
	if code, _ := post(h, service.MutatePath, admissionReview("CREATE",
		configMap(`,"annotations":{"a":"`+strings.Repeat("x", 20_000)+`"}`), "")); code != http.StatusOK {
		t.Errorf("a built-in kind of that size: %d", code)
	}
	if code, _ := post(h, service.MutatePath, admissionReview("CREATE",
		configMap(`,"annotations":{"a":"`+strings.Repeat("x", 60_000)+`"}`), "")); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a built-in kind above the limit: %d", code)
	}
}

func TestQueueTimeout(t *testing.T) {
	w := newFixture(t)
	w.Limits.Concurrent, w.Limits.Timeout = 1, time.Second // sufficient to admit the first request on a busy machine
	entered, leave := make(chan struct{}), make(chan struct{})
	w.authorizer = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		close(entered)
		<-leave
		return authorizer.DecisionAllow, "", nil
	}
	h := w.handler(t)
	done := make(chan struct{})
	go func() {
		post(h, service.AuthorizePath, access("v1", "groups", "a--web"))
		close(done)
	}()
	<-entered
	if code, _ := post(h, service.AuthorizePath, access("v1", "groups", "a--web")); code != http.StatusTooManyRequests {
		t.Errorf("after the timeout: %d", code)
	}
	close(leave)
	<-done
}

func TestPanic(t *testing.T) {
	w := newFixture(t)
	w.authorizer = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) { panic("no") }
	h := w.handler(t)
	if code, got := post(h, service.AuthorizePath,
		access("v1", "groups", "a--web")); code != http.StatusInternalServerError || strings.Contains(got, "goroutine") {
		t.Errorf("%d %s", code, got)
	}
	w.authorizer = nil
	for range w.Limits.Concurrent + 1 { // the panic released the place of the request
		if code, _ := post(h, service.AuthorizePath, access("v1", "groups", "a--web")); code != http.StatusOK {
			t.Errorf("after a panic: %d", code)
		}
	}
}

func TestHealth(t *testing.T) {
	w := newFixture(t)
	healthy := false
	w.Ready = append(w.Ready, healthz.NamedCheck("informers", func(*http.Request) error {
		if !healthy {
			return fmt.Errorf("a detail")
		}
		return nil
	}))
	h := w.handler(t)
	get := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return answer.Code, answer.Body.String()
	}
	if code, got := get("/readyz"); code == http.StatusOK || !strings.Contains(got, "[-]informers failed") ||
		!strings.Contains(got, "[+]watches ok") {
		t.Errorf("readyz: %d %s", code, got)
	}
	for _, path := range []string{"/livez", "/healthz", "/readyz/watches"} {
		if code, _ := get(path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	healthy = true
	if code, got := get("/readyz?verbose"); code != http.StatusOK || !strings.Contains(got, "[+]informers ok") {
		t.Errorf("readyz?verbose: %d %s", code, got)
	}
}

// FuzzReview checks that no input causes a panic, an allowed request, or an authenticated user
// without a valid token. A review with an unknown member must get the same response as the review
// without this member, which the fast decoder accepts.
func FuzzReview(f *testing.F) {
	w := newFixture(f)
	h := w.handler(f)
	paths := []string{service.AuthenticatePath, service.AuthorizePath, service.MutatePath, service.ValidatePath}
	for i, body := range []string{
		tokenReview("v1", "x"), access("v1", "groups", "a--web"), admissionReview("CREATE", configMap(""), ""),
		admissionReview("UPDATE", configMap(""), configMap("")),
	} {
		f.Add(uint8(i), []byte(body))
	}
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		if strings.Contains(string(body), token) {
			t.Skip()
		}
		at := paths[int(path)%len(paths)]
		code, got := post(h, at, string(body))
		if code != http.StatusOK && code != http.StatusBadRequest && code != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d %s", code, got)
		}
		if code == http.StatusOK && !json.Valid([]byte(got)) {
			t.Fatalf("no JSON: %s", got)
		}
		if at == service.AuthorizePath && strings.Contains(got, `"allowed":true`) ||
			strings.Contains(got, `"authenticated":true`) {
			t.Fatalf("allowed: %s", got)
		}
		if rest, ok := strings.CutPrefix(string(body), `{"`); ok && int(path)%len(paths) < 2 {
			if slow, want := post(h, at, `{"of a newer kube-apiserver":0,"`+rest); code != slow || got != want {
				t.Fatalf("%d %s; decoded %d %s", code, got, slow, want)
			}
		}
	})
}
