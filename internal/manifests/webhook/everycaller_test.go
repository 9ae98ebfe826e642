// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// TestWebhooksReceiveEveryCaller checks that the webhooks receive the writes of all cluster-scoped
// kinds of the project by every caller, including the control plane. No other component checks
// these writes.
func TestWebhooksReceiveEveryCaller(t *testing.T) {
	files, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for path, text := range files {
		if filepath.Base(filepath.Dir(path)) != "crds" {
			continue
		}
		var definition struct {
			Spec struct {
				Scope string
				Names struct{ Plural string }
			}
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		// A TenantUsage gives no rights, so its author is not checked.
		if definition.Spec.Scope == "Cluster" && definition.Spec.Names.Plural != "tenantusages" {
			want = append(want, definition.Spec.Names.Plural)
		}
	}
	slices.Sort(want)
	if len(want) < 5 {
		t.Fatalf("cluster-scoped kinds: %v", want)
	}
	found := 0
	for doc := range bytes.SplitSeq(files["cluster/webhooks.yaml"], []byte("\n---\n")) {
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration // has the fields of both kinds
		if err := yaml.Unmarshal(doc, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, w := range configuration.Webhooks {
			if !strings.HasPrefix(w.Name, "tenants.") {
				continue
			}
			found++
			if len(w.Rules) != 1 || !slices.Equal(w.Rules[0].Resources, want) || len(w.MatchConditions) > 0 {
				t.Errorf("%s: %+v, want %v", w.Name, w.Rules, want)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d webhooks", found)
	}
}
