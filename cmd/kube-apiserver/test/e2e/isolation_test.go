// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/isolation"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// definitions contains the CustomResourceDefinitions of a namespaced and of a cluster-scoped
// resource.
const definitions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { plural: widgets, kind: Widget }
  versions: [ { name: v1, served: true, storage: true,
    subresources: { status: {}, scale: { specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas } },
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } } ]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: gadgets.example.com }
spec:
  group: example.com
  scope: Cluster
  names: { plural: gadgets, kind: Gadget }
  versions: [ { name: v1, served: true, storage: true,
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } } } ]
`

// aggregated starts an aggregated API server. It performs no authorization, as if it trusted every
// request that kube-apiserver forwards.
func aggregated(t *testing.T, s *server) {
	t.Helper()
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	resources := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: "aggregated.example.com/v1",
		APIResources: []metav1.APIResource{
			{
				Name:       "things",
				Kind:       "Thing",
				Namespaced: true,
				Verbs:      verbs,
			},
			{Name: "universes", Kind: "Universe", Verbs: verbs},
		},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.TrimSuffix(r.URL.Path, "/") == "/apis/aggregated.example.com/v1" {
			_ = json.NewEncoder(w).Encode(resources)
			return
		}
		items := `[{"metadata":{"name":"x","namespace":"globex--isolation"}}]`
		if strings.Contains(r.URL.Path, "/namespaces/") {
			items = `[]` // empty, so that namespaces can be deleted
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
	s.apply(t, `
apiVersion: v1
kind: Service
metadata: { name: aggregated, namespace: kube-system }
spec: { type: ExternalName, externalName: localhost, ports: [ { port: `+port+` } ] }
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: { name: v1.aggregated.example.com }
spec: { group: aggregated.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, `+
		`insecureSkipTLSVerify: true, service: { name: aggregated, namespace: kube-system, port: `+
		port+` } }
`)
	s.mustKubectl(t, "admin", "wait", "--for=condition=Available", "--timeout=60s", "apiservice/v1.aggregated.example.com")
}

// TestIsolation checks that no resource of the server lets a tenant access another tenant's
// objects, including custom and aggregated resources. It runs the attacks of [isolation.Run]. For
// some API groups, it also runs "kubectl tenant verify-isolation" as an operator.
func TestIsolation(t *testing.T) { testIsolation(t, installation.CompiledIn) }

// TestWebhookIsolation runs the attacks of [isolation.Run] with the webhook service.
func TestWebhookIsolation(t *testing.T) { testIsolation(t, installation.Webhook, "--webhook") }

func testIsolation(t *testing.T, mode installation.Mode, args ...string) {
	t.Helper()
	t.Parallel()
	s := startServer(t, nil, args...)
	s.apply(t, definitions)
	aggregated(t, s)
	s.mustKubectl(t, "admin", "wait", "--for=condition=Established", "--timeout=60s",
		"crd/widgets.example.com", "crd/gadgets.example.com")
	runAttacks(t, isolation.Options{
		Admin:   s.config(t, "admin"),
		Tenants: [2]string{"acme", "globex"},
		User:    s.config(t, "acme"),
		Mode:    mode,
	})

	if mode != installation.CompiledIn {
		return // the command behaves in the same way in each mode
	}
	out, err := s.tenant(t, "admin", "verify-isolation", "--api-group", "apps", "--api-group", "rbac.authorization.k8s.io")
	if err != nil || strings.Contains(out, "LEAKED:") || !strings.Contains(out, "deleting the temporary tenants") ||
		!strings.Contains(out, "\nisolated: ") {
		t.Errorf("verify-isolation: %v\n%s", err, out)
	}
	nothingIsLeft(t, s)
	interrupted(t, s)
}

// runAttacks runs [isolation.Run], and checks that the tenants are isolated.
func runAttacks(t *testing.T, o isolation.Options) {
	t.Helper()
	report, err := isolation.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	report.Write(&table)
	t.Logf("%d resources and subresources\n%s", report.Resources, &table)
	if !report.OK() || !report.Complete() || report.Total(isolation.Denied) < 10_000 ||
		report.Total(isolation.Passed) < 500 {
		t.Error("the tenants are not isolated, or too few requests were sent")
	}
}

// nothingIsLeft checks that verify-isolation has left no object and no series in the server's
// metrics.
func nothingIsLeft(t *testing.T, s *server) {
	t.Helper()
	const kinds = "ns,clusterroles,clusterrolebindings,tenants,tenantquotas,retiredtenants"
	if out, err := s.kubectl(t, "admin", "get", kinds, "-o", "name"); err != nil || strings.Contains(out, "isolation") ||
		strings.Contains(out, "verify-") {
		t.Errorf("left behind: %v\n%s", err, out)
	}
	waittest.Until(t, func() error { // the server deletes some metrics every ten seconds
		out, err := s.metrics(t)
		if err != nil {
			return errors.New(out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, `tenant="verify-`) {
				return fmt.Errorf("a metric of a deleted tenant: %s", line)
			}
		}
		return nil
	})
}

