// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/bearer"
)

// tokenFormat returns the encoding of TokenReviews.
func tokenFormat() *reviewFormat[authenticationv1.TokenReviewSpec] {
	return &reviewFormat[authenticationv1.TokenReviewSpec]{
		authenticationv1.GroupName, "TokenReview", decodeTokenSpec, `{"user":{}}`,
	}
}

func decodeTokenSpec(q *fastDecoder, s *authenticationv1.TokenReviewSpec) bool {
	return q.object(func(name []byte) bool {
		switch string(name) {
		case "token":
			return q.string(&s.Token)
		case "audiences":
			return q.strings(&s.Audiences)
		}
		return false
	})
}

// tokenAnswer contains the fields of the response that kube-apiserver reads.
type tokenAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Status          authenticationv1.TokenReviewStatus `json:"status"`
}

func (a *tokenAnswer) encode() ([]byte, error) { return json.Marshal(a) }

// userInfo returns the representation of a user in a review.
func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{
		Username: u.GetName(),
		UID:      u.GetUID(),
		Groups:   u.GetGroups(),
	}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// authenticate handles TokenReviews. A token is not authenticated if a source rejects it, if no
// source claims it, or if it is not valid for a requested audience. The error of a source MUST NOT
// contain any part of the token.
func authenticate(a authenticator.Request) answerer {
	format := tokenFormat()
	return func(ctx context.Context, body []byte) (answer, error) {
		in, err := format.read(body)
		if err != nil {
			return nil, err
		}
		out := &tokenAnswer{TypeMeta: in.TypeMeta}
		if !bearer.IsWellFormed(in.Spec.Token) { // a malformed token could be parsed as another token in the header
			return out, nil
		}
		requested := authenticator.Audiences(in.Spec.Audiences)
		if len(requested) > 0 {
			ctx = authenticator.WithAudiences(ctx, requested)
		}
		// The request contains only the token, as in upstream's TokenReview (k8s.io/kubernetes
		// pkg/registry/authentication/tokenreview, v1.37.1).
		synthetic := (&http.Request{}).WithContext(ctx)
		synthetic.Header = http.Header{"Authorization": {"Bearer " + in.Spec.Token}}
		resp, ok, err := a.AuthenticateRequest(synthetic)
		if err != nil {
			out.Status.Error = err.Error()
			return out, nil
		}
		if !ok || resp == nil || resp.User == nil {
			return out, nil
		}
		if len(requested) > 0 && len(requested.Intersect(resp.Audiences)) == 0 {
			out.Status.Error = "the token is not valid for any of the requested audiences"
			return out, nil
		}
		out.Status.Authenticated = true
		out.Status.User = userInfo(resp.User)
		out.Status.Audiences = requested.Intersect(resp.Audiences)
		return out, nil
	}
}
