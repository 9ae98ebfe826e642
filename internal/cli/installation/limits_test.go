// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestCheckLimits checks that only a compiled-in server with the indexed evaluator enforces the
// limits of bindings. In the other deployment modes, the published evaluator has no effect.
func TestCheckLimits(t *testing.T) {
	published := func(evaluator configv1alpha1.Evaluator) *fake.Clientset {
		objects := &corev1.ConfigMapList{}
		for _, namespace := range []string{WebhookNamespace, metav1.NamespaceSystem} {
			objects.Items = append(objects.Items, corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configv1alpha1.PublishedName},
				Data: map[string]string{"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
					"authorization: { rbac: { evaluator: " + string(evaluator) + " } }\n"},
			})
		}
		return fake.NewClientset(objects)
	}
	for _, mode := range []Mode{CompiledIn, Webhook, Gateway, ""} {
		for _, evaluator := range []configv1alpha1.Evaluator{
			configv1alpha1.EvaluatorIndexed, configv1alpha1.EvaluatorUpstream,
		} {
			err := (&Installation{Mode: mode, client: published(evaluator)}).CheckLimits(t.Context())
			enforced := mode == CompiledIn && evaluator == configv1alpha1.EvaluatorIndexed
			if enforced != (err == nil) || !enforced && !errors.Is(err, ErrNoLimits) {
				t.Errorf("%q, %s: %v", mode, evaluator, err)
			}
		}
	}
	err := (&Installation{Mode: CompiledIn, client: fake.NewClientset()}).CheckLimits(t.Context())
	if err == nil || errors.Is(err, ErrNoLimits) {
		t.Errorf("no published configuration: %v", err)
	}
}
