package kubetenant

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/reviews"
)

// withReviews answers reviews by tenants' callers, where the configuration delegates them: the server would tell of everybody.
func (s *Stack) withReviews(next http.Handler) http.Handler {
	return reviews.With(next, func(r *http.Request, resource schema.GroupResource) reviews.Reviewer {
		g := s.current.Load()
		if !g.boundary.Reviews || g.boundary.Shadow {
			return nil
		}
		d := &reviews.Delegated{Subject: g.boundary.Subjects.Of, Authenticate: g.authenticator.AuthenticateRequest, Authorize: g.boundary.Authorize,
			Denies: func(ctx context.Context, a authorizer.Attributes) string { return string(g.boundary.Denies(ctx, a)) }}
		if tokens := s.shared.Authentication.Reviewed; tokens != nil {
			d.Authenticate = tokens.AuthenticateRequest
		}
		if subjects := s.shared.Authorization.Reviewed; subjects != nil {
			d.Authorize = subjects.Authorize
		}
		return d.Of(r, resource)
	})
}

// Denies returns why the boundary denies something of which nothing was noted, "" where it does not: whatever its mode.
func (s *Stack) Denies(ctx context.Context, a authorizer.Attributes) string {
	return string(s.current.Load().boundary.Denies(ctx, a))
}
