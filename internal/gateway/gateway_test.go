// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func defaultNamespaces() map[string]string {
	return map[string]string{"acme--web": "acme", "globex--shop": "globex", "default": ""}
}

// newRootFixture returns a gateway in front of one cluster, which is the root.
func newRootFixture(t testing.TB) (*fixture, *fakeCluster) {
	t.Helper()
	c := newFakeCluster(t, defaultNamespaces())
	return newFixture(t, rootClusterEntry(), map[string]*fakeCluster{"eu1": c}), c
}

// rootClusterEntry returns the entry of the cluster of [newRootFixture] in a configuration.
func rootClusterEntry() string {
	return clusterEntry(
		"eu1",
		", root: true, serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }",
	)
}

const aliceIdentity = "alice [dev ops tenant:acme] kubetenant.dev%2ftenant=acme"

// TestForwardedAsTheCaller checks that a request is forwarded with its caller's identity, whatever
// its headers contain.
func TestForwardedAsTheCaller(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	for what, headers := range map[string][]string{
		"plain":                     nil,
		"front proxy headers":       {"X-Remote-User", "root", "X-Remote-Group", "system:masters"},
		"header with an underscore": {"impersonate_user", "root"},
		"forged client address":     {"X-Forwarded-For", "203.0.113.9", "Forwarded", "for=203.0.113.9"},
		"audit ID of the caller":    {"Audit-Id", "mine"},
	} {
		t.Run(what, func(t *testing.T) {
			code, text := w.get("alice-token", "/api/v1/namespaces/acme--web/pods", headers...)
			sent := c.takeRequests()
			if code != http.StatusOK || len(sent) != 1 {
				t.Errorf("%d: %s, %d requests forwarded", code, text, len(sent))
				return
			}
			r := sent[0]
			if r.identity() != aliceIdentity || r.Header.Get("X-Remote-User") != "" || r.Header.Get("Forwarded") != "" ||
				r.Header.Get("X-Forwarded-For") != "127.0.0.1" || r.Header.Get("Audit-Id") == "mine" ||
				r.Header.Get("Audit-Id") == "" {
				t.Errorf("forwarded as %s: %v", r.identity(), r.Header)
			}
		})
	}
}

// TestConnectionHeaders checks that headers that a Connection header names cannot change the
// caller's identity or rights, and that no caller can close the shared connection.
func TestConnectionHeaders(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	from := map[string]bool{}
	for _, path := range []string{podsPath, podsPath + "/x/proxy/"} {
		for _, more := range []string{
			"Connection: Impersonate-User, Impersonate-Group, Authorization\r\n", "Connection: close, Authorization\r\n",
			"Connection: close\r\n", "Connection: Foo\r\n",
			"Keep-Alive: timeout=1\r\nTe: trailers\r\nProxy-Connection: close\r\n",
			"Connection: impersonate-extra-kubetenant.dev%2ftenant\r\n",
		} {
			_, _, resp := w.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n" + more + "\r\n")
			sent := c.takeRequests()
			if resp.StatusCode != http.StatusOK || len(sent) != 1 || sent[0].identity() != aliceIdentity ||
				sent[0].Header.Get("Connection")+sent[0].Header.Get("Keep-Alive")+sent[0].Header.Get("Te") != "" {
				t.Errorf("%s, %q: %s, %v", path, more, resp.Status, sent)
				continue
			}
			from[sent[0].RemoteAddr] = true
		}
	}
	if len(from) != 1 {
		t.Errorf("the requests used %d connections", len(from))
	}
	_, _, resp := w.raw("GET " + podsPath + "/x/proxy/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice-token\r\n" +
		"Upgrade: websocket\r\nConnection: Upgrade, Impersonate-User\r\n\r\n")
	if sent := c.takeRequests(); len(sent) != 1 || sent[0].identity() != aliceIdentity ||
		strings.Join(sent[0].Header["Connection"], ",") != "Upgrade" {
		t.Errorf("an upgrade: %s, %v", resp.Status, sent)
	}
}

