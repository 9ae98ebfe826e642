package service

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// tokenReview is a TokenReview as it comes; v1 and v1beta1 look the same.
type tokenReview struct {
	metav1.TypeMeta `json:",inline"`
	Spec            authenticationv1.TokenReviewSpec `json:"spec"`
}

// tokenAnswer is what kube-apiserver reads of the answer.
type tokenAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Status          authenticationv1.TokenReviewStatus `json:"status"`
}

// authenticate answers a TokenReview. What a source refuses and what no source knows both are not
// authenticated; the error of a refusal holds no part of the token.
func authenticate(a authenticator.Request) answerer {
	return func(r *http.Request, body []byte) (any, error) {
		var in tokenReview
		if err := decodeReview(body, &in, &in.TypeMeta, authenticationv1.GroupName, "TokenReview"); err != nil {
			return nil, err
		}
		out := &tokenAnswer{TypeMeta: in.TypeMeta}
		if in.Spec.Token == "" {
			return out, nil
		}
		ctx := r.Context()
		asked := authenticator.Audiences(in.Spec.Audiences)
		if len(asked) > 0 {
			ctx = authenticator.WithAudiences(ctx, asked)
		}
		// As the server's own TokenReview does (k8s.io/kubernetes pkg/registry/authentication/tokenreview,
		// v1.37.1): a request that holds nothing but the token.
		synthetic := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + in.Spec.Token}}}).WithContext(ctx)
		resp, ok, err := a.AuthenticateRequest(synthetic)
		switch {
		case err != nil:
			out.Status.Error = err.Error()
		case !ok || resp == nil || resp.User == nil:
		case len(asked) > 0 && len(asked.Intersect(resp.Audiences)) == 0:
			out.Status.Error = "the token is not for any of the audiences"
		default:
			out.Status.Authenticated = true
			out.Status.Audiences = asked.Intersect(resp.Audiences)
			out.Status.User = authenticationv1.UserInfo{Username: resp.User.GetName(), UID: resp.User.GetUID(),
				Groups: resp.User.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
			for key, values := range resp.User.GetExtra() {
				out.Status.User.Extra[key] = values
			}
		}
		return out, nil
	}
}
