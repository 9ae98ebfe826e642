// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// ConfigurationPath is the path of AdmissionReviews of the Secret that contains the configuration
// of the service.
const ConfigurationPath = "/admit/configuration"

// ConfigurationSecret is the name of the Secret that contains the configuration.
const ConfigurationSecret = "kubetenant-webhook-config" // #nosec G101 -- a name

// configure handles an AdmissionReview of the Secret. It rejects the Secret if check returns any
// problems.
func configure(check func(context.Context, map[string][]byte) ([]string, error)) answerer {
	return func(ctx context.Context, body []byte) (answer, error) {
		in := &admissionReview{}
		if err := decodeReview(body, in, &in.TypeMeta, admissionv1.GroupName, "AdmissionReview"); err != nil {
			return nil, err
		}
		r := in.Request
		isWrite := r != nil && (r.Operation == admission.Create || r.Operation == admission.Update)
		if !isWrite || r.UID == "" || r.Kind != (metav1.GroupVersionKind{Version: "v1", Kind: "Secret"}) ||
			r.Name != ConfigurationSecret {
			return nil, errReview
		}
		var secret corev1.Secret
		if err := json.Unmarshal(r.Object, &secret); err != nil {
			return nil, errReview // the error could contain a credential
		}
		problems, err := check(withUID(ctx, string(r.UID)), secret.Data)
		if err != nil {
			return nil, err
		}
		out := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: len(problems) == 0}
		if !out.Allowed {
			out.Result = &metav1.Status{
				Status:  metav1.StatusFailure,
				Reason:  metav1.StatusReasonInvalid,
				Code:    http.StatusUnprocessableEntity,
				Message: "the configuration is invalid: " + strings.Join(problems, "; "),
			}
		}
		return &admissionAnswer{in.TypeMeta, out}, nil
	}
}
