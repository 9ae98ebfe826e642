// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// generateManifests runs "kubetenant-webhook generate" as an operator does, and returns the folder
// of the manifests.
func generateManifests(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ca.crt":     "-----BEGIN CERTIFICATE-----\n",
		"tokens.csv": "tok,alice,u1,dev,,acme\n",
		"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  sources:\n" +
			"  - { name: tokens, tokenFile: { path: tokens.csv } }\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	out := filepath.Join(dir, "out")
	run(t, "kubetenant-webhook", append([]string{
		"generate", "--config", filepath.Join(dir, "tenancy.yaml"), "--out", out, "--image=example.com/kubetenant-webhook:1",
		"--url=https://10.0.0.9:9443", "--client-ca-file", filepath.Join(dir, "ca.crt"), "--self-managed-certificates",
		"--monitoring",
	}, more...)...)
	run(t, "kubectl-tenant", "validate", filepath.Join(dir, "tenancy.yaml"), out)
	return out
}

// run runs one of the built commands, and returns its output. The command must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args[0], err, out)
	}
	return string(out)
}

// TestWebhookManifestsConform checks with kubeconform that the manifests conform strictly to
// the schemas of this Kubernetes release.
func TestWebhookManifestsConform(t *testing.T) {
	t.Parallel()
	out := generateManifests(t)
	schemas := writeSchemas(t)
	run(t, "kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor,PrometheusRule",
		"-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json", filepath.Join(out, "crds"),
		filepath.Join(out, "cluster"))
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	writeFile(t, bad, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, dat: {}}")
	if output, err := exec.CommandContext(t.Context(), binary(t, "kubeconform"), "-strict",
		"-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json", bad).CombinedOutput(); err == nil {
		t.Errorf("an unknown field conforms: %s", output)
	}
}

// writeSchemas converts the OpenAPI document of this Kubernetes release to schemas for kubeconform,
// and returns their folder.
func writeSchemas(t *testing.T) string {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	data := readFile(t, filepath.Join(strings.TrimSpace(string(module)), "api", "openapi-spec", "swagger.json"))
	var document struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal([]byte(data), &document); err != nil {
		t.Fatal(err)
	}
	for name, d := range document.Definitions {
		if _, ok := d["properties"]; ok {
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
			continue // skip kinds such as DeleteOptions, which exist in every group
		}
		kind := kinds[0].(map[string]any)
		group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), ".")
		file := strings.ToLower(fmt.Sprint(kind["kind"])) + strings.TrimSuffix("-"+group, "-") + "-" +
			fmt.Sprint(kind["version"]) + ".json"
		schema, err := json.Marshal(map[string]any{"$ref": "definitions.json#/definitions/" + name})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, file), string(schema))
	}
	all, err := json.Marshal(map[string]any{"definitions": document.Definitions})
	if err != nil {
		t.Fatal(err)
	}
	all = bytes.ReplaceAll(all, []byte(`"$ref":"#/definitions/`), []byte(`"$ref":"definitions.json#/definitions/`))
	writeFile(t, filepath.Join(dir, "definitions.json"), string(all))
	return dir
}

// TestWebhookManifestsApply checks that a real server accepts all manifests without a warning.
func TestWebhookManifestsApply(t *testing.T) {
	t.Parallel()
	out := generateManifests(t)
	if err := os.Remove(filepath.Join(out, "cluster", "monitoring.yaml")); err != nil { // its kinds are not installed
		t.Fatal(err)
	}
	s := startServer(t, nil, "--webhook")
	// In this test, the existing webhook configurations call the service by URL.
	s.mustKubectl(t, "admin", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "kubetenant")
	output, err := s.kubectl(t, "admin", "apply", "--server-side", "--force-conflicts", "--dry-run=server",
		"-f", filepath.Join(out, "crds"), "-f", filepath.Join(out, "cluster"))
	if err != nil || strings.Contains(output, "Warning") {
		t.Errorf("%v\n%s", err, output)
	}
	if n := strings.Count(output, "(server dry run)"); n < 25 {
		t.Errorf("%d objects\n%s", n, output)
	}
}

