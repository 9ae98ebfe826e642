package service

import (
	"encoding/json"
	"errors"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant"
)

// admissionReview is an AdmissionReview as it comes; v1 and v1beta1 look the same.
type admissionReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionv1.AdmissionRequest `json:"request"`
}

type admissionAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Response        *admissionv1.AdmissionResponse `json:"response"`
}

// readAdmission decodes an AdmissionReview. Its objects stay as they are, whatever their version: that loses
// nothing that this program does not know.
func readAdmission(body []byte) (*admissionReview, admission.Attributes, error) {
	in := &admissionReview{}
	if err := decodeReview(body, in, &in.TypeMeta, admissionv1.GroupName, "AdmissionReview"); err != nil {
		return nil, nil, err
	}
	r := in.Request
	if r == nil || r.UID == "" {
		return nil, nil, errReview
	}
	object, err := objectOf(r.Object.Raw)
	if err != nil {
		return nil, nil, err
	}
	old, err := objectOf(r.OldObject.Raw)
	if err != nil {
		return nil, nil, err
	}
	u := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups, Extra: map[string][]string{}}
	for key, values := range r.UserInfo.Extra {
		u.Extra[key] = values
	}
	dryRun := r.DryRun != nil && *r.DryRun
	return in, admission.NewAttributesRecord(object, old, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), nil, dryRun, u), nil
}

// objectOf returns an object, nil for none.
func objectOf(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	out := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &out.Object); err != nil || out.Object == nil {
		return nil, errReview
	}
	return out, nil
}

// conversions returns what plugins convert objects with: nothing, since they get them as they are stored.
func conversions() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
}

// mutate answers an AdmissionReview with what the plugins change.
func mutate(plugins []kubetenant.Plugin) answerer {
	none := conversions()
	return func(r *http.Request, body []byte) (any, error) {
		in, a, err := readAdmission(body)
		if err != nil {
			return nil, err
		}
		var came *unstructured.Unstructured
		if object, ok := a.GetObject().(*unstructured.Unstructured); ok {
			came = object.DeepCopy()
		}
		out := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		ctx := warning.WithWarningRecorder(withUID(r.Context(), string(in.Request.UID)), (*warnings)(out))
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
		if is, ok := a.GetObject().(*unstructured.Unstructured); ok && came != nil && out.Allowed {
			err = patch(out, came, is)
		}
		return &admissionAnswer{in.TypeMeta, out}, err
	}
}

// differences returns what of two objects is not the same, with the objects around it.
func differences(before, now map[string]any) (was, is map[string]any) {
	was, is = map[string]any{}, map[string]any{}
	for key, new := range now {
		old, had := before[key]
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := new.(map[string]any)
		switch {
		case !had:
			is[key] = new
		case wasMap && isMap:
			if a, b := differences(oldMap, newMap); len(a)+len(b) > 0 {
				was[key], is[key] = a, b
			}
		case !equality.Semantic.DeepEqual(old, new):
			was[key], is[key] = old, new
		}
	}
	for key, old := range before {
		if _, has := now[key]; !has {
			was[key] = old
		}
	}
	return was, is
}

// patch says how the object differs from what came.
func patch(out *admissionv1.AdmissionResponse, came, is *unstructured.Unstructured) error {
	before, now := differences(came.Object, is.Object)
	if len(before)+len(now) == 0 {
		return nil
	}
	was, err := json.Marshal(before)
	if err != nil {
		return err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	operations, err := jsonpatch.CreatePatch(was, text)
	if err != nil {
		return err
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.PatchType = &kind
	out.Patch, err = json.Marshal(operations)
	return err
}

// validate answers an AdmissionReview by what the plugins refuse.
func validate(plugins []kubetenant.Plugin) answerer {
	none := conversions()
	return func(r *http.Request, body []byte) (any, error) {
		in, a, err := readAdmission(body)
		if err != nil {
			return nil, err
		}
		out := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		ctx := warning.WithWarningRecorder(withUID(r.Context(), string(in.Request.UID)), (*warnings)(out))
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

// warnings are those of an answer.
type warnings admissionv1.AdmissionResponse

// AddWarning implements [warning.Recorder].
func (w *warnings) AddWarning(_, text string) { w.Warnings = append(w.Warnings, text) }

// refuse answers with the status of err.
func refuse(out *admissionv1.AdmissionResponse, err error) {
	status := apierrors.NewForbidden(schema.GroupResource{}, "", err)
	var own apierrors.APIStatus
	out.Allowed, out.Result = false, &status.ErrStatus
	if errors.As(err, &own) {
		result := own.Status()
		out.Result = &result
	}
}