// TestRejectedRequests checks that the gateway rejects certain requests and never forwards them.
func TestRejectedRequests(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	for what, r := range map[string]struct {
		token, method, path, body string
		headers                   []string
		want                      int
	}{
		"no credential":               {path: "/api/v1/namespaces/acme--web/pods", want: 401},
		"another tenant's namespace":  {token: "alice-token", path: "/api/v1/namespaces/globex--shop/pods", want: 403},
		"missing namespace":           {token: "alice-token", path: "/api/v1/namespaces/nowhere/pods", want: 403},
		"system namespace":            {token: "alice-token", path: "/api/v1/namespaces/default/secrets", want: 403},
		"all namespaces, not labeled": {token: "alice-token", path: "/api/v1/secrets", want: 403},
		"old watch path":              {token: "alice-token", path: "/api/v1/watch/namespaces/globex--shop/pods", want: 403},
		"nodes":                       {token: "alice-token", path: "/api/v1/nodes", want: 403},
		"metrics":                     {token: "alice-token", path: "/metrics", want: 403},
		"as system:masters": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob", "Impersonate-Group", "system:masters"},
			want:    403,
		},
		"a group without a user": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-Group", "dev"},
			want:    400,
		},
		"an extra without a user": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-Extra-A", "b"},
			want:    400,
		},
		"a UID without a user": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-Uid", "b"},
			want:    400,
		},
		"as a caller of another tenant": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob", "Impersonate-Extra-Kubetenant.dev%2Ftenant", "globex"},
			want:    403,
		},
		"as a caller of another tenant, encoded twice": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob", "Impersonate-Extra-Kubetenant.dev%252Ftenant", "globex"},
			want:    403,
		},
		"as another tenant's group": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob", "Impersonate-Group", "tenant:globex"},
			want:    403,
		},
		"as an account of the gateway": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "system:serviceaccount:kubetenant-system:kubetenant-gateway-impersonator"},
			want:    403,
		},
		"as anonymous": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "system:anonymous"},
			want:    403,
		},
		"as a user, denied by RBAC": {
			token:   "alice-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob"},
			want:    403,
		},
		"system tenant, as system:masters": {
			token:   "root-token",
			path:    "/api",
			headers: []string{"Impersonate-User", "bob", "Impersonate-Group", "system:masters"},
			want:    403,
		},
		"web page without a token":         {path: "/api", headers: []string{"Origin", "https://evil.example"}, want: 403},
		"same-origin page without a token": {path: "/api", headers: []string{"Sec-Fetch-Site", "same-origin"}, want: 403},
		"two clusters in one path":         {token: "alice-token", path: "/clusters/eu1/clusters/us1/api", want: 400},
		"a cluster without a name":         {token: "alice-token", path: "/clusters/", want: 400},
		"an escape in a cluster's name":    {token: "alice-token", path: "/clusters/eu%31/api", want: 400},
		"path of another tenant":           {token: "alice-token", path: "/tenants/globex/api/v1/namespaces", want: 403},
		"two selectors": {
			token: "alice-token",
			path:  "/api/v1/namespaces?labelSelector=a&labelSelector=b",
			want:  403,
		},
		"a token review": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authentication.k8s.io/v1/tokenreviews",
			body:   "{}",
			want:   403,
		},
		"review of another user": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			body:   "{}",
			want:   403,
		},
		"a malformed review": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body:   "{",
			want:   400,
		},
		"a large review": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body:   strings.Repeat(" ", 65<<10),
			want:   413,
		},
		"rules in another tenant's namespace": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview",` +
				`"spec":{"namespace":"globex--shop"}}`,
			want: 403,
		},
		"rules without a namespace": {
			token:  "alice-token",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			body:   `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{}}`,
			want:   403,
		},
	} {
		t.Run(what, func(t *testing.T) {
			method := r.method
			if method == "" {
				method = http.MethodGet
			}
			code, text := w.do(r.token, method, r.path, r.body, r.headers...)
			if sent := c.takeRequests(); code != r.want || len(sent) > 0 {
				t.Errorf("%d, want %d: %s, %d requests forwarded", code, r.want, text, len(sent))
			}
		})
	}
}

