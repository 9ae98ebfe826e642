// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const (
	robot      = "system:serviceaccount:shared:robot"
	sharedPath = "/api/v1/namespaces/shared/"
	reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews"
)

// newSharedFixture returns a gateway in front of a cluster in which acme owns the namespace
// "shared".
func newSharedFixture(t *testing.T) (*fixture, *fakeCluster) {
	t.Helper()
	c := newFakeCluster(t, map[string]string{"shared": "acme", "globex--shop": "globex", "acme--web": "acme"})
	c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	w := newFixture(t, clusterEntry("eu1", ", root: true, serviceAccounts: { tokens: Pass, issuers: "+
		"[\"https://kubernetes.default.svc\"] }")+"authorization: { delegatedReviews: true }\n",
		map[string]*fakeCluster{"eu1": c})
	return w, c
}

// reviewToken returns the status of a TokenReview that a caller sends.
func (w *fixture) reviewToken(caller, token string) (authenticationv1.TokenReviewStatus, error) {
	code, text := w.do(caller, http.MethodPost, reviewPath,
		fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, token),
		"Content-Type", "application/json")
	review := authenticationv1.TokenReview{}
	if err := json.Unmarshal([]byte(text), &review); code != http.StatusCreated || err != nil {
		return review.Status, fmt.Errorf("%d: %s", code, text)
	}
	return review.Status, nil
}

// TestTokensOfARecreatedNamespaceAreRejected checks that a service account's token is rejected
// after its namespace was deleted and created again, for the same or another tenant. The test
// presents the token directly, with impersonation, and in a TokenReview. The fake cluster still
// accepts the token, like a server that has cached it.
func TestTokensOfARecreatedNamespaceAreRejected(t *testing.T) {
	for _, owner := range []string{"globex", "acme"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			w, c := newSharedFixture(t)
			old := c.token(t, robot)
			if code, text := w.get(old, sharedPath+"pods"); code != http.StatusOK {
				t.Fatalf("%d: %s", code, text)
			}
			if code, text := w.get(old, sharedPath+"pods", "Impersonate-User", robot); code != http.StatusOK {
				t.Fatalf("%d: %s", code, text)
			}
			c.recreate("shared", owner)
			// The reviewer may access the namespace.
			reviewer := map[string]string{"globex": "bob-token", "acme": "alice-token"}[owner]
			waittest.Until(t, func() error {
				code, _ := w.get(reviewer, sharedPath+"pods")
				if code != http.StatusOK {
					return fmt.Errorf("%d", code)
				}
				if code, _ = w.get(old, sharedPath+"pods"); code != http.StatusUnauthorized {
					return fmt.Errorf("the old token: %d", code)
				}
				return nil
			})
			c.takeRequests()
			for as, headers := range map[string][]string{
				"without impersonation":             nil,
				"impersonating itself":              {"Impersonate-User", robot},
				"impersonating a user":              {"Impersonate-User", "carol"},
				"impersonating itself with a group": {"Impersonate-User", robot, "Impersonate-Group", "system:serviceaccounts"},
			} {
				for _, r := range []struct{ method, path string }{
					{http.MethodGet, sharedPath + "pods"},
					{http.MethodGet, sharedPath + "secrets/s"},
					{http.MethodGet, sharedPath + "pods?watch=1"},
					{http.MethodPost, sharedPath + "configmaps"},
					{http.MethodPut, sharedPath + "configmaps/c"},
					{http.MethodPatch, sharedPath + "configmaps/c"},
					{http.MethodDelete, sharedPath + "configmaps/c"},
					{http.MethodDelete, sharedPath + "configmaps"},
					{http.MethodPost, sharedPath + "serviceaccounts/robot/token"},
					{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"},
					{http.MethodPost, reviewPath},
					{http.MethodPost, "/api/v1/namespaces"},
					{http.MethodGet, "/api"},
				} {
					t.Run(r.method+" "+r.path+" "+as, func(t *testing.T) {
						if code, text := w.do(old, r.method, r.path, "{}", headers...); code != http.StatusUnauthorized {
							t.Errorf("%d: %s", code, text)
						}
					})
				}
			}
			if sent := c.takeRequests(); len(sent) > 0 {
				t.Errorf("%d requests reached the cluster, the first as %s", len(sent), sent[0].identity())
			}
			if status, err := w.reviewToken(reviewer, old); err != nil || status.Authenticated {
				t.Errorf("a review of the old token: %+v, %v", status, err)
			}
			for range 1000 { // these requests do not use the budget of the new namespace
				w.get(old, sharedPath+"pods", "Impersonate-User", robot)
			}
			now := c.tokenBetween(t, robot, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
			if code, text := w.get(now, sharedPath+"pods", "Impersonate-User", robot); code != http.StatusOK {
				t.Errorf("a token of the new namespace: %d: %s", code, text)
			}
			if status, err := w.reviewToken(reviewer, now); err != nil || status.User.Username != robot {
				t.Errorf("a review of a token of the new namespace: %+v, %v", status, err)
			}
		})
	}
}

