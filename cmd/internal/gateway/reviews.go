package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// reviewBytes bounds a review.
const reviewBytes = 64 << 10

// withReviews is the step that answers what callers ask about themselves as far as the boundary decides it: the cluster, which knows
// nothing of that, would say what its roles alone do.
func (c *route) withReviews(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		if info == nil || !info.IsResourceRequest || info.Verb != "create" || info.APIGroup != authorizationv1.GroupName || info.Subresource != "" {
			next.ServeHTTP(w, r)
			return
		}
		review := c.reviewOf[info.Resource]
		if review == nil {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, reviewBytes))
		if err != nil {
			c.answerError(w, r, err)
			return
		}
		object, _, err := codecs().UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			respond(w, r, apierrors.NewBadRequest("the review could not be read"))
			return
		}
		answer, refused := review(r, object)
		switch {
		case refused != nil:
			respond(w, r, refused)
			return
		case answer != nil:
			responsewriters.WriteObjectNegotiated(codecs(), negotiation.DefaultEndpointRestrictions, answer.GetObjectKind().GroupVersionKind().GroupVersion(), w, r, http.StatusCreated, answer, false)
			return
		}
		// What goes on is what was judged, and nothing that another reader might find in the body besides.
		again, err := json.Marshal(object)
		if err != nil {
			respond(w, r, apierrors.NewInternalError(errForm))
			return
		}
		r = r.Clone(r.Context())
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(again)), int64(len(again)), nil
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
		next.ServeHTTP(w, r)
	})
}

// reviewer judges a review. It returns what the caller is answered, or an error, or neither where the cluster is to answer.
type reviewer func(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError)

// reviewAccess answers a SelfSubjectAccessReview that the boundary denies.
func (c *route) reviewAccess(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError) {
	var spec *authorizationv1.SelfSubjectAccessReviewSpec
	var status *authorizationv1.SubjectAccessReviewStatus
	switch review := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		spec, status = &review.Spec, &review.Status
	default:
		return nil, apierrors.NewBadRequest("the review is of another kind or version")
	}
	u, known := request.UserFrom(r.Context())
	if !known || (spec.ResourceAttributes == nil) == (spec.NonResourceAttributes == nil) {
		return nil, apierrors.NewBadRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	attributes := authorizer.AttributesRecord{User: u}
	if a := spec.ResourceAttributes; a != nil {
		if a.LabelSelector != nil || a.FieldSelector != nil {
			// A selector might limit the request to what the boundary allows: that is decided when it is asked.
			attributes.LabelSelectorParsingErr, attributes.FieldSelectorParsingErr = errForm, errForm
		}
		attributes.ResourceRequest, attributes.Verb, attributes.Namespace, attributes.Name = true, a.Verb, a.Namespace, a.Name
		attributes.APIGroup, attributes.APIVersion, attributes.Resource, attributes.Subresource = a.Group, a.Version, a.Resource, a.Subresource
	} else {
		attributes.Verb, attributes.Path = spec.NonResourceAttributes.Verb, spec.NonResourceAttributes.Path
	}
	decision, reason, err := c.link.stack.Authorizer.Authorize(r.Context(), attributes)
	if err == nil && decision == authorizer.DecisionAllow {
		return nil, nil
	}
	*status = authorizationv1.SubjectAccessReviewStatus{Allowed: false, Denied: decision == authorizer.DecisionDeny, Reason: reason}
	return object, nil
}

// reviewRules lets callers ask for their rules in namespaces of their own: the rules elsewhere are others'.
func (c *route) reviewRules(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError) {
	review, is := object.(*authorizationv1.SelfSubjectRulesReview)
	if !is {
		return nil, apierrors.NewBadRequest("the review is of another kind or version")
	}
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, forbidden(errForm)
	}
	id, _, err := c.link.stack.Subject(r.Context(), u)
	if err == nil && id.IsSystem() {
		return nil, nil
	}
	owner, ownerErr := c.link.stack.NamespaceOwner(r.Context(), review.Spec.Namespace)
	if err != nil || ownerErr != nil || id.IsZero() || owner != id {
		return nil, forbidden(errNotOwned)
	}
	return nil, nil
}
