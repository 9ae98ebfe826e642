// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/internal/bearer"
	"github.com/kubetenant/kubetenant/internal/budget"
	"github.com/kubetenant/kubetenant/tenant"
)

// The errors from authenticating a token as one of a cluster's service accounts.
var (
	errNotAccount    = errors.New("the token does not belong to a service account of the cluster")
	errTokenRejected = errors.New("the cluster rejected the token")
	errOtherIssuer   = errors.New("the token is from another issuer")

	errTooManyReviews = errors.New("too many token reviews for one namespace at the same time")
	errReviewFailed   = errors.New("the cluster could not review the token")
)

// reviewTTL is how long the result of a TokenReview is used for requests that the gateway forwards
// with the caller's own token. The cluster checks the token of each such request again.
const reviewTTL = 10 * time.Second

// signatureVerifier verifies that a token was signed with one of a cluster's keys.
type signatureVerifier interface {
	VerifySignature(ctx context.Context, token string) ([]byte, error)
}

// accounts authenticates the tokens of the service accounts of one cluster with TokenReviews. A
// TokenReview accepts every token that the cluster accepts, so accounts rejects users that are not
// service accounts. It sends only tokens that the cluster's keys have signed.
//
// If a namespace was deleted and created again, the name of a service account does not determine
// its tenant. Therefore a token that is older than the namespace is rejected, and the key of a
// stored result contains the namespace's UID and label.
type accounts struct {
	issuers []string
	keys    signatureVerifier
	limits  *reviewLimits
	revoked func() *authn.Revocations
	reviews authenticationclient.TokenReviewInterface
	// cachedNamespace returns the Namespace in the watch cache, or an error if there is none.
	cachedNamespace func(name string) (*corev1.Namespace, error)
	// currentNamespace returns the Namespace that currently has the name, or nil if there is none.
	// The function may read the Namespace from the cluster.
	currentNamespace func(ctx context.Context, name string) (*corev1.Namespace, error)
}

// reviewLimits limit the TokenReviews for the service accounts of each namespace.
type reviewLimits struct {
	cached   *budget.Budgets // for reviews whose result is stored
	uncached *budget.Budgets // for reviews whose result is used once
}

// The limits of TokenReviews for the service accounts of one namespace. A result is used only once
// if the cluster does not receive the token itself, for example with impersonation, or if the watch
// cache does not contain the namespace. The limit of such reviews is higher than the request rate
// of an impersonating controller.
const (
	reviewsPerSecond         = 20
	reviewBurst              = 200
	uncachedReviewsPerSecond = 100
	uncachedReviewBurst      = 400
)

func newReviewLimits() *reviewLimits {
	return &reviewLimits{
		cached:   budget.New(reviewsPerSecond, reviewBurst),
		uncached: budget.New(uncachedReviewsPerSecond, uncachedReviewBurst),
	}
}

// newAccounts returns an authenticator of requests with tokens of the cluster's service accounts.
// It records a valid token in the [proxyState], so that the gateway can forward it. It abstains
// from tokens of other issuers.
func newAccounts(a *accounts) authenticator.Request {
	results := cache.New(authenticator.TokenFunc(a.authenticateKeyed), false, reviewTTL, reviewTTL)
	token := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		claimed := claimsOf(token)
		if !slices.Contains(a.issuers, claimed.Issuer) {
			return nil, false, errOtherIssuer
		}
		if !claimed.expires().After(time.Now()) { // applies to stored results too
			return nil, false, errTokenRejected
		}
		x := proxyStateFrom(ctx)
		resp, ok, err := a.authenticateCached(ctx, results, token, &claimed)
		switch {
		case err == nil && !ok:
			err = errTokenRejected // the issuer is the cluster's, so do not abstain
		case err == nil && a.revoked().HasToken(token): // stored results too; the signature is valid
			err = authn.ErrRevoked
		}
		if x != nil {
			switch {
			case err == nil:
				x.token, x.expiry.At = token, claimed.expires()
			case errors.Is(err, errTooManyReviews):
				x.reviewError = apierrors.NewTooManyRequests(errTooManyReviews.Error(), 1)
			case errors.Is(err, errReviewFailed):
				// If the gateway has no keys from the cluster, the caller gets 401, because the
				// token's issuer was not verified.
				x.reviewError = apierrors.NewServiceUnavailable(errReviewFailed.Error())
			}
		}
		if err != nil {
			return nil, false, err
		}
		return resp, true, nil
	})
	tokens := bearer.New(token, errOtherIssuer, errOtherIssuer) // the configured sources reject malformed tokens
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := tokens.AuthenticateRequest(req)
		if ok && a.revoked().HasPresented(req) { // a connection with a revoked certificate authenticates no caller
			return nil, false, authn.ErrRevoked
		}
		return resp, ok, err
	})
}

