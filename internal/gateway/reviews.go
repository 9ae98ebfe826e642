// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/tenant"
)

// withReviews handles a caller's self reviews. It responds to a SelfSubjectAccessReview if the
// boundary does not allow the access, and rejects a SelfSubjectRulesReview for a namespace of
// another tenant. The cluster does not enforce the boundary, and would consider only its roles.
func (c *route) withReviews(next http.Handler) http.Handler {
	access := reviews.Access(func(r *http.Request, a authorizer.AttributesRecord) (authorizer.Decision, string, error) {
		return c.cluster.stack.Authorizer.Authorize(r.Context(), a)
	})
	return reviews.With(next, func(_ *http.Request, resource schema.GroupResource) reviews.Reviewer {
		switch resource {
		case authorizationv1.Resource("selfsubjectaccessreviews"):
			return access
		case authorizationv1.Resource("selfsubjectrulesreviews"):
			return c.reviewRules
		}
		return nil
	})
}

// isDelegatedReview reports whether a request is a review of the token or the access of another
// user.
func isDelegatedReview(a authorizer.Attributes) bool {
	return a.IsResourceRequest() &&
		isDelegatedReviewResource(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()})
}

func isDelegatedReviewResource(r schema.GroupResource) bool {
	switch r {
	case authenticationv1.Resource("tokenreviews"), authorizationv1.Resource("subjectaccessreviews"),
		authorizationv1.Resource("localsubjectaccessreviews"):
		return true
	}
	return false
}

// answersLocally reports whether the gateway itself may respond to a request instead of the
// cluster.
func answersLocally(info *request.RequestInfo) bool {
	return info.IsResourceRequest &&
		isDelegatedReviewResource(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

// reviewToken authenticates the token in a request. It returns the user under the user's name in
// the cluster.
func (k *cluster) reviewToken(r *http.Request) (*authenticator.Response, bool, error) {
	c := k.route.Load()
	if c == nil {
		return nil, false, errNoRoute
	}
	x := &proxyState{route: c} // a state of its own, because the reviewed token is not the caller's token
	resp, ok, err := c.authn.AuthenticateRequest(r.WithContext(context.WithValue(r.Context(), proxyStateKey{}, x)))
	if err != nil || !ok {
		return resp, ok, err
	}
	// The boundary checks revocations by name, UID and tenant only for a request that is sent with
	// the token. A review of the token must check them here.
	if x.token != "" {
		id, _, err := k.stack.Subject(r.Context(), resp.User)
		switch {
		case err != nil:
			return nil, false, err
		case c.gateway.stack.Revocations().Covers(c.mapping.source(id), resp.User):
			return nil, false, authn.ErrRevoked
		}
		if err := c.gatewayNames.check(r.Context(), resp.User.GetName()); err != nil {
			return nil, false, err
		}
		return resp, true, nil
	}
	id, err := tenant.Of(resp.User)
	if err != nil || !c.allowsTenant(id) {
		return nil, false, errCluster
	}
	mapped, err := c.mapping.caller(id, resp.User)
	if err == nil {
		err = c.gatewayNames.check(r.Context(), mapped.GetName())
	}
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: mapped, Audiences: resp.Audiences}, true, nil
}

// reviewSubject decides about the request in a SubjectAccessReview. The subject in a has the name
// that it has in the cluster. The boundary decides first, and the cluster second.
func (k *cluster) reviewSubject(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c := k.route.Load()
	if c == nil {
		return authorizer.DecisionDeny, "", errNoRoute
	}
	if reason := k.stack.Denies(ctx, a); reason != "" {
		return authorizer.DecisionDeny, reason, nil
	}
	if err := c.gatewayNames.check(ctx, a.GetUser().GetName()); err != nil {
		return authorizer.DecisionDeny, "", err
	}
	// The cluster receives the same groups as with the subject's own requests, because roles may
	// be bound to the tenant's group.
	if record, ok := a.(authorizer.AttributesRecord); ok && !tenant.IsServiceAccountName(record.User.GetName()) {
		id, err := tenant.Of(record.User)
		if err != nil {
			return authorizer.DecisionDeny, "", err
		}
		u := tenant.Bind(record.User, id)
		if u.Groups = slices.Clone(u.Groups); !slices.Contains(u.Groups, id.Group()) {
			u.Groups = append(u.Groups, id.Group())
		}
		record.User = u
		a = record
	}
	return c.reviewAccess(ctx, a)
}

// reviewRules rejects a SelfSubjectRulesReview for a namespace that does not belong to the caller's
// tenant. Callers of the system tenant may review their rules in every namespace.
func (c *route) reviewRules(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError) {
	review, ok := object.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, apierrors.NewBadRequest("the kind or version of the review does not match the request")
	}
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, forbidden(errForm)
	}
	id, _, err := c.cluster.stack.Subject(r.Context(), u)
	if err == nil && id.IsSystem() {
		return nil, nil
	}
	owner, ownerErr := c.cluster.stack.NamespaceOwner(r.Context(), review.Spec.Namespace)
	if err != nil || ownerErr != nil || id.IsZero() || owner != id {
		return nil, forbidden(errNotOwned)
	}
	return nil, nil
}