// TestImpersonation checks that both the boundary and the cluster must allow an impersonation.
// The cluster checks the rights of the caller's identity in the cluster. If a request has several
// Impersonate-User headers, the first one applies.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	var reviews []authorizationv1.SubjectAccessReviewSpec
	c.mu.Lock()
	c.allow = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		reviews = append(reviews, s)
		return s.ResourceAttributes != nil && s.ResourceAttributes.Verb == "impersonate" &&
			s.ResourceAttributes.Name == "carol"
	}
	c.mu.Unlock()
	if code, text := w.get("alice-token", "/api/v1/namespaces/acme--web/pods", "Impersonate-User", "carol",
		"Impersonate-User", "root"); code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	sent := c.takeRequests()
	if len(sent) != 1 || sent[0].identity() != "carol [tenant:acme] kubetenant.dev%2ftenant=acme" {
		t.Errorf("forwarded as %v", sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range reviews {
		if s.User != "alice" || !slices.Contains(s.Groups, "tenant:acme") ||
			!slices.Contains(s.Groups, "system:authenticated") || s.UID != "" || len(s.Extra) != 1 {
			t.Errorf("the review is about %+v", s)
		}
	}
	if len(reviews) == 0 {
		t.Error("the cluster received no review")
	}
}

// TestSelfReviewsAgreeWithRequests checks that the result of a self review is denied if the
// boundary denies the access. Other self reviews are forwarded, with only the spec that the
// gateway decoded.
func TestSelfReviewsAgreeWithRequests(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, r := range map[string]struct {
		attributes string
		goesOn     bool
	}{
		"the tenant's namespace": {
			`"resourceAttributes":{"verb":"get","namespace":"acme--web","resource":"pods","version":"v1"}`,
			true,
		},
		"another tenant's namespace": {
			`"resourceAttributes":{"verb":"get","namespace":"globex--shop","resource":"pods","version":"v1"}`,
			false,
		},
		"a missing namespace": {
			`"resourceAttributes":{"verb":"get","namespace":"nowhere","resource":"pods","version":"v1"}`,
			false,
		},
		"a cluster-scoped resource": {
			`"resourceAttributes":{"verb":"list","resource":"nodes","version":"v1"}`,
			false,
		},
		"everything":            {`"resourceAttributes":{"verb":"*","group":"*","resource":"*"}`, false},
		"a path of the cluster": {`"nonResourceAttributes":{"verb":"get","path":"/metrics"}`, false},
		"a discovery path":      {`"nonResourceAttributes":{"verb":"get","path":"/api"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			// Another parser may ignore case, and use the first spec or the second.
			body := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","Spec":{},"spec":{` +
				r.attributes + `}}`
			code, text := w.do("alice-token", http.MethodPost, path, body)
			sent := c.takeRequests()
			var review authorizationv1.SelfSubjectAccessReview
			switch {
			case r.goesOn != (len(sent) == 1):
				t.Errorf("%d: %s, %d requests forwarded", code, text, len(sent))
			case r.goesOn:
				if strings.Contains(sent[0].body, `"Spec"`) || !strings.Contains(sent[0].body, `"spec"`) ||
					sent[0].identity() != aliceIdentity {
					t.Errorf("the forwarded body is %s", sent[0].body)
				}
			case json.Unmarshal([]byte(text), &review) != nil || code != http.StatusCreated || review.Status.Allowed ||
				!review.Status.Denied || review.Status.Reason == "":
				t.Errorf("%d: %s", code, text)
			}
		})
	}
}

