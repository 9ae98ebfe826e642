// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// accessSpec is [authorizationv1.SubjectAccessReviewSpec] of both versions. v1beta1 has the field
// group instead of groups.
type accessSpec struct {
	Resource    *authorizationv1.ResourceAttributes    `json:"resourceAttributes"`
	NonResource *authorizationv1.NonResourceAttributes `json:"nonResourceAttributes"`
	User        string                                 `json:"user"`
	Groups      []string                               `json:"groups"`
	OlderGroups []string                               `json:"group"`
	Extra       map[string][]string                    `json:"extra"`
	UID         string                                 `json:"uid"`
}

// accessFormat returns the encoding of SubjectAccessReviews.
func accessFormat() *reviewFormat[accessSpec] {
	return &reviewFormat[accessSpec]{
		authorizationv1.GroupName,
		"SubjectAccessReview",
		decodeAccessSpec,
		`{"allowed":false}`,
	}
}

func decodeAccessSpec(q *fastDecoder, s *accessSpec) bool {
	return q.object(func(name []byte) bool {
		switch string(name) {
		case "resourceAttributes":
			s.Resource = &authorizationv1.ResourceAttributes{}
			return decodeResourceAttributes(q, s.Resource)
		case "user":
			return q.string(&s.User)
		case "groups":
			return q.strings(&s.Groups)
		case "uid":
			return q.string(&s.UID)
		case "extra":
			s.Extra = map[string][]string{}
			return q.object(func(key []byte) bool {
				var values []string
				ok := q.strings(&values)
				s.Extra[string(key)] = values
				return ok
			})
		}
		return false
	})
}

// decodeResourceAttributes decodes resource attributes without selectors.
func decodeResourceAttributes(q *fastDecoder, r *authorizationv1.ResourceAttributes) bool {
	return q.object(func(name []byte) bool {
		switch string(name) {
		case "namespace":
			return q.string(&r.Namespace)
		case "verb":
			return q.string(&r.Verb)
		case "group":
			return q.string(&r.Group)
		case "version":
			return q.string(&r.Version)
		case "resource":
			return q.string(&r.Resource)
		case "subresource":
			return q.string(&r.Subresource)
		case "name":
			return q.string(&r.Name)
		}
		return false
	})
}

// accessAnswer contains the fields of the response that kube-apiserver reads.
type accessAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Status          authorizationv1.SubjectAccessReviewStatus `json:"status"`
}

func (a *accessAnswer) encode() ([]byte, error) { return json.Marshal(a) }

// errNoDecision is the error in a response if the authorizer fails. The log contains the actual
// error.
const errNoDecision = "the authorizer failed: see the log of the service"

// authorize handles SubjectAccessReviews. A denial is final. If the response neither allows nor
// denies the request, kube-apiserver calls its next authorizer.
func authorize(a authorizer.Authorizer) answerer {
	format := accessFormat()
	return func(ctx context.Context, body []byte) (answer, error) {
		in, err := format.read(body)
		if err != nil {
			return nil, err
		}
		if in.APIVersion == authorizationv1.GroupName+"/v1beta1" {
			in.Spec.Groups = in.Spec.OlderGroups
		}
		attributes, err := attributesOf(&in.Spec)
		if err != nil {
			return nil, err
		}
		decision, reason, err := a.Authorize(ctx, attributes)
		out := &accessAnswer{TypeMeta: in.TypeMeta}
		out.Status.Allowed = err == nil && decision == authorizer.DecisionAllow
		out.Status.Denied = decision == authorizer.DecisionDeny
		out.Status.Reason = reason
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to authorize a request", "user", in.Spec.User)
			out.Status.EvaluationError = errNoDecision
		}
		return out, nil
	}
}

// attributesOf returns the attributes of the request that a review describes.
func attributesOf(spec *accessSpec) (*authorizer.AttributesRecord, error) {
	u := &user.DefaultInfo{
		Name:   spec.User,
		UID:    spec.UID,
		Groups: spec.Groups,
		Extra:  spec.Extra,
	}
	resource, path := spec.Resource, spec.NonResource
	switch {
	case (resource == nil) == (path == nil):
		return nil, fmt.Errorf("%w: set exactly one of resourceAttributes and nonResourceAttributes", errReview)
	case path != nil:
		return &authorizer.AttributesRecord{User: u, Verb: path.Verb, Path: path.Path}, nil
	}
	a := &authorizer.AttributesRecord{
		User:            u,
		ResourceRequest: true,
		Verb:            resource.Verb,
		Namespace:       resource.Namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     resource.Subresource,
		Name:            resource.Name,
	}
	if s := resource.LabelSelector; s != nil {
		a.LabelSelectorRequirements = labelsOf(s.Requirements)
	}
	if s := resource.FieldSelector; s != nil {
		a.FieldSelectorRequirements = fieldsOf(s.Requirements)
	}
	return a, nil
}

// labelsOf returns the requirements with known operators. Other requirements are ignored, which
// widens the request, as the API specifies (k8s.io/api authorization/v1, LabelSelectorAttributes,
// v0.37.1). rawSelector is ignored, because kube-apiserver sends the parsed requirements.
func labelsOf(list []metav1.LabelSelectorRequirement) labels.Requirements {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn:           selection.In,
		metav1.LabelSelectorOpNotIn:        selection.NotIn,
		metav1.LabelSelectorOpExists:       selection.Exists,
		metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var out labels.Requirements
	for _, r := range list {
		operator, known := operators[r.Operator]
		if parsed, err := labels.NewRequirement(r.Key, operator, r.Values); known && err == nil {
			out = append(out, *parsed)
		}
	}
	return out
}

// fieldsOf is like labelsOf, for fields. kube-apiserver supports only requirements with one value.
func fieldsOf(list []metav1.FieldSelectorRequirement) fields.Requirements {
	operators := map[metav1.FieldSelectorOperator]selection.Operator{
		metav1.FieldSelectorOpIn:    selection.Equals,
		metav1.FieldSelectorOpNotIn: selection.NotEquals,
	}
	var out fields.Requirements
	for _, r := range list {
		if operator, known := operators[r.Operator]; known && len(r.Values) == 1 {
			out = append(out, fields.Requirement{Operator: operator, Field: r.Key, Value: r.Values[0]})
		}
	}
	return out
}
