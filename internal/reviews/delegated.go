// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/internal/bearer"
	"github.com/kubetenant/kubetenant/tenant"
)

// Delegated lets tenants' callers review tokens and subjects of their own tenant. A tenant's own
// servers need these reviews if they delegate authentication and authorization to the cluster. A
// token of another tenant gets the same response as an unknown token. For a subject of another
// tenant, every access is denied. All fields are required.
type Delegated struct {
	// Subject returns the tenant of an authenticated user.
	Subject func(context.Context, user.Info) (tenant.ID, error)
	// Authenticate authenticates the bearer token in a request. The request contains only the
	// token.
	Authenticate func(*http.Request) (*authenticator.Response, bool, error)
	// DenyReason returns the reason why the boundary denies a request, or "" if it does not deny
	// the request.
	DenyReason func(context.Context, authorizer.Attributes) string
	// Authorize decides on the request in a review. The subject is bound to the caller's tenant.
	Authorize func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error)
}

// ReviewerFor returns the Reviewer for a request to create a review. resource is the kind of
// review. It returns nil if the API server handles the review. This is the case for callers of
// the system tenant, and for all other resources.
func (d *Delegated) ReviewerFor(r *http.Request, resource schema.GroupResource) Reviewer {
	u, _ := request.UserFrom(r.Context())
	id := tenant.ID{}
	err := tenant.ErrUnbound // if there is no user
	if u != nil {
		id, err = d.Subject(r.Context(), u)
	}
	if err == nil && id.IsSystem() {
		return nil
	}
	var handle func(*http.Request, tenant.ID, user.Info, runtime.Object) (runtime.Object, *apierrors.StatusError)
	switch resource {
	case authenticationv1.Resource("tokenreviews"):
		handle = d.token
	case authorizationv1.Resource("subjectaccessreviews"), authorizationv1.Resource("localsubjectaccessreviews"):
		handle = d.access
	default:
		return nil
	}
	return func(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError) {
		if err != nil || id.IsZero() {
			return nil, apierrors.NewForbidden(resource, "", tenant.ErrUnbound)
		}
		return handle(r, id, u, object)
	}
}

// token handles a TokenReview, like upstream (k8s.io/kubernetes
// pkg/registry/authentication/tokenreview, v1.37.1).
func (d *Delegated) token(
	r *http.Request, id tenant.ID, _ user.Info, object runtime.Object,
) (runtime.Object, *apierrors.StatusError) {
	review, found := object.(*authenticationv1.TokenReview)
	if !found {
		return nil, errKind
	}
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	token := review.Spec.Token
	audiences := authenticator.Audiences(review.Spec.Audiences)
	review.Spec.Token = "" // the response must not contain the token
	review.Status = authenticationv1.TokenReviewStatus{}
	if !bearer.IsWellFormed(token) { // another parser could read only a prefix of the token
		return review, nil
	}
	synthetic, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		return nil, errRead
	}
	synthetic.Header.Set("Authorization", "Bearer "+token)
	if len(audiences) > 0 {
		synthetic = synthetic.WithContext(authenticator.WithAudiences(synthetic.Context(), audiences))
	}
	resp, ok, err := d.Authenticate(synthetic)
	if err != nil || !ok || resp == nil || resp.User == nil ||
		len(audiences) > 0 && len(audiences.Intersect(resp.Audiences)) == 0 {
		return review, nil
	}
	if owner, err := d.Subject(r.Context(), resp.User); err != nil || owner != id {
		return review, nil
	}
	u := resp.User
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     audiences.Intersect(resp.Audiences),
		User: authenticationv1.UserInfo{
			Username: u.GetName(),
			UID:      u.GetUID(),
			Groups:   u.GetGroups(),
			Extra:    map[string]authenticationv1.ExtraValue{},
		},
	}
	for key, values := range u.GetExtra() {
		review.Status.User.Extra[key] = values
	}
	return review, nil
}

