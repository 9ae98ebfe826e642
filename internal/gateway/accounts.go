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

// Why a token of a cluster's service account is refused.
var (
	errNotAccount = errors.New("the token does not belong to a service account of the cluster")
	errRefused    = errors.New("the cluster rejected the token")
	errOthers     = errors.New("the token is from another issuer")

	errTooManyReviews = errors.New("too many token reviews for one namespace at the same time")
	errNoReview       = errors.New("the cluster could not review the token")
)

// reviewedFor is how long the cluster's word about a token counts.
const reviewedFor = 10 * time.Second

// signatures verifies that a token was signed with one of a cluster's keys.
type signatures interface {
	VerifySignature(ctx context.Context, token string) ([]byte, error)
}

// accounts authenticates the tokens of a cluster's own service accounts, as the cluster says: it
// takes every credential of its own for one, so that what it answers counts for service accounts
// alone. What its keys did not sign it is not asked about.
type accounts struct {
	issuers []string
	keys    signatures
	limits  *budget.Budgets // of reviews, by namespace
	revoked func() *authn.Revocations
	reviews authenticationclient.TokenReviewInterface
}

// The tokens of one namespace that are shown to the cluster: each costs it a review, whoever asks,
// and again after reviewedFor.
const (
	reviewsPerSecond = 20
	reviewsAtOnce    = 200
)

// newAccounts returns the authenticator of requests that bear such tokens, and notes the token to
// be passed on. It abstains from tokens of other issuers.
func newAccounts(a *accounts) authenticator.Request {
	cached := cache.New(authenticator.TokenFunc(a.authenticate), false, reviewedFor, reviewedFor)
	token := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		claimed := claimsOf(token)
		if !slices.Contains(a.issuers, claimed.Issuer) {
			return nil, false, errOthers
		}
		if !claimed.expires().After(time.Now()) { // remembered or not
			return nil, false, errRefused
		}
		resp, ok, err := cached.AuthenticateToken(ctx, token)
		switch {
		case err == nil && !ok:
			err = errRefused // ours to claim
		case err == nil && a.revoked().HasToken(token): // remembered or not; its signature is good
			err = authn.ErrRevoked
		}
		if x := proxyStateFrom(ctx); x != nil {
			switch {
			case err == nil:
				x.token, x.expiry.At = token, claimed.expires()
			case errors.Is(err, errTooManyReviews):
				x.unknown = apierrors.NewTooManyRequests(errTooManyReviews.Error(), 1)
			case errors.Is(err, errNoReview):
				// of keys that cannot be had nobody is told: whose the token is nothing vouches for
				x.unknown = apierrors.NewServiceUnavailable(errNoReview.Error())
			}
		}
		if err != nil {
			return nil, false, err
		}
		return resp, true, nil
	})
	tokens := bearer.New(token, errOthers, errOthers) // the sources refuse a malformed token
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := tokens.AuthenticateRequest(req)
		if ok && a.revoked().HasPresented(req) { // a revoked certificate authenticates no caller on its connection
			return nil, false, authn.ErrRevoked
		}
		return resp, ok, err
	})
}

// claims are those of a cluster's token (RFC 7519, section 4.1).
type claims struct {
	Issuer  string  `json:"iss"`
	Subject string  `json:"sub"`
	Expires float64 `json:"exp"`
}

// expires is long ago for what is no time.
func (c *claims) expires() time.Time {
	if c.Expires <= 0 || c.Expires >= 1<<40 {
		return time.Unix(0, 0)
	}
	return time.Unix(int64(c.Expires), 0)
}

// claimsOf returns what a JSON Web Token claims, which nobody has verified.
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

func (a *accounts) authenticate(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	payload, err := a.keys.VerifySignature(ctx, token)
	if err != nil {
		return nil, false, err
	}
	var verified claims
	if json.Unmarshal(payload, &verified) != nil || !verified.expires().After(time.Now()) {
		return nil, false, errRefused
	}
	if namespace, _, err := serviceaccount.SplitUsername(verified.Subject); err != nil {
		return nil, false, errNotAccount
	} else if !a.limits.Of(namespace).TryAccept() {
		return nil, false, errTooManyReviews
	}
	// client-go logs bodies, if that is asked for: this one holds the token.
	ctx = klog.NewContext(ctx, logr.Discard())
	audiences, _ := authenticator.AudiencesFrom(ctx) // of a review that is delegated
	review, err := a.reviews.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errNoReview, err)
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
