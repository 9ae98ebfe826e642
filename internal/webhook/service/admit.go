// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/internal/stack"
)

// admissionReview is an AdmissionReview whose objects are not decoded yet. v1 and v1beta1 have the
// same fields.
type admissionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionRequest `json:"request"`
}

// admissionRequest contains the fields of an AdmissionRequest that the service uses.
type admissionRequest struct {
	UID         types.UID                   `json:"uid"`
	Kind        metav1.GroupVersionKind     `json:"kind"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Name        string                      `json:"name"`
	Namespace   string                      `json:"namespace"`
	Options     metav1.UpdateOptions        `json:"options"` // set for updates only
	Operation   admission.Operation         `json:"operation"`
	UserInfo    authenticationv1.UserInfo   `json:"userInfo"`
	Object      jsontext.Value              `json:"object"`
	OldObject   jsontext.Value              `json:"oldObject"`
	DryRun      *bool                       `json:"dryRun"`
}

type admissionAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
}

func (a *admissionAnswer) encode() ([]byte, error) {
	return json.Marshal(a) // Kubernetes types have tags for encoding/json
}

// operations returns the operations of AdmissionReviews.
func operations() []admission.Operation {
	return []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect}
}

// readAdmission decodes an AdmissionReview. The caller must call done when it no longer needs the
// objects.
func readAdmission(
	ctx context.Context, body []byte, objects *objects,
) (in *admissionReview, a admission.Attributes, done func(), err error) {
	in = &admissionReview{}
	if err := decodeReview(body, in, &in.TypeMeta, admissionv1.GroupName, "AdmissionReview"); err != nil {
		return nil, nil, nil, err
	}
	r := in.Request
	if r == nil || r.UID == "" || !slices.Contains(operations(), r.Operation) {
		return nil, nil, nil, errReview
	}
	kind := schema.GroupVersionKind(r.Kind)
	read, done, err := objects.read(ctx, kind, r.Object, r.OldObject)
	if err != nil {
		return nil, nil, nil, err
	}
	u := &user.DefaultInfo{
		Name:   r.UserInfo.Username,
		UID:    r.UserInfo.UID,
		Groups: r.UserInfo.Groups,
		Extra:  map[string][]string{},
	}
	for key, values := range r.UserInfo.Extra {
		u.Extra[key] = values
	}
	dryRun := r.DryRun != nil && *r.DryRun
	return in, admission.NewAttributesRecord(read[0], read[1], kind, r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, r.Operation, optionsOf(r), dryRun, u), done, nil
}

// optionsOf returns the options of an update, by which plugins decide whether to send warnings. It
// returns nil for other operations, because plugins do not read their options.
func optionsOf(r *admissionRequest) runtime.Object {
	if r.Operation != admission.Update {
		return nil
	}
	return &r.Options
}

// conversions returns an empty set of conversions, because plugins get objects in the version of
// the request.
func conversions() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
}

// mutate handles an AdmissionReview. The response contains a patch with the changes of the plugins,
// or the rejection of one plugin.
func mutate(plugins []stack.Plugin, objects *objects) answerer {
	none := conversions()
	encodings := &encodings{}
	return func(ctx context.Context, body []byte) (answer, error) {
		in, a, done, err := readAdmission(ctx, body, objects)
		if err != nil {
			return nil, err
		}
		defer done()
		var original runtime.Object
		if a.GetObject() != nil {
			original = a.GetObject().DeepCopyObject()
		}
		out := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		ctx = warning.WithWarningRecorder(withUID(ctx, string(in.Request.UID)), (*warnings)(out))
		for _, p := range plugins {
			mutator, ok := p.Interface.(admission.MutationInterface)
			if !ok || !mutator.Handles(a.GetOperation()) {
				continue
			}
			if err := mutator.Admit(ctx, a, none); err != nil {
				refuse(out, err)
				break
			}
		}
		if original != nil && out.Allowed {
			if out.Patch, err = encodings.patchOf(in.Request.Object, original, a.GetObject()); out.Patch != nil {
				kind := admissionv1.PatchTypeJSONPatch
				out.PatchType = &kind
			}
		}
		return &admissionAnswer{in.TypeMeta, out}, err
	}
}

// validate handles an AdmissionReview. The response contains the rejection of the first plugin that
// rejects the request, if any.
func validate(plugins []stack.Plugin, objects *objects) answerer {
	none := conversions()
	return func(ctx context.Context, body []byte) (answer, error) {
		in, a, done, err := readAdmission(ctx, body, objects)
		if err != nil {
			return nil, err
		}
		defer done()
		out := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		ctx = warning.WithWarningRecorder(withUID(ctx, string(in.Request.UID)), (*warnings)(out))
		for _, p := range plugins {
			validator, ok := p.Interface.(admission.ValidationInterface)
			if !ok || !validator.Handles(a.GetOperation()) {
				continue
			}
			if err := validator.Validate(ctx, a, none); err != nil {
				refuse(out, err)
				break
			}
		}
		return &admissionAnswer{in.TypeMeta, out}, nil
	}
}

// warnings records warnings in a response.
type warnings admissionv1.AdmissionResponse

// AddWarning implements [warning.Recorder].
func (w *warnings) AddWarning(_, text string) { w.Warnings = append(w.Warnings, text) }

// refuse rejects the request with the status of err, or with Forbidden if err has no status.
func refuse(out *admissionv1.AdmissionResponse, err error) {
	status := apierrors.NewForbidden(schema.GroupResource{}, "", err)
	var own apierrors.APIStatus
	out.Allowed = false
	out.Result = &status.ErrStatus
	if errors.As(err, &own) {
		result := own.Status()
		out.Result = &result
	}
}