// TestServiceAccounts checks that a cluster authenticates only its own service accounts, with
// tokens that its own keys signed. The rate of TokenReviews is limited for each namespace.
func TestServiceAccounts(t *testing.T) {
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	const pass = ", serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }"
	w := newFixture(t, clusterEntry("eu1", pass)+clusterEntry("us1", pass), map[string]*fakeCluster{"eu1": eu, "us1": us})
	const path = "/api/v1/namespaces/acme--web/pods"
	account, admin := eu.token(t, "system:serviceaccount:acme--web:builder"), eu.token(t, "system:admin")
	others := us.token(t, "system:serviceaccount:acme--web:builder")
	forged := authntest.MustKey("ES256").MustSign(map[string]any{
		"iss": "https://kubernetes.default.svc",
		"sub": "system:serviceaccount:acme--web:builder",
	})
	expired := us.key.MustSign(map[string]any{
		"iss": "https://kubernetes.default.svc",
		"sub": "system:serviceaccount:acme--web:builder",
		"exp": time.Now().Add(-time.Minute).Unix(),
	})
	elsewhere := eu.token(t, "system:serviceaccount:globex--shop:builder")
	for what, r := range map[string]struct {
		token, cluster string
		want           int
	}{
		"own cluster":                   {account, "eu1", 200},
		"token of another cluster":      {others, "eu1", 401},
		"token sent to another cluster": {account, "us1", 401},
		"not a service account":         {admin, "eu1", 401},
		"forged":                        {forged, "eu1", 401},
		"expired":                       {expired, "eu1", 401},
		"account of another tenant":     {elsewhere, "eu1", 403},
	} {
		t.Run(what, func(t *testing.T) {
			if code, text := w.get(r.token, "/clusters/"+r.cluster+path); code != r.want {
				t.Errorf("%d, want %d: %s", code, r.want, text)
			}
			for _, sent := range eu.takeRequests() {
				if sent.identity() != "token "+account {
					t.Errorf("forwarded as %s", sent.identity())
				}
			}
		})
	}
	if code, _ := w.get(expired, "/clusters/us1"+path); code != http.StatusUnauthorized {
		t.Errorf("expired token in its own cluster: %d", code)
	}
	// A token that the cluster rejects is not sent to it again.
	deleted := us.token(t, "system:serviceaccount:acme--web:gone")
	us.update(func() { delete(us.tokens, deleted) })
	for range 20 {
		if code, text := w.get(deleted, "/clusters/us1"+path); code != http.StatusUnauthorized {
			t.Errorf("token of a deleted account: %d: %s", code, text)
		}
	}
	us.update(func() {
		if us.tokenReviews > 1 {
			t.Errorf("one token was reviewed %d times", us.tokenReviews)
		}
		us.tokenReviews = 0
	})
	// The rate of TokenReviews for one namespace is limited, even if all tokens differ. Tokens of
	// another namespace are not affected.
	const atOnce, perSecond, refused = 200, 20, 50
	codes, began := map[int]int{}, time.Now()
	for i := 0; i < 20*atOnce && codes[http.StatusTooManyRequests] < refused; i++ {
		code, _ := w.get(us.token(t, fmt.Sprintf("system:serviceaccount:acme--web:a%d", i)), "/clusters/us1/api")
		codes[code]++
	}
	most := atOnce + 1 + int(perSecond*time.Since(began).Seconds())
	if shown := codes[http.StatusOK]; shown < atOnce-1 || shown > most ||
		codes[http.StatusTooManyRequests] != refused || len(codes) != 2 {
		t.Errorf("tokens of one namespace: %v, want no more than %d", codes, most)
	}
	us.update(func() {
		if us.tokenReviews != codes[http.StatusOK] {
			t.Errorf("%d tokens were reviewed: %v", us.tokenReviews, codes)
		}
	})
	if code, text := w.get(us.token(t, "system:serviceaccount:globex--shop:builder"),
		"/clusters/us1/api/v1/namespaces/globex--shop/pods"); code != http.StatusOK {
		t.Errorf("token of another namespace: %d: %s", code, text)
	}
	// If the cluster cannot review a token, the caller gets 503 and not 401.
	us.update(func() {
		us.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
			if fails := strings.HasSuffix(r.URL.Path, "/tokenreviews"); !fails {
				return false
			}
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
	if code, text := w.get(us.token(t, "system:serviceaccount:globex--shop:other"),
		"/clusters/us1"+path); code != http.StatusServiceUnavailable || strings.Contains(text, "nauthorized") {
		t.Errorf("a token whose review failed: %d: %s", code, text)
	}
	us.update(func() { us.tokenReviews, us.readerHandler = 0, nil })
	for range 3 {
		w.get(others+"x", "/clusters/us1"+path)
		w.get(expired, "/clusters/us1"+path)
	}
	us.mu.Lock()
	if us.tokenReviews > 0 {
		t.Error("a forged or expired token was reviewed")
	}
	us.mu.Unlock()
	eu.mu.Lock()
	eu.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	eu.mu.Unlock()
	if code, text := w.get(account, "/clusters/eu1"+path, "Impersonate-User", "carol"); code != http.StatusOK {
		t.Errorf("an impersonation: %d: %s", code, text)
	}
	if sent := eu.takeRequests(); len(sent) != 1 || !strings.HasPrefix(sent[0].identity(), "carol ") {
		t.Errorf("an impersonation was forwarded as %v", sent)
	}
}

// TestClusters checks that a request for an unknown cluster gets the same response as a request
// for a cluster that the caller may not use. Each cluster has its own tenant map, and makes its
// own decisions about impersonation.
func TestClusters(t *testing.T) {
	t.Parallel()
	eu := newFakeCluster(t, map[string]string{"acme--web": "acme-eu", "x": "acme"})
	us := newFakeCluster(t, defaultNamespaces())
	config := clusterEntry("eu1", ", tenantMap: { acme: acme-eu }") +
		strings.Replace(clusterEntry("us1", ""), `["*", system]`, "[acme, globex]", 1)
	w := newFixture(t, config, map[string]*fakeCluster{"eu1": eu, "us1": us})
	_, unknown := w.get("root-token", "/clusters/nowhere/api")
	code, closed := w.get("root-token", "/clusters/us1/api")
	if code != http.StatusForbidden || unknown != closed {
		t.Errorf("%d: %s, and of an unknown cluster: %s", code, closed, unknown)
	}
	for _, path := range []string{"/api", "/tenants/-bad-/api", "/tenants/acme/api", "/api?timeout=x"} {
		one, oneText := w.get("", "/clusters/us1"+path)
		other, otherText := w.get("", "/clusters/nowhere"+path)
		if one != other || oneText != otherText || one < 400 {
			t.Errorf("%s reveals that the cluster exists: %d, %d: %s, %s", path, one, other, oneText, otherText)
		}
	}
	if code, text := w.get("alice-token", "/api"); code != http.StatusForbidden || text != closed {
		t.Errorf("without a root: %d: %s", code, text)
	}
	for path, want := range map[string]int{
		"/clusters/eu1/api/v1/namespaces/acme--web/pods":                 200,
		"/clusters/eu1/api/v1/namespaces/x/pods":                         403,
		"/clusters/eu1/tenants/acme/api/v1/namespaces/acme--web/pods":    200,
		"/clusters/eu1/tenants/acme-eu/api/v1/namespaces/acme--web/pods": 403,
		"/clusters/us1/api/v1/namespaces/acme--web/pods":                 200,
	} {
		t.Run(path, func(t *testing.T) {
			if code, text := w.get("alice-token", path); code != want {
				t.Errorf("%d, want %d: %s", code, want, text)
			}
		})
	}
	for _, r := range eu.takeRequests() {
		if r.identity() != "alice [dev ops tenant:acme-eu] kubetenant.dev%2ftenant=acme-eu" ||
			r.URL.Path != "/api/v1/namespaces/acme--web/pods" {
			t.Errorf("%s was forwarded as %s", r.URL, r.identity())
		}
	}
	us.takeRequests()
	eu.mu.Lock()
	eu.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	eu.mu.Unlock()
	if code, _ := w.get("alice-token", "/clusters/eu1/api", "Impersonate-User", "carol"); code != http.StatusOK {
		t.Errorf("impersonation in eu1: %d", code)
	}
	if code, _ := w.get("alice-token", "/clusters/us1/api", "Impersonate-User", "carol"); code != http.StatusForbidden {
		t.Errorf("impersonation in us1: %d", code)
	}
}

// TestPagesNeedATokenOfTheirOwn checks that credentials that a browser sends by itself do not
// authenticate a page, even next to an invalid token.
func TestPagesNeedATokenOfTheirOwn(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	w.write("passwords.csv", "secret,carol,u9,dev,acme\n")
	w.write("tenancy.yaml", strings.Replace(configHeader, "fairUse:",
		"  - { name: passwords, basicAuthFile: { path: passwords.csv, defaultTenant: acme } }\nfairUse:",
		1)+rootClusterEntry())
	basic := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("carol:secret"))}
	const path = "/api/v1/namespaces/acme--web/pods"
	waittest.Until(t, func() error {
		if code, text := w.get("", path, basic...); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	c.takeRequests()
	for what, more := range map[string][]string{
		"a page":                nil,
		"with an invalid token": {"Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io.eA"},
	} {
		t.Run(what, func(t *testing.T) {
			code, _ := w.get("", path, slices.Concat(basic, []string{"Origin", "https://evil.example"}, more)...)
			if sent := c.takeRequests(); code != http.StatusForbidden && code != http.StatusUnauthorized || len(sent) > 0 {
				t.Errorf("%d, %d requests forwarded", code, len(sent))
			}
		})
	}
	if code, text := w.get("alice-token", path, "Origin", "https://evil.example"); code != http.StatusOK {
		t.Errorf("with a token: %d: %s", code, text)
	}
}

// TestSlowBodiesAreAborted checks that requests with a slow or a large body are rejected, whether
// or not the caller is authenticated, and that a Connection header does not prevent this.
func TestSlowBodiesAreAborted(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.mu.Lock()
	c.handler = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
			return true
		}
		return false
	}
	c.mu.Unlock()
	for what, text := range map[string]string{
		"no credential": "POST /api/v1/namespaces/acme--web/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"a review": "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: x\r\n" +
			"Authorization: Bearer alice-token\r\nContent-Length: 1000\r\n\r\n",
		"Connection without Upgrade": "GET /api/v1/namespaces/acme--web/pods HTTP/1.1\r\nHost: x\r\n" +
			"Authorization: Bearer alice-token\r\nConnection: upgrade\r\n\r\n",
		"Connection without Upgrade, large body": "POST /api/v1/namespaces/acme--web/pods HTTP/1.1\r\nHost: x\r\n" +
			"Authorization: Bearer alice-token\r\nConnection: upgrade\r\nContent-Length: 17000000\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, reader, resp := w.raw(text)
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode < 400 {
				t.Errorf("%s, %v", resp.Status, err)
			}
			if what != "no credential" {
				return
			}
			if _, err := reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is still open after %v", time.Since(began))
			}
		})
	}
}

