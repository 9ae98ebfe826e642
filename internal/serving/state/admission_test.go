// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// changedWebhooks returns the generated webhook configurations, with old replaced by with in
// their text.
func changedWebhooks(
	t *testing.T, old, with string,
) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "tenancy.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	files, err := webhookmanifests.Generate(webhookmanifests.Options{
		Config:        config,
		Image:         "example.com/w:1",
		Namespace:     "kubetenant-system",
		AdmissionOnly: true,
		SelfManaged:   true,
	})
	if err != nil {
		t.Fatal(err)
	}
	text := string(files["cluster/webhooks.yaml"])
	if old != "" && !strings.Contains(text, old) {
		t.Fatalf("the generated text does not contain %q", old)
	}
	text = strings.ReplaceAll(text, old, with)
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for _, document := range strings.Split(text, "\n---\n") {
		var into any = mutating
		if strings.Contains(document, "kind: ValidatingWebhookConfiguration") {
			into = validating
		}
		if err := yaml.Unmarshal([]byte(document), into); err != nil {
			t.Fatal(err)
		}
	}
	return mutating, validating
}

// TestCheckWebhooks checks that the generated webhook configurations pass, and that changes that
// exclude writes or ignore failures are reported.
func TestCheckWebhooks(t *testing.T) {
	for what, c := range map[string]struct{ old, with string }{
		"failures are ignored":       {"failurePolicy: Fail", "failurePolicy: Ignore"},
		"versions are not converted": {"matchPolicy: Equivalent", "matchPolicy: Exact"},
		"some objects": {
			"failurePolicy: Fail", "failurePolicy: Fail\n  objectSelector: { matchLabels: { a: b } }",
		},
		"some resources":                {`resources: ["*/*"]`, `resources: ["*"]`},
		"some groups":                   {`apiGroups: ["*"]`, `apiGroups: [apps]`},
		"creations only":                {"operations: [CREATE, UPDATE]", "operations: [CREATE]"},
		"additional namespace excluded": {"values: [kubetenant-system]", "values: [kubetenant-system, acme--web]"},
		"another namespace excluded":    {"values: [kubetenant-system]", "values: [acme--web]"},
		"no namespace of tenants":       {"operator: Exists }", "operator: DoesNotExist }"},
		"an unknown condition":          {"name: not-by-the-control-plane", "name: not-on-sundays"},
		"another scope":                 {"scope: Namespaced", "scope: Cluster"},
		"missing webhook":               {"name: elsewhere.", "name: nowhere."},
	} {
		t.Run(what, func(t *testing.T) {
			if mutating, validating := changedWebhooks(t, c.old, c.with); state.CheckWebhooks("kubetenant-system",
				mutating, validating) == nil {
				t.Error("CheckWebhooks accepted the configurations")
			}
		})
	}
	mutating, validating := changedWebhooks(t, "", "")
	if err := state.CheckWebhooks("kubetenant-system", mutating, validating); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"no mutating webhooks": state.CheckWebhooks("kubetenant-system",
			&admissionv1.MutatingWebhookConfiguration{}, validating),
		"no validating webhooks": state.CheckWebhooks("kubetenant-system", mutating,
			&admissionv1.ValidatingWebhookConfiguration{}),
		"service in another namespace": state.CheckWebhooks("elsewhere", mutating, validating),
	} {
		t.Run(what, func(t *testing.T) {
			if err == nil {
				t.Error("CheckWebhooks accepted the configurations")
			}
		})
	}
}

// TestLabelsTrusted checks that labels are trusted only if the same webhooks are installed now
// and were installed during the backfill.
func TestLabelsTrusted(t *testing.T) {
	mutating, validating := changedWebhooks(t, "", "")
	narrowed, _ := changedWebhooks(t, "failurePolicy: Fail", "failurePolicy: Ignore")
	version := func(generation int64) string {
		m := mutating.DeepCopy()
		m.Generation = generation
		return state.VersionOf(m, validating).String()
	}
	for what, c := range map[string]struct {
		is    *admissionv1.MutatingWebhookConfiguration
		swept string
		holds bool
	}{
		"backfill with these webhooks":     {mutating, version(5), true},
		"CA renewed since the backfill":    {mutating, version(4), true},
		"newer version in the controller":  {mutating, version(6), true},
		"changed twice since the backfill": {mutating, version(3), false},
		"backfill with other webhooks":     {mutating, strings.Repeat("0", 64) + " 5 0", false},
		"backfill by an older controller":  {mutating, strings.Repeat("0", 64), false},
		"no backfill":                      {mutating, "", false},
		"failures are ignored now":         {narrowed, version(5), false},
		"missing webhooks":                 {nil, version(5), false},
	} {
		t.Run(what, func(t *testing.T) {
			objects := []runtime.Object{validating}
			if c.is != nil {
				is := c.is.DeepCopy()
				is.Generation = 5
				objects = append(objects, is)
			}
			ctx, cancel := context.WithCancel(t.Context())
			w := state.FollowWebhooks(fake.NewClientset(objects...), "kubetenant-system")
			s := state.NewForLabels(w, c.swept)
			if s.LabelsTrusted() {
				t.Error("labels are trusted before the webhooks are known")
			}
			go w.Run(ctx)
			waittest.Until(t, func() error {
				if s.LabelsTrusted() != c.holds {
					return errors.New(what)
				}
				if _, there := w.Version(); there != (c.is != nil) {
					return errors.New("the webhooks are not known yet")
				}
				return nil
			})
			if s.LabelsTrusted() != c.holds {
				t.Errorf("%v", !c.holds)
			}
			cancel()
		})
	}
}
