// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/internal/serving/state"
)

func webhooks(
	uid types.UID, ca string, kind admissionregistrationv1.FailurePolicyType,
) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	about := metav1.ObjectMeta{Name: certificates.ConfigurationName, UID: uid}
	client := admissionregistrationv1.WebhookClientConfig{CABundle: []byte(ca)}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: about,
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				{Name: "m.kubetenant.dev", ClientConfig: client, FailurePolicy: &kind},
			},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: about,
			Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "v.kubetenant.dev", ClientConfig: client, FailurePolicy: &kind},
			},
		}
}

// TestBackfillIsValidForSameWebhooks checks that the result of the previous leader is valid for the
// same webhooks, even if their CA was renewed. It is not valid for different webhooks with the same
// names, or for webhooks that ignore failures now or may have ignored failures in between.
func TestBackfillIsValidForSameWebhooks(t *testing.T) {
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	version := func(
		uid types.UID, ca string, kind admissionregistrationv1.FailurePolicyType, generation int64,
	) state.WebhooksVersion {
		t.Helper()
		mutating, validating := webhooks(uid, ca, kind)
		mutating.Generation, validating.Generation = generation, 1
		v := state.VersionOf(mutating, validating)
		if again := state.ParseVersion(v.String()); again != v {
			t.Errorf("%v is parsed as %v", v, again)
		}
		return v
	}
	before := version("1", "old", fail, 1)
	if !before.Follows(before) || !version("1", "new", fail, 2).Follows(before) {
		t.Error("a renewed CA invalidates the result")
	}
	for what, now := range map[string]state.WebhooksVersion{
		"recreated":            version("2", "old", fail, 1),
		"failures are ignored": version("1", "old", ignore, 2),
		"changed twice":        version("1", "old", fail, 3),
		"older":                version("1", "old", fail, 0),
		"none":                 {},
	} {
		t.Run(what, func(t *testing.T) {
			if now.Follows(before) {
				t.Error("different webhooks are treated as the same")
			}
		})
	}
	if none := (state.WebhooksVersion{}); none.Follows(none) || state.ParseVersion("").Follows(none) ||
		state.ParseVersion(before.String()[:66]).Follows(before) {
		t.Error("missing webhooks are treated as the same")
	}
}