// TestResponsesAboutTheGatewayAreHidden checks that a cluster's response about the gateway itself
// does not reach the caller, and that redirects stay behind the gateway.
func TestResponsesAboutTheGatewayAreHidden(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	const refused = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"users \"alice\" is forbidden: ` +
		`User \"gateway\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope","code":403}`
	const own = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden: User \"alice\" ` +
		`cannot list resource \"pods\"","code":403}`
	for what, a := range map[string]struct {
		code             int
		location, body   string
		want             int
		wantBody, wantTo string
	}{
		"a redirect elsewhere":      {code: 302, location: "https://evil.example/", want: 502},
		"a redirect by two slashes": {code: 307, location: "//evil.example/", want: 502},
		"a redirect by a backslash": {code: 307, location: `/\evil.example/`, want: 502},
		"a redirect on the cluster": {
			code:     301,
			location: "/api/v1/x",
			want:     301,
			wantTo:   "/clusters/eu1/tenants/acme/api/v1/x",
		},
		"gateway unauthorized": {code: 401, body: "who?", want: 503},
		"impersonation denied": {code: 403, body: refused, want: 502},
		"caller denied": {
			code:     403,
			body:     own,
			want:     403,
			wantBody: own,
		},
		"an error": {
			code:     500,
			body:     "oh",
			want:     500,
			wantBody: "oh",
		},
	} {
		t.Run(what, func(t *testing.T) {
			c.mu.Lock()
			c.handler = func(w http.ResponseWriter, _ *http.Request) bool {
				if a.location != "" {
					w.Header().Set("Location", a.location)
				}
				w.WriteHeader(a.code)
				_, _ = io.WriteString(w, a.body)
				return true
			}
			c.mu.Unlock()
			resp := w.open(t.Context(), "alice-token", http.MethodGet,
				"/clusters/eu1/tenants/acme/api/v1/namespaces/acme--web/pods", "")
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != a.want || a.wantBody != "" && string(text) != a.wantBody ||
				resp.Header.Get("Location") != a.wantTo || a.want >= 502 && strings.Contains(string(text), "gateway\"") {
				t.Errorf("%s to %q: %s", resp.Status, resp.Header.Get("Location"), text)
			}
			if len(resp.Header["Audit-Id"]) != 1 {
				t.Errorf("%v", resp.Header["Audit-Id"])
			}
		})
	}
}

