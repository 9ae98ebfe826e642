// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestCallersCannotUseGatewayNames checks that the gateway rejects a caller that has, or
// impersonates, the name of one of the gateway's accounts. Otherwise, the caller would have the
// account's rights, including impersonation.
func TestCallersCannotUseGatewayNames(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	w := newFixture(t, clusterEntry("eu1", ", root: true"), map[string]*fakeCluster{"eu1": c})
	w.write("tokens.csv", "alice-token,alice,u1,dev,,acme\nacts-token,"+impersonatorName+",u2,dev,,acme\nreads-token,"+
		readerName+",u3,dev,,system\nroot-token,root,u4,\"system:masters\",,system\n")
	w.waitForStatus(http.StatusForbidden, "acts-token", podsPath)
	c.takeRequests()
	for what, attempt := range map[string]func() (int, string){
		"the impersonator": func() (int, string) { return w.get("acts-token", podsPath) },
		"the impersonator, as carol": func() (int, string) {
			return w.get("acts-token", podsPath, "Impersonate-User", "carol")
		},
		"the reader": func() (int, string) { return w.get("reads-token", "/api/v1/nodes") },
		"root, as the impersonator": func() (int, string) {
			return w.get("root-token", podsPath, "Impersonate-User", impersonatorName,
				"Impersonate-Extra-Kubetenant.dev%2ftenant", "acme")
		},
		"root, as the reader": func() (int, string) {
			return w.get("root-token", podsPath, "Impersonate-User", readerName, "Impersonate-Extra-Kubetenant.dev%2ftenant",
				"acme")
		},
	} {
		t.Run(what, func(t *testing.T) {
			if code, text := attempt(); code != http.StatusForbidden ||
				!strings.Contains(text, "the name belongs to an account "+
					"of the gateway") {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
	if sent := c.takeRequests(); len(sent) > 0 {
		t.Errorf("%d requests were forwarded, the first as %s", len(sent), sent[0].identity())
	}
	if code, text := w.get("root-token", podsPath, "Impersonate-User", "carol",
		"Impersonate-Extra-Kubetenant.dev%2ftenant", "acme"); code != http.StatusOK {
		t.Errorf("root, as carol: %d: %s", code, text)
	}
}

// TestCallersDeniedWhileGatewayNamesUnknown checks that callers are rejected until the cluster
// reports the gateway's names. If a cluster does not support SelfSubjectReviews, callers are
// accepted.
func TestCallersDeniedWhileGatewayNamesUnknown(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ code, want int }{
		"reviews not supported": {http.StatusNotFound, http.StatusOK},
		"reviews forbidden":     {http.StatusForbidden, http.StatusServiceUnavailable},
		"empty response":        {http.StatusOK, http.StatusServiceUnavailable},
		"internal error":        {http.StatusInternalServerError, http.StatusServiceUnavailable},
		"gateway unauthorized":  {http.StatusUnauthorized, http.StatusServiceUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			known := newFakeCluster(t, defaultNamespaces())
			w := newFixture(t, clusterEntry("eu1", ""), map[string]*fakeCluster{"eu1": known})
			other := newFakeCluster(t, defaultNamespaces())
			other.readerHandler = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.code)
				}
				return strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
			}
			other.kubeconfig(t, filepath.Join(w.dir, "us1-reader"), readerToken)
			other.kubeconfig(t, filepath.Join(w.dir, "us1-imp"), impersonatorToken)
			w.write("tenancy.yaml", configHeader+clusterEntry("eu1", "")+clusterEntry("us1", ""))
			w.waitForStatus(c.want, "alice-token", "/clusters/us1"+podsPath)
			if code, text := w.get("alice-token", "/clusters/us1"+podsPath); code != c.want {
				t.Errorf("%d: %s", code, text)
			}
			if code, text := w.getAgain("alice-token", "/clusters/eu1"+podsPath); code != http.StatusOK {
				t.Errorf("another cluster: %d: %s", code, text)
			}
		})
	}
}

// TestReviewsRejectGatewayNames checks that a delegated review of the gateway's own user
// authenticates no token and allows no access. The server that sent the review would trust the
// result.
func TestReviewsRejectGatewayNames(t *testing.T) {
	t.Parallel()
	c := newFakeCluster(t, defaultNamespaces())
	c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	w := newFixture(t, clusterEntry("eu1", ", root: true")+"authorization: { delegatedReviews: true }\n",
		map[string]*fakeCluster{"eu1": c})
	w.write("tokens.csv",
		"alice-token,alice,u1,dev,,acme\ncarol-token,carol,u2,dev,,acme\nacts-token,"+impersonatorName+",u3,dev,,acme\n")
	w.waitForStatus(http.StatusForbidden, "acts-token", podsPath)
	tokenReview := func(token string) (int, string) {
		return w.do("alice-token", http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+token+`"}}`)
	}
	accessReview := func(name string) (int, string) {
		return w.do("alice-token", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"`+name+
				`","extra":{"kubetenant.dev/tenant":["acme"]},"resourceAttributes":{"namespace":"acme--web","verb":"get",`+
				`"resource":"pods"}}}`)
	}
	for what, reviews := range map[string]struct {
		somebodys, gateways func() (int, string)
		yes                 string
	}{
		"a token": {
			func() (int, string) { return tokenReview("carol-token") },
			func() (int, string) { return tokenReview("acts-token") },
			`"authenticated":true`,
		},
		"a subject": {
			func() (int, string) { return accessReview("carol") },
			func() (int, string) { return accessReview(impersonatorName) },
			`"allowed":true`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			if code, text := reviews.somebodys(); code != http.StatusCreated || !strings.Contains(text, reviews.yes) {
				t.Errorf("%s of carol: %d: %s", what, code, text)
			}
			if code, text := reviews.gateways(); strings.Contains(text, reviews.yes) {
				t.Errorf("%s of the gateway: %d: %s", what, code, text)
			}
		})
	}
}