// interrupted checks that verify-isolation deletes the objects that it created if it is
// interrupted. It also checks that --clean-up deletes the objects of a killed run.
func interrupted(t *testing.T, s *server) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := s.command(t.Context(), t, "kubectl-tenant", "admin", "verify-isolation", "--api-group", "apps")
		progress, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, progressText := bufio.NewScanner(progress), ""
		for lines.Scan() {
			progressText += lines.Text() + "\n"
			if strings.HasPrefix(lines.Text(), "testing every request") {
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if signal == syscall.SIGINT {
			if cmd.ProcessState.ExitCode() != 130 ||
				!strings.Contains(progressText, "everything that the run created was deleted") {
				t.Errorf("interrupted: exit code %d\n%s", cmd.ProcessState.ExitCode(), progressText)
			}
		} else if out, err := s.tenant(t, "admin", "verify-isolation", "--clean-up"); err != nil ||
			out != "runs cleaned up: 1\n" {
			t.Errorf("--clean-up: %v\n%s", err, out)
		}
		nothingIsLeft(t, s)
	}
}

// verifyAtTheGateway checks that verify-isolation succeeds for an operator through the gateway. It
// also checks that the command fails for the admin of the cluster behind the gateway, because the
// cluster does not isolate tenants itself.
func verifyAtTheGateway(t *testing.T, s *server) {
	t.Helper()
	out, err := s.tenant(t, "admin", "verify-isolation")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out, "only the gateway in front of it does") ||
		strings.Count(out, "\n") != 1 {
		t.Errorf("at the cluster itself: %v\n%s", err, out)
	}
	s.write(t, "tokens.csv", "CANARY-token,alice,u1,\"dev\",,acme\nCANARY-operator,operator,u2,\"operators\",,system\n")
	s.mustKubectl(t, "admin", "create", "clusterrolebinding", "operators",
		"--clusterrole=cluster-admin", "--group=operators")
	gateway := s.config(t, "acme")
	s.write(t, "operator.kubeconfig",
		fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Config","current-context":"o",
"contexts":[{"name":"o","context":{"cluster":"g","user":"o"}}],
"clusters":[{"name":"g","cluster":{"server":%q,"certificate-authority-data":%q}}],
"users":[{"name":"o","user":{"token":"CANARY-operator"}}]}`,
			gateway.Host, base64.StdEncoding.EncodeToString(gateway.CAData)))
	s.awaitKubectl(t, "operator", "auth", "whoami")
	out, err = s.tenant(t, "operator", "verify-isolation", "--api-group", "apps")
	if err != nil || !strings.Contains(out, "deployment mode: gateway") || !strings.Contains(out, "\nisolated: ") {
		t.Errorf("at the gateway: %v\n%s", err, out)
	}
	nothingIsLeft(t, s)
}
