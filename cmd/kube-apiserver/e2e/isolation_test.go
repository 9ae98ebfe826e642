package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/isolation"
	"github.com/kubetenant/kubetenant/cmd/internal/testing/localserver"
)

// definitions are a namespaced and a cluster-scoped kind.
const definitions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { plural: widgets, kind: Widget }
  versions: [ { name: v1, served: true, storage: true, subresources: { status: {}, scale: { specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas } }, schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } } ]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: gadgets.example.com }
spec:
  group: example.com
  scope: Cluster
  names: { plural: gadgets, kind: Gadget }
  versions: [ { name: v1, served: true, storage: true, schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } } ]
`

// apply applies a file as the admin.
func apply(t *testing.T, s *localserver.Server, text string) {
	t.Helper()
	path := t.TempDir() + "/file.yaml"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, s, "admin", "apply", "-f", path); err != nil {
		t.Fatal(out)
	}
}

// aggregated is an API server that gives everything to everybody, as one does that trusts whoever comes
// through kube-apiserver.
func aggregated(t *testing.T, s *localserver.Server) {
	t.Helper()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	resources := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "aggregated.example.com/v1",
		APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Namespaced: true, Verbs: verbs}, {Name: "universes", Kind: "Universe", Verbs: verbs}}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.TrimSuffix(r.URL.Path, "/") == "/apis/aggregated.example.com/v1" {
			_ = json.NewEncoder(w).Encode(resources)
			return
		}
		items := `[{"metadata":{"name":"x","namespace":"globex--isolation"}}]`
		if strings.Contains(r.URL.Path, "/namespaces/") {
			items = `[]` // so that a namespace can end
		}
		_, _ = w.Write([]byte(`{"apiVersion":"aggregated.example.com/v1","kind":"ThingList","items":` + items + `}`))
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	apply(t, s, `
apiVersion: v1
kind: Service
metadata: { name: aggregated, namespace: kube-system }
spec: { type: ExternalName, externalName: localhost, ports: [ { port: `+port+` } ] }
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: { name: v1.aggregated.example.com }
spec: { group: aggregated.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: { name: aggregated, namespace: kube-system, port: `+port+` } }
`)
	if out, err := kubectl(t, s, "admin", "wait", "--for=condition=Available", "--timeout=60s", "apiservice/v1.aggregated.example.com"); err != nil {
		t.Fatal(out)
	}
}

// TestIsolation tries everything that the server serves, custom and aggregated resources included,
// across the line between tenants; and some groups of it as an operator would, by the command and impersonation.
func TestIsolation(t *testing.T) { testIsolation(t, isolation.CompiledIn) }

// TestWebhookIsolation tries the same behind the webhook service.
func TestWebhookIsolation(t *testing.T) { testIsolation(t, isolation.Webhook, "--webhook") }

func testIsolation(t *testing.T, shape isolation.Shape, args ...string) {
	t.Helper()
	t.Parallel()
	s := start(t, t.TempDir(), args...)
	apply(t, s, definitions)
	aggregated(t, s)
	if out, err := kubectl(t, s, "admin", "wait", "--for=condition=Established", "--timeout=60s", "crd/widgets.example.com", "crd/gadgets.example.com"); err != nil {
		t.Fatal(out)
	}
	report, err := isolation.Run(t.Context(), isolation.Options{
		Admin: config(t, s, "admin"), Tenants: [2]string{"acme", "globex"}, User: config(t, s, "acme")})
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	report.Write(&table)
	t.Logf("%d resources and subresources\n%s", report.Resources, &table)
	if !report.OK() || report.Shape != shape || report.Total(isolation.Denied) < 10_000 || report.Total(isolation.Passed) < 500 {
		t.Error("not isolated, or too little tried")
	}

	if shape != isolation.CompiledIn {
		return // the command is the same
	}
	cmd := exec.CommandContext(t.Context(), binary(t, "kubectl-tenant"), "verify-isolation", "--kubeconfig", s.Kubeconfig("admin"), "--api-group", "apps", "--api-group", "rbac.authorization.k8s.io")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "LEAKED:") || !strings.Contains(string(out), "removing the tenants") {
		t.Errorf("verify-isolation: %v\n%s", err, out)
	}
	if out, err := kubectl(t, s, "admin", "get", "ns,clusterroles,clusterrolebindings", "-o", "name"); err != nil || strings.Contains(out, "isolation") || strings.Contains(out, "verify-") {
		t.Errorf("left behind: %v\n%s", err, out)
	}
}
