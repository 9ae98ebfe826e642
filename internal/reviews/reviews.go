// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reviews intercepts reviews in the API groups authentication.k8s.io and
// authorization.k8s.io before they reach an API server, which does not know the tenants of
// callers and subjects.
package reviews

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxBytes is the maximum size of a review in bytes.
const maxBytes = 64 << 10

// Reviewer handles a review. It returns the response for the caller or an error. If it returns
// neither, the API server handles the review.
type Reviewer func(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError)

// Responses to invalid reviews.
var (
	errKind = apierrors.NewBadRequest("the kind or version of the review does not match the request")
	errRead = apierrors.NewBadRequest("the review could not be decoded")
	errSpec = apierrors.NewBadRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified")
)

// With returns a handler that calls a Reviewer before next. The function reviewerFor returns the
// Reviewer for a request, or nil if there is none. If a Reviewer was called, the request to next
// contains only the review that was decoded, so that another parser cannot read a different
// review. With does not log reviews.
func With(next http.Handler, reviewerFor func(r *http.Request, resource schema.GroupResource) Reviewer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		if info == nil || !info.IsResourceRequest || info.Verb != "create" || info.Subresource != "" ||
			info.APIGroup != authorizationv1.GroupName && info.APIGroup != authenticationv1.GroupName {
			next.ServeHTTP(w, r)
			return
		}
		review := reviewerFor(r, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
		if review == nil {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		if err != nil {
			Respond(w, r, readError(err))
			return
		}
		object, _, err := codecs().UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			Respond(w, r, errRead)
			return
		}
		response, status := review(r, object)
		switch {
		case status != nil:
			Respond(w, r, status)
			return
		case response != nil:
			responsewriters.WriteObjectNegotiated(codecs(), negotiation.DefaultEndpointRestrictions,
				response.GetObjectKind().GroupVersionKind().GroupVersion(), w, r, http.StatusCreated, response, false)
			return
		}
		reencoded, err := json.Marshal(object)
		if err != nil {
			Respond(w, r, errRead)
			return
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(reencoded))
		r.ContentLength = int64(len(reencoded))
		r.TransferEncoding = nil
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
		next.ServeHTTP(w, r)
	})
}

func readError(err error) *apierrors.StatusError {
	var large *http.MaxBytesError
	var ended *apierrors.StatusError
	switch {
	case errors.As(err, &large):
		return apierrors.NewRequestEntityTooLargeError("a review may have at most 64 KiB")
	case errors.As(err, &ended): // package authz ends a session with this error
		return ended
	}
	return errRead
}

// Respond writes an error in the form that the client accepts.
func Respond(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError) {
	responsewriters.ErrorNegotiated(err, codecs(), schema.GroupVersion{Version: "v1"}, w, r)
}

// codecs decodes reviews, and encodes responses in the format that a client accepts.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
})

// errSelector is the parsing error that [attributesOf] reports for every selector in a review. A
// selector might limit the request to allowed objects, but this package does not evaluate
// selectors.
var errSelector = errors.New("selectors of reviews are not evaluated")

// Access returns a Reviewer for SelfSubjectAccessReviews. It responds that the access is not
// allowed if decide does not allow the request in the review. Otherwise, the API server handles the
// review.
func Access(decide func(*http.Request, authorizer.AttributesRecord) (authorizer.Decision, string, error)) Reviewer {
	return func(r *http.Request, object runtime.Object) (runtime.Object, *apierrors.StatusError) {
		review, ok := object.(*authorizationv1.SelfSubjectAccessReview)
		if !ok {
			return nil, errKind
		}
		attributes, err := attributesOf(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
		u, known := request.UserFrom(r.Context())
		if err != nil || !known {
			return nil, errSpec
		}
		attributes.User = u
		decision, reason, failed := decide(r, attributes)
		if failed == nil && decision == authorizer.DecisionAllow {
			return nil, nil
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{
			Allowed: false,
			Denied:  decision == authorizer.DecisionDeny,
			Reason:  reason,
		}
		return review, nil
	}
}

// attributesOf returns the attributes of the request in a review, without a user (see
// k8s.io/kubernetes pkg/registry/authorization/util, v1.37.1).
func attributesOf(
	resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes,
) (authorizer.AttributesRecord, error) {
	var out authorizer.AttributesRecord
	switch {
	case (resource == nil) == (path == nil):
		return out, errSpec
	case path != nil:
		out.Verb, out.Path = path.Verb, path.Path
		return out, nil
	}
	if resource.LabelSelector != nil || resource.FieldSelector != nil {
		out.LabelSelectorParsingErr, out.FieldSelectorParsingErr = errSelector, errSelector
	}
	out.ResourceRequest = true
	out.Verb = resource.Verb
	out.Namespace = resource.Namespace
	out.Name = resource.Name
	out.APIGroup, out.APIVersion = resource.Group, resource.Version
	out.Resource, out.Subresource = resource.Resource, resource.Subresource
	return out, nil
}