// TestFailedUpgrade checks that a request on the connection of a failed upgrade does not bypass the
// gateway (CVE-2018-1002105).
func TestFailedUpgrade(t *testing.T) {
	t.Parallel()
	w, c := newRootFixture(t)
	c.mu.Lock()
	c.handler = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		http.Error(w, "no such container", http.StatusNotFound)
		return true
	}
	c.mu.Unlock()
	conn, reader, resp := w.raw("POST /api/v1/namespaces/acme--web/pods/p/exec?command=x HTTP/1.1\r\nHost: x\r\n" +
		"Authorization: Bearer alice-token\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	if sent := c.takeRequests(); len(sent) != 1 || sent[0].identity() != aliceIdentity {
		t.Errorf("the upgrade was forwarded as %v", sent)
	}
	if _, err := io.WriteString(conn, "GET /api/v1/namespaces/globex--shop/secrets HTTP/1.1\r\nHost: x\r\n"+
		"Authorization: Bearer alice-token\r\nImpersonate-User: system:admin\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(reader, nil); err == nil && resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s", resp.Status)
	}
	if sent := c.takeRequests(); len(sent) > 0 {
		t.Errorf("%d requests forwarded", len(sent))
	}
}

// waitForEnd waits until a response has ended. It returns an error if the response ended with an
// error or did not end in time.
func waitForEnd(resp *http.Response) error {
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(eventTimeout):
		return fmt.Errorf("the response did not end")
	}
}

