package cluster_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/cluster"
)

// TestNamespaceSelectors: until all webhooks and policies are known, every label may be
// one that they select by.
func TestNamespaceSelectors(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"scan": "on"}}
	factory := informers.NewSharedInformerFactory(
		fake.NewClientset(&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"},
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: selector},
			},
		}), 0,
	)
	v1 := factory.Admissionregistration().V1()
	s, err := cluster.NewNamespaceSelectors(append(cluster.WebhooksAndPolicies(v1), cluster.MutatingPolicies(v1)...)...)
	if err != nil {
		t.Fatal(err)
	}
	if s.HasSynced() || !s.Has("scan") || !s.Has("env") {
		t.Error("a label is free before anything is known")
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if !s.Has("scan") || s.Has("env") {
		t.Errorf("scan %t, env %t", s.Has("scan"), s.Has("env"))
	}
}
