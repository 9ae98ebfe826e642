package state_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cmd/internal/state"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/manifests"
)

// generated returns the webhook configurations as they are installed, with a change of their text.
func generated(t *testing.T, old, with string) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "tenancy.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := manifests.Generate(manifests.Options{Config: config, Image: "example.com/w:1", Namespace: "kubetenant-system", AdmissionOnly: true, SelfManaged: true})
	if err != nil {
		t.Fatal(err)
	}
	text := string(files["cluster/webhooks.yaml"])
	if old != "" && !strings.Contains(text, old) {
		t.Fatalf("%q is not there", old)
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

// TestCheckWebhooks: what is generated is asked about every write, and whatever narrows it, or lets writes pass, is told.
func TestCheckWebhooks(t *testing.T) {
	for what, c := range map[string]struct{ old, with string }{
		"failures pass":              {"failurePolicy: Fail", "failurePolicy: Ignore"},
		"versions are not converted": {"matchPolicy: Equivalent", "matchPolicy: Exact"},
		"some objects":               {"failurePolicy: Fail", "failurePolicy: Fail\n  objectSelector: { matchLabels: { a: b } }"},
		"some resources":             {`resources: ["*/*"]`, `resources: ["*"]`},
		"some groups":                {`apiGroups: ["*"]`, `apiGroups: [apps]`},
		"creations alone":            {"operations: [CREATE, UPDATE]", "operations: [CREATE]"},
		"other namespaces too":       {"values: [kubetenant-system]", "values: [kubetenant-system, acme--web]"},
		"another namespace":          {"values: [kubetenant-system]", "values: [acme--web]"},
		"no namespace of tenants":    {"operator: Exists }", "operator: DoesNotExist }"},
		"a further condition":        {"name: not-by-the-control-plane", "name: not-on-sundays"},
		"another scope":              {"scope: Namespaced", "scope: Cluster"},
		"one is not there":           {"name: elsewhere.", "name: nowhere."},
	} {
		if mutating, validating := generated(t, c.old, c.with); state.CheckWebhooks("kubetenant-system", mutating, validating) == nil {
			t.Errorf("%s: it counts", what)
		}
	}
	mutating, validating := generated(t, "", "")
	if err := state.CheckWebhooks("kubetenant-system", mutating, validating); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"none that change":       state.CheckWebhooks("kubetenant-system", &admissionv1.MutatingWebhookConfiguration{}, validating),
		"none that refuse":       state.CheckWebhooks("kubetenant-system", mutating, &admissionv1.ValidatingWebhookConfiguration{}),
		"of a service elsewhere": state.CheckWebhooks("elsewhere", mutating, validating),
	} {
		if err == nil {
			t.Errorf("%s: it counts", what)
		}
	}
}
