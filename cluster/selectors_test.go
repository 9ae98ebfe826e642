// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/cluster"
)

// TestNamespaceSelectors checks that Reason finds the webhooks and policies that select namespaces
// by a label. Until all webhooks and policies have been read, it returns a reason for every label.
func TestNamespaceSelectors(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"scan": "on", "both": "on"}}
	exists := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "webhook", Operator: metav1.LabelSelectorOpExists}, {Key: "both", Operator: metav1.LabelSelectorOpExists},
	}}
	factory := informers.NewSharedInformerFactory(
		fake.NewClientset(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: selector},
			},
		}, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "w"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{NamespaceSelector: exists}},
		}), 0,
	)
	v1 := factory.Admissionregistration().V1()
	s, err := cluster.NewNamespaceSelectors(append(cluster.WebhooksAndPolicies(v1), cluster.MutatingPolicies(v1)...)...)
	if err != nil {
		t.Fatal(err)
	}
	const unknown = "the webhooks and policies of the cluster are not known yet"
	if s.HasSynced() || s.Reason("scan") != unknown || s.Reason("env") != unknown {
		t.Error("a label has no reason before the webhooks and policies have been read")
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	for key, want := range map[string]string{
		"scan":    "a MutatingAdmissionPolicyBinding of the cluster selects namespaces by it",
		"webhook": "a ValidatingWebhookConfiguration of the cluster selects namespaces by it",
		"both":    "a ValidatingWebhookConfiguration of the cluster selects namespaces by it",
		"env":     "",
	} {
		t.Run(key, func(t *testing.T) {
			if got := s.Reason(key); got != want {
				t.Errorf("%q", got)
			}
		})
	}
}
