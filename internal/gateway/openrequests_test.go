// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestRevocationEndsUnfinishedRequests checks that a request does not reach the cluster if its
// caller or tenant was revoked before the last byte of its body arrived. The caller gets 503.
func TestRevocationEndsUnfinishedRequests(t *testing.T) {
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview",` +
		`"spec":{"resourceAttributes":{"namespace":"globex--shop","verb":"list","resource":"pods"}}}`
	const tokenReview = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"x"}}`
	for what, r := range map[string]struct{ caller, method, path, body string }{
		"a ClusterRoleBinding": {"root", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "{}"},
		"a ConfigMap outside":  {"root", "POST", "/api/v1/namespaces/default/configmaps", "{}"},
		"a Tenant":             {"root", "PUT", "/apis/kubetenant.dev/v1alpha1/tenants/acme", "{}"},
		"a Namespace":          {"alice", "POST", "/api/v1/namespaces", "{}"},
		"an own Namespace":     {"alice", "PATCH", "/api/v1/namespaces/acme--web", "{}"},
		"a ConfigMap":          {"alice", "POST", "/api/v1/namespaces/acme--web/configmaps", "{}"},
		"a list":               {"alice", "DELETE", "/api/v1/namespaces/acme--web/configmaps", "{}"},
		"a review":             {"alice", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review},
		"a review of a token":  {"alice", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", tokenReview},
	} {
		for by, revoked := range map[string]string{
			"caller": "users: [ { tenant: %s, name: %s } ]\n",
			"tenant": "tenants: [ { name: %s } ] # with %s\n",
		} {
			if by == "tenant" && r.caller == "root" { // the system tenant cannot be revoked
				continue
			}
			t.Run(what+", revoked "+by, func(t *testing.T) {
				t.Parallel()
				c := newFakeCluster(t, defaultNamespaces())
				c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
				w := newFixture(t, clusterEntry("eu1", ", root: true")+"authorization: { delegatedReviews: true }\n",
					map[string]*fakeCluster{"eu1": c})
				conn := w.dial("http/1.1")
				if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s-token\r\n"+
					"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
					r.method, r.path, r.caller, len(r.body)); err != nil {
					t.Fatal(err)
				}
				from := bufio.NewReader(conn)
				if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
					t.Fatalf("the gateway does not read the body: %q, %v", line, err)
				}
				if _, err := from.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(conn, r.body[:len(r.body)-1]); err != nil {
					t.Fatal(err)
				}
				// The end of this watch shows that the revocation has ended the caller's
				// sessions.
				path := map[string]string{"root": "/api/v1/nodes", "alice": "/api/v1/namespaces/acme--web/pods"}[r.caller]
				ended := streamEnd(w.open(t.Context(), r.caller+"-token", http.MethodGet, path+"?watch=1", ""))
				tenant := map[string]string{"root": "system", "alice": "acme"}[r.caller]
				w.write("revoked.yaml", noRevocations+fmt.Sprintf(revoked, tenant, r.caller))
				waittest.Until(t, func() error {
					if code, _ := w.get(r.caller+"-token", path); code == http.StatusOK {
						return fmt.Errorf("%d", code)
					}
					return nil
				})
				<-ended
				_, _ = io.WriteString(conn, r.body[len(r.body)-1:]) // the connection may have ended
				resp, err := http.ReadResponse(from, nil)
				if err != nil {
					t.Fatal(err)
				}
				if code, text := w.read(resp, nil); code != http.StatusServiceUnavailable {
					t.Errorf("%d: %s", code, text)
				}
				for _, sent := range c.takeRequests() {
					if sent.Method == r.method && sent.body == r.body {
						t.Errorf("the request reached the cluster: %s %s", sent.Method, sent.URL.Path)
					}
				}
			})
		}
	}
}
