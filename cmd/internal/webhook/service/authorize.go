package service

import (
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// accessReview is a SubjectAccessReview as it comes. v1beta1 says group where v1 says groups.
type accessReview struct {
	metav1.TypeMeta `json:",inline"`
	Spec            struct {
		authorizationv1.SubjectAccessReviewSpec `json:",inline"`
		OlderGroups                             []string `json:"group"`
	} `json:"spec"`
}

// accessAnswer is what kube-apiserver reads of the answer.
type accessAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Status          authorizationv1.SubjectAccessReviewStatus `json:"status"`
}

// errNoDecision stands in an answer for what went wrong, which is in the log.
const errNoDecision = "an authorizer could not decide"

// authorize answers a SubjectAccessReview: denied is final, no opinion leaves it to kube-apiserver's next
// authorizer.
func authorize(a authorizer.Authorizer) answerer {
	return func(r *http.Request, body []byte) (any, error) {
		var in accessReview
		if err := decodeReview(body, &in, &in.TypeMeta, authorizationv1.GroupName, "SubjectAccessReview"); err != nil {
			return nil, err
		}
		if in.APIVersion == authorizationv1beta1.SchemeGroupVersion.String() {
			in.Spec.Groups = in.Spec.OlderGroups
		}
		attributes, err := attributesOf(&in.Spec.SubjectAccessReviewSpec)
		if err != nil {
			return nil, err
		}
		decision, reason, err := a.Authorize(r.Context(), attributes)
		out := &accessAnswer{TypeMeta: in.TypeMeta}
		out.Status.Allowed = err == nil && decision == authorizer.DecisionAllow
		out.Status.Denied = decision == authorizer.DecisionDeny
		out.Status.Reason = reason
		if err != nil {
			klog.FromContext(r.Context()).Error(err, "Could not authorize", "user", in.Spec.User)
			out.Status.EvaluationError = errNoDecision
		}
		return out, nil
	}
}

// attributesOf returns what a review asks about.
func attributesOf(spec *authorizationv1.SubjectAccessReviewSpec) (*authorizer.AttributesRecord, error) {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	if len(spec.Extra) > 0 {
		u.Extra = make(map[string][]string, len(spec.Extra))
		for key, values := range spec.Extra {
			u.Extra[key] = values
		}
	}
	resource, path := spec.ResourceAttributes, spec.NonResourceAttributes
	switch {
	case (resource == nil) == (path == nil):
		return nil, fmt.Errorf("%w: one of resourceAttributes and nonResourceAttributes", errReview)
	case path != nil:
		return &authorizer.AttributesRecord{User: u, Verb: path.Verb, Path: path.Path}, nil
	}
	a := &authorizer.AttributesRecord{User: u, ResourceRequest: true, Verb: resource.Verb, Namespace: resource.Namespace,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name}
	if s := resource.LabelSelector; s != nil {
		a.LabelSelectorRequirements = labelsOf(s.Requirements)
	}
	if s := resource.FieldSelector; s != nil {
		a.FieldSelectorRequirements = fieldsOf(s.Requirements)
	}
	return a, nil
}

// labelsOf returns the requirements that are understood. One that is not is left out, which asks for
// more, as the API says (k8s.io/api authorization/v1, LabelSelectorAttributes, v0.37.1). rawSelector is
// not looked at: kube-apiserver has parsed it.
func labelsOf(list []metav1.LabelSelectorRequirement) labels.Requirements {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist}
	var out labels.Requirements
	for _, r := range list {
		operator, known := operators[r.Operator]
		if parsed, err := labels.NewRequirement(r.Key, operator, r.Values); known && err == nil {
			out = append(out, *parsed)
		}
	}
	return out
}

// fieldsOf is labelsOf for fields, of which kube-apiserver compares single values only.
func fieldsOf(list []metav1.FieldSelectorRequirement) fields.Requirements {
	operators := map[metav1.FieldSelectorOperator]selection.Operator{
		metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}
	var out fields.Requirements
	for _, r := range list {
		if operator, known := operators[r.Operator]; known && len(r.Values) == 1 {
			out = append(out, fields.Requirement{Operator: operator, Field: r.Key, Value: r.Values[0]})
		}
	}
	return out
}