// TestTokensWithoutIssueTimeAreRejected checks that a token is rejected if it has no valid time of
// issue, or if it was issued before its namespace was created.
func TestTokensWithoutIssueTimeAreRejected(t *testing.T) {
	t.Parallel()
	w, c := newSharedFixture(t)
	for what, issued := range map[string]time.Time{
		"the epoch":                   time.Unix(0, 0),
		"no time":                     time.Unix(-1, 0),
		"a time in the far future":    time.Unix(1<<41, 0),
		"the time of the namespace":   c.started.Add(-time.Hour),
		"a second before it":          c.started.Add(-time.Hour - time.Second),
		"a second after it":           c.started.Add(-time.Hour + time.Second),
		"longer than a minute before": c.started.Add(-2 * time.Hour),
	} {
		t.Run(what, func(t *testing.T) {
			want := http.StatusUnauthorized
			if strings.HasPrefix(what, "the time") || strings.HasSuffix(what, "after it") {
				want = http.StatusOK
			}
			token := c.tokenBetween(t, robot, issued, time.Now().Add(time.Hour))
			for _, headers := range [][]string{nil, {"Impersonate-User", robot}} {
				if code, text := w.get(token, sharedPath+"pods", headers...); code != want {
					t.Errorf("%d, want %d: %s", code, want, text)
				}
			}
		})
	}
}

// TestStoredReviews checks that a stored result of a TokenReview is used only for requests that are
// forwarded with the token. The namespace must still have the same owner.
func TestStoredReviews(t *testing.T) {
	t.Parallel()
	w, c := newSharedFixture(t)
	token := c.token(t, robot)
	reviews := func(attempt func() error) (n int) {
		t.Helper()
		c.update(func() { c.tokenReviews = 0 })
		for range 3 {
			if err := attempt(); err != nil {
				t.Error(err)
			}
		}
		c.update(func() { n = c.tokenReviews })
		return n
	}
	get := func(headers ...string) func() error {
		return func() error {
			if code, text := w.get(token, sharedPath+"pods", headers...); code != http.StatusOK {
				return fmt.Errorf("%d: %s", code, text)
			}
			return nil
		}
	}
	if n := reviews(get()); n != 1 {
		t.Errorf("with its own token: %d reviews, want 1", n)
	}
	if n := reviews(get("Impersonate-User", robot)); n != 3 {
		t.Errorf("with impersonation: %d reviews, want 3", n)
	}
	if n := reviews(func() error {
		status, err := w.reviewToken("alice-token", token)
		if err == nil && !status.Authenticated {
			err = errors.New("the token is not authenticated")
		}
		return err
	}); n != 3 {
		t.Errorf("reviewed by another caller: %d reviews, want 3", n)
	}
	if n := reviews(func() error { _, err := w.reviewToken(token, "another"); return err }); n != 3 {
		t.Errorf("as the caller of a review: %d reviews, want 3", n)
	}
	// The token of a deleted account is rejected immediately, unless the cluster itself checks
	// the token.
	c.update(func() { delete(c.tokens, token) })
	if code, _ := w.get(token, sharedPath+"pods", "Impersonate-User", robot); code != http.StatusUnauthorized {
		t.Errorf("impersonation by a deleted account: %d", code)
	}
	if status, err := w.reviewToken("alice-token", token); err != nil || status.Authenticated {
		t.Errorf("review of a deleted account: %+v, %v", status, err)
	}
	if code, _ := w.get(token, sharedPath+"pods"); code != http.StatusOK {
		t.Errorf("a request that the cluster checks: %d", code)
	}
	c.setOwner("shared", "globex") // this changes the label of the namespace
	waittest.Within(t, 5*time.Second, func() error {
		if code, _ := w.get(token, sharedPath+"pods"); code != http.StatusUnauthorized {
			return fmt.Errorf("after its namespace got another owner: %d", code)
		}
		return nil
	})
}