// TestWebhookChart checks that the chart renders the same objects as "kubetenant-webhook generate"
// writes.
func TestWebhookChart(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"", "EmptyDir", "Claim"} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			compareChart(t, generateManifests(t, "--storage="+storage))
		})
	}
}

// compareChart compares the objects that the chart renders with the objects in the folder out,
// which generate has written.
func compareChart(t *testing.T, out string) {
	t.Helper()
	const chart = "../../../../deploy/chart"
	values := filepath.Join(out, "values.yaml")
	run(t, "helm", "lint", "--strict", chart, "-f", values)
	rendered := objects(t, run(t, "helm", "template", "kubetenant", chart, "-n", "kubetenant-system", "-f", values))
	var own strings.Builder
	entries, err := os.ReadDir(filepath.Join(out, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data := readFile(t, filepath.Join(out, "cluster", e.Name()))
		own.WriteString("---\n" + data + "\n")
	}
	want := objects(t, own.String())
	if !slices.Equal(rendered, want) {
		t.Errorf("helm template:\n%s\n\ngenerate:\n%s", strings.Join(rendered, "\n"), strings.Join(want, "\n"))
	}
	if output, err := exec.CommandContext(t.Context(), binary(t, "helm"), "template", chart).
		CombinedOutput(); err == nil || !bytes.Contains(output, []byte("at '/image'")) {
		t.Errorf("without an image: %v\n%s", err, output)
	}
}

// objects returns the documents of a YAML stream as sorted JSON texts.
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

// TestWebhookStaticPolicies checks that the policies also apply if kube-apiserver reads them from
// static manifests, which cannot be deleted through the API.
func TestWebhookStaticPolicies(t *testing.T) {
	t.Parallel()
	out, dir := generateManifests(t, "--static-policies"), t.TempDir()
	admission := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins: [
{name: ValidatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1,
kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}},
{name: MutatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1,
kind: WebhookAdmissionConfiguration, kubeConfigFile: %[2]q}},
{name: ValidatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1,
kind: WebhookAdmissionConfiguration, kubeConfigFile: %[2]q}}]`,
		filepath.Join(out, "control-plane", "policies"), filepath.Join(dir, "webhook", "webhook-admit.kubeconfig"))
	file := filepath.Join(out, "admission.yaml")
	writeFile(t, file, admission)
	s := newServer(t, dir, "--webhook", "--", "--feature-gates=ManifestBasedAdmissionControlConfig=true",
		"--admission-control-config-file="+file)
	s.namespace(t, "acme--web", "acme")
	s.mustKubectl(t, "admin", "delete",
		"mutatingwebhookconfiguration,validatingwebhookconfiguration,validatingadmissionpolicy,"+
			"validatingadmissionpolicybinding", "--all")
	admin := s.client(t, "admin")
	waittest.Until(t, func() error {
		err := admin.AppsV1().RESTClient().Post().AbsPath("/apis/apps/v1/namespaces/acme--web/daemonsets").
			Body([]byte(daemonSet)).Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), ".kubetenant.static.k8s.io'") {
			return fmt.Errorf("a DaemonSet in a tenant's namespace: %w", err)
		}
		return nil
	})
	for name, label := range map[string]string{"acme--mine": "system", "acme--theirs": "globex"} {
		t.Run(name, func(t *testing.T) { // the policy also applies to the cluster's admin
			body := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubetenant.dev/tenant: %s}}}",
				name, label)
			if err := admin.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces").SetHeader("Content-Type",
				"application/yaml").Body([]byte(body)).Do(t.Context()).Error(); err == nil ||
				!strings.Contains(err.Error(), "is reserved for that tenant") {
				t.Errorf("%v", err)
			}
		})
	}
	s.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: acme--ours, labels: {kubetenant.dev/tenant: "+
		"acme}}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: system--x}}")
}

// installedNames returns the names of the cluster-scoped objects that an installation of the
// service creates, except CustomResourceDefinitions.
func installedNames(t *testing.T, s *server) string {
	t.Helper()
	const kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies," +
		"validatingadmissionpolicybindings,clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations"
	// The controller creates FlowSchemas, which are not part of the installation.
	output := s.mustKubectl(t, "admin", "get", kinds, "-o", "name", "-l", "kubetenant.dev/managed!=fair-use")
	var names []string
	for line := range strings.Lines(output) {
		if strings.Contains(line, "kubetenant") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	return strings.Join(names, "\n")
}

// deleteInstalled deletes the objects of installedNames, and all objects of the given kinds in the
// service's namespace.
func deleteInstalled(t *testing.T, s *server, kinds string) {
	t.Helper()
	for name := range strings.Lines(installedNames(t, s)) {
		s.mustKubectl(t, "admin", "delete", strings.TrimSpace(name))
	}
	s.mustKubectl(t, "admin", "-n", "kubetenant-system", "delete", kinds, "--all")
}

// TestWebhookHelm installs and upgrades the service with the Helm commands of the docs, and
// uninstalls it. It checks the objects after each step. At the end, only the
// CustomResourceDefinitions may remain. No node runs the Pods.
func TestWebhookHelm(t *testing.T) {
	t.Parallel()
	out := generateManifests(t, "--image=example.com/kubetenant-webhook:1")
	values := filepath.Join(out, "values.yaml")
	s := startServer(t, nil, "--webhook")
	names := func() string { return installedNames(t, s) }
	deleteInstalled(t, s, "serviceaccounts,roles,rolebindings,configmaps,leases,secrets")
	helm := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary(t, "helm"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig("admin"))
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, output)
		}
		return string(output)
	}
	pages := map[string]string{"install": "docs/install.md", "upgrade": "docs/tasks/upgrade.md"}
	command := func(verb string) []string { // returns the command of the page
		t.Helper()
		page := readFile(t, filepath.Join("../../../..", pages[verb]))
		for line := range strings.Lines(page) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "helm "+verb+" "); ok {
				rest = strings.NewReplacer(
					"kubetenant-webhook-0.1.0.tgz", "../../../../deploy/chart",
					"installed/values.yaml", values,
				).Replace(rest)
				return append([]string{verb}, strings.Fields(rest)...)
			}
		}
		t.Fatalf("%s has no helm %s", pages[verb], verb)
		return nil
	}
	s.mustKubectl(t, "admin", "apply", "-f", filepath.Join(out, "cluster", "00-namespace.yaml"))
	if output := helm(append(command("install"),
		"--set", "monitoring=false")...); !strings.Contains(output, "are not installed yet") {
		t.Errorf("the notes are missing:\n%s", output)
	}
	if output := names(); strings.Contains(output, "webhookconfiguration") || strings.Contains(output, "policy") ||
		!strings.Contains(output, "clusterrole") {
		t.Errorf("before kube-apiserver presents its certificate:\n%s", output)
	}
	if output := helm(append(command("upgrade"),
		"--set", "monitoring=false")...); !strings.Contains(output, "are in force") {
		t.Errorf("the notes are missing:\n%s", output)
	}
	installed := names()
	for _, want := range []string{
		"mutatingwebhookconfiguration.admissionregistration.k8s.io/kubetenant", "certificates.kubetenant.dev",
		"clusterrole.rbac.authorization.k8s.io/kubetenant-controller",
	} {
		if !strings.Contains(installed, want) {
			t.Errorf("%s is missing:\n%s", want, installed)
		}
	}
	// An upgrade does not remove a caBundle that was written after the installation.
	admin := s.client(t, "admin")
	authority, _, _ := servingCertificate(t, "ca", nil, time.Hour)
	bundle := []byte(`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"` +
		base64.StdEncoding.EncodeToString(authority) + `"}]`)
	hooks := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Patch(t.Context(), "kubetenant", types.JSONPatchType, bundle, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	helm(append(command("upgrade"), "--set", "monitoring=false", "--set", "replicas=3")...)
	d, err := admin.AppsV1().Deployments("kubetenant-system").Get(t.Context(), "kubetenant-webhook", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 || names() != installed {
		t.Errorf("after the upgrade: %v, %v\n%s", d, err, names())
	}
	if w, err := hooks.Get(t.Context(), "kubetenant", metav1.GetOptions{}); err != nil ||
		len(w.Webhooks[0].ClientConfig.CABundle) == 0 {
		t.Errorf("the upgrade removed the caBundle: %v", err)
	}
	helm("uninstall", "kubetenant", "-n", "kubetenant-system")
	if left := names(); left != "" {
		t.Errorf("left:\n%s", left)
	}
	checkDefinitions(t, s) // Helm does not delete the CustomResourceDefinitions
}

// TestWebhookChartValues checks that the chart's schema rejects invalid values, and that the error
// contains the path of the value.
func TestWebhookChartValues(t *testing.T) {
	t.Parallel()
	out := generateManifests(t)
	for set, at := range map[string]string{
		"image=":                                      "/image",
		"imagePullPolicy=Sometimes":                   "/imagePullPolicy",
		"replicas=0":                                  "/replicas",
		"replicas=two":                                "/replicas",
		"resources.limits.memory=lots":                "/resources/limits/memory",
		"resources=null":                              "resources",
		"controller.resource.x=1":                     "/controller",
		"extraArgs[0]=verbose":                        "/extraArgs/0",
		"nodeSelector.a=1":                            "/nodeSelector/a",
		"tolerations=all":                             "/tolerations",
		"affinity=x":                                  "/affinity",
		"labels.a=1":                                  "/labels/a",
		"certificates.selfManaged=maybe":              "/certificates/selfManaged",
		"networkPolicy.metricsFrom=null":              "networkPolicy",
		"networkPolicy.metricsFrom={}":                "networkPolicy",
		"monitoring=2":                                "/monitoring",
		"sweepGroups[0]=admissionregistration.k8s.io": "/sweepGroups/0",
		"sweepGroups[0]=*":                            "/sweepGroups/0",
		"config.tenancy=1":                            "/config/tenancy",
		"url=http://a":                                "/url",
		"clusterIP=name":                              "/clusterIP",
		"names[0]=1":                                  "/names/0",
		"caBundle=x":                                  "/caBundle",
		"clientCA=x":                                  "/clientCA",
		"clientNames[0]=":                             "/clientNames/0",
		"grants=x":                                    "/grants",
		"quota=x":                                     "/quota",
		"rbac=x":                                      "/rbac",
		"fromGroups=x":                                "/fromGroups",
		"workloadGroups[0]=1":                         "/workloadGroups/0",
		"restricted[0].group=1":                       "/restricted/0",
		"exempt.userPrefixes[0]=":                     "/exempt/userPrefixes/0",
		"exempt.all=true":                             "/exempt",
		"replica=2":                                   "replica",
		"createNamespace=x":                           "/createNamespace",
		"imagePullSecrets[0]=x":                       "/imagePullSecrets/0",
		"priorityClassName=1":                         "/priorityClassName",
		"exemptSystem=x":                              "/exemptSystem",
		"storage.type=HostPath":                       "/storage/type",
		"storage.size=large":                          "/storage/size",
	} {
		t.Run(set, func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), binary(t, "helm"), "template", "kubetenant",
				"../../../../deploy/chart", "-f", filepath.Join(out, "values.yaml"), "--set", set).
				CombinedOutput()
			if err == nil || !strings.Contains(string(output), "schema") || !strings.Contains(string(output), at) {
				t.Errorf("%v\n%.600s", err, output)
			}
		})
	}
}