// TestWatchesEndWithTheirRights checks that a watch ends when its caller is revoked, its namespace
// gets another owner, or its cluster's configuration changes. Revocations and new owners do not end
// the watch of another tenant.
func TestWatchesEndWithTheirRights(t *testing.T) {
	for what, act := range map[string]func(*fixture, *fakeCluster){
		"the caller is revoked": func(w *fixture, _ *fakeCluster) {
			w.write("revoked.yaml", noRevocations+"users: [ { tenant: acme, name: alice } ]\n")
		},
		"the tenant is revoked": func(w *fixture, _ *fakeCluster) {
			w.write("revoked.yaml", noRevocations+"tenants: [ { name: acme } ]\n")
		},
		"the namespace has a new owner": func(_ *fixture, c *fakeCluster) { c.setOwner("acme--web", "initech") },
		"the cluster was removed": func(w *fixture, c *fakeCluster) {
			w.write("tenancy.yaml", configHeader+strings.Replace(clusterEntry("other", ""), "other-", "eu1-", 2))
		},
		"the tenant map changed": func(w *fixture, c *fakeCluster) {
			w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", root: true, tenantMap: { acme: acme-eu }"))
		},
		"the identity map changed": func(w *fixture, c *fakeCluster) {
			w.write("tenancy.yaml", configHeader+clusterEntry("eu1", ", root: true, identity: { withUID: true }"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, c := newRootFixture(t)
			resp := w.open(t.Context(), "alice-token", http.MethodGet, "/api/v1/namespaces/acme--web/pods?watch=1", "")
			defer func() { _ = resp.Body.Close() }()
			ctx, stop := context.WithCancel(t.Context())
			others := w.open(ctx, "bob-token", http.MethodGet, "/api/v1/namespaces/globex--shop/pods?watch=1", "")
			defer func() { _ = others.Body.Close() }()
			if resp.StatusCode != http.StatusOK || others.StatusCode != http.StatusOK {
				t.Fatalf("%s, %s", resp.Status, others.Status)
			}
			act(w, c)
			if err := waitForEnd(resp); err != nil {
				t.Errorf("%v", err)
			}
			if !strings.Contains(what, "cluster") && !strings.Contains(what, "map") {
				ended := make(chan struct{})
				go func() { _, _ = io.Copy(io.Discard, others.Body); close(ended) }()
				select {
				case <-ended:
					t.Error("the watch of another tenant ended")
				case <-time.After(200 * time.Millisecond):
				}
			}
			stop()
		})
	}
}

