package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/waittest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// generated writes the manifests as an operator does, and returns their folder.
func generated(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.crt": "-----BEGIN CERTIFICATE-----\n", "tokens.csv": "tok,alice,u1,dev,,acme\n",
		"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  sources:\n  - { name: tokens, tokenFile: { path: tokens.csv } }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	run(t, "kubetenant-webhook", append([]string{"generate", "--config", filepath.Join(dir, "tenancy.yaml"), "--out", out, "--image=example.com/kubetenant-webhook:1",
		"--url=https://10.0.0.9:9443", "--client-ca-file", filepath.Join(dir, "ca.crt"), "--self-managed-certificates", "--monitoring"}, more...)...)
	run(t, "kubetenant-webhook", "generate", "--config", filepath.Join(dir, "tenancy.yaml"), "--check", out)
	return out
}

// run runs one of the built commands.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args[0], err, out)
	}
	return string(out)
}

// TestWebhookManifestsConform: the manifests are valid by the schemas of the release, strictly.
func TestWebhookManifestsConform(t *testing.T) {
	t.Parallel()
	out := generated(t)
	schemas := writeSchemas(t)
	run(t, "kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor,PrometheusRule",
		"-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json", filepath.Join(out, "cluster"))
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, dat: {}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), binary(t, "kubeconform"), "-strict",
		"-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json", bad).CombinedOutput(); err == nil {
		t.Errorf("an unknown field conforms: %s", said)
	}
}

// writeSchemas makes kubeconform's schemas of the release's OpenAPI document, and returns their folder.
func writeSchemas(t *testing.T) string {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "api", "openapi-spec", "swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	for name, d := range document.Definitions {
		if _, has := d["properties"]; has {
			d["additionalProperties"] = false
		}
		if strings.HasSuffix(name, ".IntOrString") {
			document.Definitions[name] = map[string]any{"type": []string{"string", "integer"}}
		}
	}
	dir := t.TempDir()
	for name, d := range document.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // options and statuses, of every group
		}
		kind := kinds[0].(map[string]any)
		group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), ".")
		file := strings.ToLower(fmt.Sprint(kind["kind"])) + strings.TrimSuffix("-"+group, "-") + "-" + fmt.Sprint(kind["version"]) + ".json"
		schema, err := json.Marshal(map[string]any{"$ref": "definitions.json#/definitions/" + name})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), schema, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := json.Marshal(map[string]any{"definitions": document.Definitions})
	if err != nil {
		t.Fatal(err)
	}
	all = bytes.ReplaceAll(all, []byte(`"$ref":"#/definitions/`), []byte(`"$ref":"definitions.json#/definitions/`))
	if err := os.WriteFile(filepath.Join(dir, "definitions.json"), all, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWebhookManifestsApply: a real server takes all of them, and says nothing about it.
func TestWebhookManifestsApply(t *testing.T) {
	t.Parallel()
	out := generated(t)
	if err := os.Remove(filepath.Join(out, "cluster", "monitoring.yaml")); err != nil { // kinds of another project
		t.Fatal(err)
	}
	s := start(t, t.TempDir(), "--webhook")
	// They reach the service by URL here.
	if said, err := kubectl(t, s, "admin", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "kubetenant"); err != nil {
		t.Fatal(said)
	}
	said, err := kubectl(t, s, "admin", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", filepath.Join(out, "cluster"))
	if err != nil || strings.Contains(said, "Warning") {
		t.Errorf("%v\n%s", err, said)
	}
	if n := strings.Count(said, "(server dry run)"); n < 25 {
		t.Errorf("%d objects\n%s", n, said)
	}
}

// TestWebhookChart: Helm makes the same of the chart as generate does.
func TestWebhookChart(t *testing.T) {
	t.Parallel()
	out := generated(t)
	const chart = "../../../docs/deploy/chart"
	values := filepath.Join(out, "values.yaml")
	run(t, "helm", "lint", "--strict", chart, "-f", values)
	rendered := objects(t, run(t, "helm", "template", "kubetenant", chart, "-n", "kubetenant-system", "-f", values))
	var own strings.Builder
	entries, err := os.ReadDir(filepath.Join(out, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, "cluster", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if _, definition := v1alpha1.Definitions()[e.Name()]; !definition { // helm template leaves definitions out
			own.WriteString("---\n" + string(data) + "\n")
		}
	}
	want := objects(t, own.String())
	if !slices.Equal(rendered, want) {
		t.Errorf("helm template:\n%s\n\ngenerate:\n%s", strings.Join(rendered, "\n"), strings.Join(want, "\n"))
	}
	if said, err := exec.CommandContext(t.Context(), binary(t, "helm"), "template", chart).CombinedOutput(); err == nil || !bytes.Contains(said, []byte("at '/image'")) {
		t.Errorf("without an image: %v\n%s", err, said)
	}
}

// objects returns the documents of a YAML stream as JSON, sorted.
func objects(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if string(data) != "null" {
			all = append(all, string(data))
		}
	}
	slices.Sort(all)
	return all
}

// TestWebhookStaticPolicies: as manifests the policies hold too, where nobody can take them away by the API.
func TestWebhookStaticPolicies(t *testing.T) {
	t.Parallel()
	out, dir := generated(t, "--static-policies"), t.TempDir()
	admission := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins: [
{name: ValidatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}},
{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[2]q}},
{name: ValidatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[2]q}}]`,
		filepath.Join(out, "control-plane", "policies"), filepath.Join(dir, "webhook", "webhook-admit.kubeconfig"))
	file := filepath.Join(out, "admission.yaml")
	if err := os.WriteFile(file, []byte(admission), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "--webhook", "--", "--feature-gates=ManifestBasedAdmissionControlConfig=true", "--admission-control-config-file="+file)
	apply(t, s, "{apiVersion: v1, kind: Namespace, metadata: {name: acme--web, labels: {kubetenant.dev/tenant: acme}}}")
	if said, err := kubectl(t, s, "admin", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration,validatingadmissionpolicy,validatingadmissionpolicybinding", "--all"); err != nil {
		t.Fatal(said)
	}
	admin := client(t, config(t, s, "admin"))
	waittest.Until(t, func() error {
		err := admin.AppsV1().RESTClient().Post().AbsPath("/apis/apps/v1/namespaces/acme--web/daemonsets").Body([]byte(daemonSet)).Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), ".kubetenant.static.k8s.io'") {
			return fmt.Errorf("a DaemonSet in tenant space: %w", err)
		}
		return nil
	})
}