// storedDecisions returns requests of a caller of acme whose decisions the gateway stores. All of
// them name the namespace "shared".
func storedDecisions() map[string]func(w *fixture) (int, string) {
	return map[string]func(w *fixture) (int, string){
		"impersonation": func(w *fixture) (int, string) {
			return w.get("alice-token", "/api/v1/namespaces/acme--web/pods", "Impersonate-User", robot)
		},
		"impersonation of a user": func(w *fixture) (int, string) {
			return w.get("alice-token", sharedPath+"pods", "Impersonate-User", "carol")
		},
		"review": func(w *fixture) (int, string) {
			code, text := w.do("alice-token", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
				`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"`+robot+
					`","resourceAttributes":{"namespace":"acme--web","verb":"list","resource":"pods"}}}`,
				"Content-Type", "application/json")
			if code == http.StatusCreated && strings.Contains(text, `"allowed":true`) {
				code = http.StatusOK
			}
			return code, text
		},
	}
}

// newDecisionFixture returns a gateway that has stored the decision of a request, and the number
// of SubjectAccessReviews that the cluster has received.
func newDecisionFixture(
	t *testing.T,
	allowed *atomic.Bool,
	attempt func(w *fixture) (int, string),
) (*fixture, *fakeCluster, *atomic.Int64) {
	t.Helper()
	w, c := newSharedFixture(t)
	reviews := &atomic.Int64{}
	c.update(func() {
		c.allow = func(authorizationv1.SubjectAccessReviewSpec) bool { reviews.Add(1); return allowed.Load() }
	})
	for range 2 {
		if code, text := attempt(w); code != http.StatusOK {
			t.Fatalf("%d: %s", code, text)
		}
	}
	before := reviews.Load()
	if code, _ := attempt(w); code != http.StatusOK || reviews.Load() != before {
		t.Fatalf("the decision is not stored: %d, %d more reviews", code, reviews.Load()-before)
	}
	return w, c, reviews
}

// TestNamespaceChangeDropsDecisions checks that the cluster decides again after a namespace in the
// request was created again or got another owner. This applies to impersonation and to the subject
// of a review.
func TestNamespaceChangeDropsDecisions(t *testing.T) {
	for what, change := range map[string]func(w *fixture, c *fakeCluster){
		"created again": func(_ *fixture, c *fakeCluster) { c.recreate("shared", "acme") },
		"another owner": func(_ *fixture, c *fakeCluster) { c.setOwner("shared", "globex") },
		"another owner and back": func(w *fixture, c *fakeCluster) {
			c.setOwner("shared", "globex")
			w.waitForStatus(http.StatusForbidden, "alice-token", sharedPath+"pods")
			c.setOwner("shared", "acme")
		},
	} {
		for way, attempt := range storedDecisions() {
			t.Run(what+"/"+way, func(t *testing.T) {
				t.Parallel()
				allowed := &atomic.Bool{}
				allowed.Store(true)
				w, c, _ := newDecisionFixture(t, allowed, attempt)
				allowed.Store(false)
				change(w, c)
				waittest.Within(t, 5*time.Second, func() error { // before the stored decision expires
					if code, text := attempt(w); code == http.StatusOK {
						return fmt.Errorf("%d: %s", code, text)
					}
					return nil
				})
			})
		}
	}
}

// TestOtherTenantsKeepStoredDecisions checks that stored decisions about other tenants' requests
// are still used when a tenant creates and deletes its namespaces.
func TestOtherTenantsKeepStoredDecisions(t *testing.T) {
	for way, attempt := range storedDecisions() {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			allowed := &atomic.Bool{}
			allowed.Store(true)
			w, c, reviews := newDecisionFixture(t, allowed, attempt)
			before := reviews.Load()
			for range 3 {
				c.recreate("globex--shop", "globex")
				c.setOwner("globex--shop", "initech")
				waittest.Until(t, func() error { // until the gateway has observed the change
					if code, _ := w.get("bob-token", "/api/v1/namespaces/globex--shop/pods"); code != http.StatusForbidden {
						return fmt.Errorf("%d", code)
					}
					return nil
				})
				if code, text := attempt(w); code != http.StatusOK {
					t.Fatalf("%d: %s", code, text)
				}
				c.setOwner("globex--shop", "globex")
				w.waitForStatus(http.StatusOK, "bob-token", "/api/v1/namespaces/globex--shop/pods")
			}
			if more := reviews.Load() - before; more != 0 {
				t.Errorf("the cluster decided %d times again", more)
			}
		})
	}
}