// access handles a SubjectAccessReview or a LocalSubjectAccessReview.
func (d *Delegated) access(
	r *http.Request, id tenant.ID, caller user.Info, object runtime.Object,
) (runtime.Object, *apierrors.StatusError) {
	var spec *authorizationv1.SubjectAccessReviewSpec
	var status *authorizationv1.SubjectAccessReviewStatus
	info, _ := request.RequestInfoFrom(r.Context())
	local := info != nil && info.Resource == "localsubjectaccessreviews"
	switch review := object.(type) {
	case *authorizationv1.SubjectAccessReview:
		if local {
			return nil, errKind
		}
		spec, status = &review.Spec, &review.Status
	case *authorizationv1.LocalSubjectAccessReview:
		if !local {
			return nil, errKind
		}
		spec, status = &review.Spec, &review.Status
		if spec.ResourceAttributes == nil || info == nil || spec.ResourceAttributes.Namespace != info.Namespace ||
			info.Namespace == "" {
			return nil, apierrors.NewBadRequest("spec.resourceAttributes.namespace must be the namespace of the review")
		}
	default:
		return nil, errKind
	}
	attributes, err := attributesOf(spec.ResourceAttributes, spec.NonResourceAttributes)
	switch {
	case err != nil:
		return nil, errSpec
	case spec.User == "" && len(spec.Groups) == 0:
		return nil, apierrors.NewBadRequest("at least one of user or group must be specified")
	}
	*status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: false,
		Denied:  true,
		Reason:  "the subject does not belong to the caller's tenant",
	}
	subject, ok := d.bind(r.Context(), id, caller, spec)
	if !ok {
		return object, nil
	}
	attributes.User = subject
	decision, reason, err := d.Authorize(r.Context(), attributes)
	*status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: err == nil && decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	return object, nil
}

// bind returns the subject of a review, bound to the caller's tenant. It returns false if the
// boundary denies the caller to impersonate the subject. It does not check whether a role allows
// the impersonation. It also does not check the groups that every server adds and the extra keys
// that describe a credential, because the response to a TokenReview contains both.
func (d *Delegated) bind(
	ctx context.Context, id tenant.ID, caller user.Info, spec *authorizationv1.SubjectAccessReviewSpec,
) (user.Info, bool) {
	out := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Extra: map[string][]string{}}
	impliedGroups := []string{user.AllAuthenticated}
	if namespace, _, err := serviceaccount.SplitUsername(spec.User); err == nil {
		impliedGroups = append(impliedGroups, serviceaccount.MakeGroupNames(namespace)...)
	}
	requests := []authorizer.AttributesRecord{impersonated("", "users", "", spec.User)}
	if namespace, name, err := serviceaccount.SplitUsername(spec.User); err == nil {
		requests[0] = impersonated("", "serviceaccounts", "", name)
		requests[0].Namespace = namespace
	}
	for _, group := range spec.Groups {
		if !slices.Contains(impliedGroups, group) {
			requests = append(requests, impersonated("", "groups", "", group))
			out.Groups = append(out.Groups, group)
		}
	}
	if spec.UID != "" {
		requests = append(requests, impersonated("authentication.k8s.io", "uids", "", spec.UID))
	}
	for key, values := range spec.Extra {
		if key = strings.ToLower(key); !isCredentialKey(key) {
			for _, value := range values {
				requests = append(requests, impersonated("authentication.k8s.io", "userextras", key, value))
			}
		}
		out.Extra[key] = values
	}
	for _, attributes := range requests {
		if attributes.User = caller; d.DenyReason(ctx, attributes) != "" {
			return nil, false
		}
	}
	out.Groups = append(out.Groups, impliedGroups...)
	return tenant.Bind(out, id), true
}

// isCredentialKey reports whether an extra key describes a credential. Only servers set such a
// key, and it grants no permissions.
func isCredentialKey(key string) bool {
	return strings.HasPrefix(key, "authentication.kubernetes.io/") || key == tenant.SourceKey
}

func impersonated(group, resource, subresource, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb:            "impersonate",
		APIGroup:        group,
		APIVersion:      "v1",
		Resource:        resource,
		Subresource:     subresource,
		Name:            name,
		ResourceRequest: true,
	}
}
