// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// delegateReviews enables delegatedReviews in the configuration of a server.
func delegateReviews(t *testing.T, s *server) {
	t.Helper()
	s.write(t, "tenancy.yaml", s.read(t, "tenancy.yaml")+"authorization: { delegatedReviews: true }\n")
}

// reviewsAreDelegated checks that a tenant's server can delegate authentication and authorization
// to the cluster, as servers that use k8s.io/apiserver do. The cluster must accept only tokens of
// the tenant's callers, and must not allow access to another tenant's namespace.
func reviewsAreDelegated(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	for _, namespace := range []string{"acme--web", "globex--shop"} {
		if _, err := admin.CoreV1().ServiceAccounts(namespace).Get(t.Context(),
			"robot", metav1.GetOptions{}); apierrors.IsNotFound(err) {
			account(t, admin, namespace)
		}
	}
	bind(t, admin, "robot-delegates", "system:auth-delegator",
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "acme--web", Name: "robot"})
	own, others := request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{}),
		request(t, admin, "globex--shop", authenticationv1.TokenRequestSpec{})
	robot := client(t, withToken(s.config(t, "acme"), own))
	none := wait.Backoff{Steps: 1}
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:  robot.AuthenticationV1(),
		WebhookRetryBackoff:      &none,
		TokenAccessReviewTimeout: 10 * time.Second,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: robot.AuthorizationV1(),
		WebhookRetryBackoff:       &none,
		AllowCacheTTL:             time.Nanosecond,
		DenyCacheTTL:              time.Nanosecond,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	bearing := func(token string) (user.Info, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/", http.NoBody)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, ok, err := authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			return nil, fmt.Errorf("the token is not authenticated: %w", err)
		}
		return resp.User, nil
	}
	var u user.Info
	waittest.Until(t, func() error { // until the role and the configuration take effect
		var err error
		u, err = bearing(own)
		return err
	})
	if u.GetName() != "system:serviceaccount:acme--web:robot" {
		t.Errorf("own token: %+v", u)
	}
	for what, token := range map[string]string{"another tenant's token": others, "unknown token": "x"} {
		if u, err := bearing(token); err == nil {
			t.Errorf("%s: %+v", what, u)
		}
	}
	decide := func(u user.Info, namespace string) (authorizer.Decision, string) {
		decision, reason, err := delegating.Authorize(t.Context(), authorizer.AttributesRecord{
			User:            u,
			Verb:            "list",
			Resource:        "pods",
			Namespace:       namespace,
			APIVersion:      "v1",
			ResourceRequest: true,
		})
		if err != nil {
			t.Error(err)
		}
		return decision, reason
	}
	members := &user.DefaultInfo{Name: "carol", Groups: []string{"admins", "tenant:acme", user.AllAuthenticated}}
	if decision, reason := decide(members, "acme--web"); decision != authorizer.DecisionAllow {
		t.Errorf("caller of the server's tenant: %v, %s", decision, reason)
	}
	decide(u, "acme--web") // must not fail, but the decision depends on the deployment mode
	for what, subject := range map[string]user.Info{
		"another tenant's namespace":       members,
		"caller of another tenant":         &user.DefaultInfo{Name: "x", Groups: []string{"tenant:globex"}},
		"system:masters":                   &user.DefaultInfo{Name: "x", Groups: []string{user.SystemPrivilegedGroup}},
		"another tenant's service account": &user.DefaultInfo{Name: "system:serviceaccount:globex--shop:robot"},
	} {
		if decision, reason := decide(subject, "globex--shop"); decision == authorizer.DecisionAllow {
			t.Errorf("%s: %v, %s", what, decision, reason)
		}
	}
	// A caller without the role system:auth-delegator may not create reviews.
	carol := s.client(t, "globex")
	_, err = carol.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: others}}, metav1.CreateOptions{})
	_, also := carol.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "x",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/api"},
		}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.IsForbidden(also) {
		t.Errorf("without a role: %v", errors.Join(err, also))
	}
}