// TestStreamLimitIsPerTenant checks that only the tenant with too many streams gets 429, and only
// for streams.
func TestStreamLimitIsPerTenant(t *testing.T) {
	t.Parallel()
	w, _ := newRootFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	codes := map[int]int{}
	for range 6 {
		resp := w.open(ctx, "alice-token", http.MethodGet, "/api/v1/namespaces/acme--web/pods?watch=1", "")
		codes[resp.StatusCode]++
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Error("the response has no Retry-After header")
		}
		defer func() { _ = resp.Body.Close() }()
	}
	if codes[200] != 4 || codes[429] != 2 {
		t.Errorf("%v", codes)
	}
	if resp := w.open(ctx, "bob-token", http.MethodGet, "/api/v1/namespaces/globex--shop/pods?watch=1",
		""); resp.StatusCode != http.StatusOK {
		t.Errorf("another tenant's: %s", resp.Status)
	}
	if code, _ := w.get("alice-token", "/api/v1/namespaces/acme--web/pods"); code != http.StatusOK {
		t.Errorf("a request that is not a stream: %d", code)
	}
	stop()
	waittest.Until(t, func() error {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if resp := w.open(ctx, "alice-token", http.MethodGet, "/api/v1/namespaces/acme--web/pods?watch=1",
			""); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
}

// TestBrokenClusterAffectsNoOther checks that requests to a cluster that hangs, resets or is gone
// fail within bounded time, and that other clusters are not affected.
func TestBrokenClusterAffectsNoOther(t *testing.T) {
	t.Parallel()
	eu, us := newFakeCluster(t, defaultNamespaces()), newFakeCluster(t, defaultNamespaces())
	w := newFixture(t, clusterEntry("eu1", "")+clusterEntry("us1", ""), map[string]*fakeCluster{"eu1": eu, "us1": us})
	const path = "/api/v1/namespaces/acme--web/pods"
	for what, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		want   int
	}{
		"no response":      {func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, 504},
		"connection reset": {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, 503},
	} {
		t.Run(what, func(t *testing.T) {
			eu.mu.Lock()
			eu.handler = c.answer
			eu.mu.Unlock()
			code, text := w.get("alice-token", "/clusters/eu1"+path)
			if code != c.want || strings.Contains(text, "127.0.0.1") {
				t.Errorf("%d, want %d: %s", code, c.want, text)
			}
			if code, text := w.get("alice-token", "/clusters/us1"+path); code != http.StatusOK {
				t.Errorf("%s, another cluster: %d: %s", what, code, text)
			}
		})
	}
	eu.CloseClientConnections()
	eu.Close()
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/clusters/eu1"+path); code != http.StatusForbidden {
			return fmt.Errorf("the cached data of an unreachable cluster is still used: %d: %s", code, text)
		}
		return nil
	})
	if code, text := w.get("alice-token", "/clusters/us1"+path); code != http.StatusOK {
		t.Errorf("another cluster: %d: %s", code, text)
	}
	// An invalid version of the configuration has no effect, and a later valid version applies.
	w.write(
		"tenancy.yaml",
		configHeader+clusterEntry("eu1", "")+clusterEntry("us2", "")+
			strings.ReplaceAll(clusterEntry("us3", ""), "us3-", "us1-"),
	)
	time.Sleep(3 * reload.Interval) // no response shows that the configuration is rejected
	if code, _ := w.get("alice-token", "/clusters/us1"+path); code != http.StatusOK {
		t.Errorf("a configuration that names a missing file applies: %d", code)
	}
	w.write(
		"tenancy.yaml",
		configHeader+clusterEntry("eu1", "")+strings.ReplaceAll(clusterEntry("us3", ""), "us3-", "us1-"),
	)
	waittest.Until(t, func() error {
		if code, text := w.get("alice-token", "/clusters/us3"+path); code != http.StatusOK {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
}

// TestLogsContainNoTokens checks that neither logs nor responses contain a credential, at verbosity
// 8 and 10. Above 8, client-go also logs times of connections, which it reads while another dial of
// the same transport writes them (transport/round_trippers.go, debuggingRoundTripper, release
// 1.37). To avoid this race, the test opens the connections at verbosity 8.
func TestLogsContainNoTokens(t *testing.T) {
	log, end, err := authntest.CaptureLog(8)
	if err != nil {
		t.Fatal(err)
	}
	w, c := newRootFixture(t)
	account := c.token(t, "system:serviceaccount:acme--web:builder")
	responses := ""
	for _, level := range []int{8, 10} {
		if err := log.Verbose(level); err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{
			"alice-token", "CANARY-token", account, account + "x",
			c.tokenUntil(t, fmt.Sprintf("system:serviceaccount:acme--web:b%d", level), time.Now().Add(time.Hour)),
		} {
			_, text := w.get(token, "/api/v1/namespaces/acme--web/pods")
			responses += text
		}
	}
	end()
	if !strings.Contains(log.String(), "curl") {
		t.Error("requests to the cluster are not logged")
	}
	for _, secret := range []string{
		"alice-token", "CANARY-token", account[len(account)-40:], impersonatorToken, readerToken,
	} {
		if strings.Contains(log.String(), secret) || strings.Contains(responses, secret) {
			t.Errorf("%s... is in the log or a response", secret[:6])
		}
	}
	if log.String() == "" {
		t.Error("nothing is logged")
	}
}