// authenticateCached returns the result of a TokenReview. It uses a stored result only if the
// cluster itself checks the token again. In addition, the watch cache must contain the namespace,
// and the namespace must not be in deletion.
func (a *accounts) authenticateCached(
	ctx context.Context, results authenticator.Token, token string, claimed *claims,
) (*authenticator.Response, bool, error) {
	namespace, name, err := serviceaccount.SplitUsername(claimed.Subject)
	if err != nil || name == "" {
		return nil, false, errNotAccount
	}
	x := proxyStateFrom(ctx)
	ns, err := a.cachedNamespace(namespace)
	switch {
	case err == nil && claimed.issuedBefore(ns): // rejected here, so that it does not use the namespace's rate limit
		return nil, false, errTokenRejected
	case err != nil || ns.DeletionTimestamp != nil || x == nil || !x.tokenIsSent:
		return a.authenticate(ctx, token, a.limits.uncached)
	}
	return results.AuthenticateToken(ctx, cacheKeyPrefix(ns)+"\n"+token)
}

// cacheKeyPrefix returns the prefix of the key of a stored result. The prefix contains the UID
// and the tenant label of the namespace. If one of them changes, the name of a service account
// may belong to a different caller.
func cacheKeyPrefix(ns *corev1.Namespace) string {
	return string(ns.UID) + " " + ns.Labels[tenant.Label]
}

// claims are the claims of a service account token (RFC 7519, section 4.1).
type claims struct {
	Issuer   string  `json:"iss"`
	Subject  string  `json:"sub"`
	Expires  float64 `json:"exp"`
	IssuedAt float64 `json:"iat"`
}

// expires returns when the token expires, or the Unix epoch if the claim is missing or not a valid
// time.
func (c *claims) expires() time.Time { return timeOf(c.Expires) }

func timeOf(seconds float64) time.Time {
	if seconds <= 0 || seconds >= 1<<40 {
		return time.Unix(0, 0)
	}
	return time.Unix(int64(seconds), 0)
}

// issuedBefore reports whether the token was issued before the Namespace was created. Such a token
// belongs to an account of an earlier namespace with the same name. The times are compared in whole
// seconds. A token without a time of issue was issued before every namespace.
func (c *claims) issuedBefore(ns *corev1.Namespace) bool {
	issued := timeOf(c.IssuedAt)
	return issued.Unix() <= 0 || issued.Before(ns.CreationTimestamp.Truncate(time.Second))
}

// claimsOf returns the claims of a JSON Web Token without verifying the token. If the token is
// malformed, it returns no claims.
func claimsOf(token string) (out claims) {
	_, rest, found := strings.Cut(token, ".")
	payload, _, more := strings.Cut(rest, ".")
	if !found || !more {
		return claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return claims{}
	}
	return out
}

// authenticateKeyed authenticates the token in the key of a stored result. The token follows the
// prefix that [cacheKeyPrefix] returns.
func (a *accounts) authenticateKeyed(ctx context.Context, keyed string) (*authenticator.Response, bool, error) {
	_, token, _ := strings.Cut(keyed, "\n")
	return a.authenticate(ctx, token, a.limits.cached)
}

func (a *accounts) authenticate(
	ctx context.Context, token string, limits *budget.Budgets,
) (*authenticator.Response, bool, error) {
	payload, err := a.keys.VerifySignature(ctx, token)
	if err != nil {
		return nil, false, err
	}
	var verified claims
	if json.Unmarshal(payload, &verified) != nil || !verified.expires().After(time.Now()) {
		return nil, false, errTokenRejected
	}
	namespace, _, err := serviceaccount.SplitUsername(verified.Subject)
	if err != nil {
		return nil, false, errNotAccount
	}
	if !limits.Limiter(namespace).TryAccept() {
		return nil, false, errTooManyReviews
	}
	switch ns, err := a.currentNamespace(ctx, namespace); {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", errReviewFailed, err)
	case ns == nil || verified.issuedBefore(ns):
		return nil, false, errTokenRejected
	}
	resp, ok, err := a.attemptReview(ctx, token)
	if err == nil && ok && resp.User.GetName() != verified.Subject {
		return nil, false, errNotAccount
	}
	return resp, ok, err
}

// attemptReview sends a TokenReview to the cluster.
func (a *accounts) attemptReview(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	// client-go can log request bodies, and this one contains the token.
	ctx = klog.NewContext(ctx, logr.Discard())
	audiences, _ := authenticator.AudiencesFrom(ctx) // set if a delegated review requests audiences
	review, err := a.reviews.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errReviewFailed, err)
	}
	if !review.Status.Authenticated || review.Status.Error != "" {
		return nil, false, nil
	}
	u := review.Status.User
	namespace, name, err := serviceaccount.SplitUsername(u.Username)
	if err != nil || !slices.Contains(u.Groups, serviceaccount.MakeNamespaceGroupName(namespace)) || name == "" {
		return nil, false, errNotAccount
	}
	out := &user.DefaultInfo{
		Name:   u.Username,
		UID:    u.UID,
		Groups: append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated),
		Extra:  map[string][]string{},
	}
	for key, values := range u.Extra {
		if strings.EqualFold(key, tenant.ExtraKey) || tenant.IsReservedExtraKey(key) && key != user.CredentialIDKey {
			continue
		}
		out.Extra[key] = values
	}
	return &authenticator.Response{User: out, Audiences: review.Status.Audiences}, true, nil
}
