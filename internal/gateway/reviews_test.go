// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestDelegatedReviews checks that callers can review tokens and subjects of their own tenant
// only, under the names in the cluster. The gateway forwards neither the review nor the token in
// it.
func TestDelegatedReviews(t *testing.T) {
	t.Parallel()
	eu := newFakeCluster(t, map[string]string{"acme--web": "acme-eu", "globex--shop": "globex"})
	entry := strings.Replace(
		clusterEntry("eu1", ", tenantMap: { acme: acme-eu }, serviceAccounts: { tokens: Pass, issuers: "+
			"[\"https://kubernetes.default.svc\"] }"),
		`["*", system]`,
		"[acme, globex, system]",
		1,
	)
	w := newFixture(t, entry+"authorization: { delegatedReviews: true }\n", map[string]*fakeCluster{"eu1": eu})
	w.write("tokens.csv", "alice-token,alice,u1,\"dev,ops\",,acme\nbob-token,bob,u2,dev,,globex\n"+
		"carol-token,carol,u4,dev,,initech\nroot-token,root,u3,,,system\n")
	waittest.Until(t, func() error { // this tenant may not use the cluster
		if code, text := w.get("carol-token", "/clusters/eu1/api"); code != http.StatusForbidden {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	own, others := eu.token(t, "system:serviceaccount:acme--web:builder"),
		eu.token(t, "system:serviceaccount:globex--shop:builder")
	var reviews []authorizationv1.SubjectAccessReviewSpec // reviews about subjects
	eu.update(func() {
		eu.allow = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
			if spec.ResourceAttributes.Resource == "pods" {
				reviews = append(reviews, spec)
			}
			return true
		}
	})
	const tokens = "/clusters/eu1/apis/authentication.k8s.io/v1/tokenreviews"
	reviewToken := func(as, token string) authenticationv1.TokenReviewStatus {
		t.Helper()
		code, text := w.do(as, http.MethodPost, tokens,
			fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, token),
			"Content-Type", "application/json")
		review := authenticationv1.TokenReview{}
		if err := json.Unmarshal([]byte(text), &review); code != http.StatusCreated || err != nil {
			t.Fatalf("%d: %s", code, text)
		}
		return review.Status
	}
	for token, want := range map[string]string{
		"alice-token": "alice acme-eu",
		own:           "system:serviceaccount:acme--web:builder ",
		"bob-token":   "",
		others:        "",
		"carol-token": "",
		"root-token":  "",
		"nobody's":    "",
	} {
		t.Run(token, func(t *testing.T) {
			status := reviewToken("alice-token", token)
			extra := strings.Join(status.User.Extra["kubetenant.dev/tenant"], ",")
			switch {
			case want == "" && (status.Authenticated || status.User.Username != "" || status.Error != ""):
				t.Errorf("token %.20s: %+v", token, status)
			case want != "" && (!status.Authenticated || !strings.HasPrefix(status.User.Username+" "+extra, want)):
				t.Errorf("token %.20s: %+v, want %q", token, status, want)
			}
		})
	}
	if sent := eu.takeRequests(); len(sent) > 0 {
		t.Errorf("reviews of tokens were forwarded: %v", sent[0].identity())
	}
	for subject, want := range map[string]bool{
		`"user":"dave"`: true,
		`"user":"system:serviceaccount:acme--web:builder"`:           true,
		`"user":"dave","groups":["tenant:acme-eu"]`:                  true,
		`"user":"dave","groups":["tenant:globex"]`:                   false,
		`"user":"system:serviceaccount:globex--shop:builder"`:        false,
		`"user":"system:admin"`:                                      false,
		`"user":"dave","groups":["system:masters"]`:                  false,
		`"user":"dave","extra":{"kubetenant.dev/tenant":["globex"]}`: false,
	} {
		t.Run(subject, func(t *testing.T) {
			for namespace, isOwn := range map[string]bool{"acme--web": true, "globex--shop": false} {
				eu.update(func() { reviews = nil })
				code, text := w.do(
					"alice-token",
					http.MethodPost,
					"/clusters/eu1/apis/authorization.k8s.io/v1/subjectaccessreviews",
					fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview",`+
						`"spec":{%s,"resourceAttributes":{"namespace":%q,"verb":"get","resource":"pods"}}}`,
						subject, namespace),
					"Content-Type",
					"application/json",
				)
				review := authorizationv1.SubjectAccessReview{}
				if err := json.Unmarshal([]byte(text), &review); code != http.StatusCreated || err != nil {
					t.Fatalf("%d: %s", code, text)
				}
				if review.Status.Allowed != (want && isOwn) {
					t.Errorf("%s in %s: %+v", subject, namespace, review.Status)
				}
				eu.update(func() {
					allowed := want && isOwn
					if allowed &&
						(len(reviews) != 1 ||
							!slices.Contains(reviews[0].Groups, "tenant:acme-eu") != strings.Contains(subject, "serviceaccount")) {
						t.Errorf("%s in %s: the cluster received the reviews %+v", subject, namespace, reviews)
					}
					if !allowed && len(reviews) > 0 {
						t.Errorf("%s in %s: the cluster received the reviews %+v", subject, namespace, reviews)
					}
				})
			}
		})
	}
	if sent := eu.takeRequests(); len(sent) > 0 {
		t.Errorf("reviews of subjects were forwarded: %v", sent[0].identity())
	}
	// The revocation contains the tenant's name in the configuration, not its name in the cluster.
	w.write("revoked.yaml",
		noRevocations+"users: [ { tenant: acme, name: \"system:serviceaccount:acme--web:builder\" } ]\n")
	waittest.Until(t, func() error {
		if status := reviewToken("alice-token", own); status.Authenticated {
			return fmt.Errorf("the token of a revoked user: %+v", status)
		}
		return nil
	})
}
