package controller

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
)

func webhooks(uid types.UID, ca string, kind admissionregistrationv1.FailurePolicyType) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	about := metav1.ObjectMeta{Name: certificates.ConfigurationName, UID: uid}
	client := admissionregistrationv1.WebhookClientConfig{CABundle: []byte(ca)}
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: about, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "m.kubetenant.dev", ClientConfig: client, FailurePolicy: &kind}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: about, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "v.kubetenant.dev", ClientConfig: client, FailurePolicy: &kind}}}
}

// TestIdentityOfWebhooks: what a leader before swept holds for the same webhooks, whose authority may be renewed; not for
// others of the same name, nor for ones that let through what they do not see.
func TestIdentityOfWebhooks(t *testing.T) {
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	identity := func(uid types.UID, ca string, kind admissionregistrationv1.FailurePolicyType) string {
		t.Helper()
		mutating, validating := webhooks(uid, ca, kind)
		text, err := identityOf(t.Context(), fake.NewClientset(mutating, validating))
		if err != nil || text == "" {
			t.Fatal(text, err)
		}
		return text
	}
	before := identity("1", "old", fail)
	if identity("1", "new", fail) != before {
		t.Error("a renewed authority makes others of them")
	}
	if identity("2", "old", fail) == before {
		t.Error("webhooks that were made anew are taken for the same")
	}
	if identity("1", "old", ignore) == before {
		t.Error("webhooks that let through are taken for the same")
	}
}

// TestWebhooksThatAreNotThere have no identity: nothing is swept before both stand.
func TestWebhooksThatAreNotThere(t *testing.T) {
	mutating, validating := webhooks("1", "ca", admissionregistrationv1.Fail)
	for name, client := range map[string]*fake.Clientset{"none": fake.NewClientset(), "one": fake.NewClientset(mutating), "the other": fake.NewClientset(validating)} {
		if text, err := identityOf(t.Context(), client); err == nil {
			t.Errorf("%s: %q", name, text)
		}
	}
}
