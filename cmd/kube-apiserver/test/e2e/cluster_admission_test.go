// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// clusterPolicies contains admission policies that set a label on every namespace, and add a
// toleration to every Pod.
const clusterPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: cost-centre }
spec:
  matchConstraints:
    resourceRules:
    - { apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces] }
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{ metadata: Object.metadata{ labels: { "billing.example.com/cost-centre": "42" } } }'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: cost-centre }
spec: { policyName: cost-centre }
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: { name: gpu }
spec:
  matchConstraints:
    resourceRules: [ { apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods] } ]
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [ JSONPatch{ op: "add", path: "/spec/tolerations/-",
          value: Object.spec.tolerations{ key: "gpu", operator: "Exists", effect: "NoSchedule" } } ]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: { name: gpu }
spec: { policyName: gpu }
`

// TestClusterAdmission checks that a tenant's request succeeds if PodNodeSelector or a policy of
// the cluster adds a label, a node selector or a toleration that the tenant may not set. It also
// checks that creates are rejected if the tenant sends these values itself.
func TestClusterAdmission(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": certificatesConfig + forgeryConfig},
		"--", "--enable-admission-plugins=PodNodeSelector")
	s.prepare(t)
	s.apply(t, forgeryRights+"---"+clusterPolicies)
	waittest.Until(t, func() error { // until the server applies the policies
		out, err := s.kubectl(t, "admin", "annotate", "namespace", "acme--web", "--overwrite",
			"scheduler.alpha.kubernetes.io/node-selector=pool=shared")
		if err != nil {
			return fmt.Errorf("%s", out)
		}
		out, err = s.kubectl(t, "admin", "get", "namespace", "acme--web", "-o", "jsonpath={.metadata.labels}")
		if err != nil ||
			!strings.Contains(out, `cost-centre":"42"`) {
			return fmt.Errorf("labels %s", out)
		}
		return nil
	})
	clusterNamespaces(t, s)
	clusterPods(t, s)
}

// checkRefused runs kubectl as acme, and checks that it fails and prints want. If want is empty,
// kubectl must succeed.
func checkRefused(t *testing.T, s *server, want string, args ...string) {
	t.Helper()
	out, err := s.kubectl(t, "acme", args...)
	if (err != nil) != (want != "") || !strings.Contains(out, want) {
		t.Errorf("%q: %v %s, want %q", args, err, out, want)
	}
}

// checkOutput runs kubectl as acme, and checks that it succeeds and prints want.
func checkOutput(t *testing.T, s *server, want string, args ...string) {
	t.Helper()
	if out, err := s.kubectl(t, "acme", args...); err != nil || !strings.Contains(out, want) {
		t.Errorf("%q: %v %s, want %q", args, err, out, want)
	}
}

func clusterNamespaces(t *testing.T, s *server) {
	namespace := func(labels string) string {
		return testFile(t, `{ apiVersion: v1, kind: Namespace, metadata: { name: acme--x, labels: { `+labels+` } } }`)
	}
	const setting = "admission.namespace.clusterLabels if the cluster sets it"
	sent := namespace(`billing.example.com/cost-centre: "42"`)
	checkRefused(t, s, setting, "create", "-f", sent)
	checkRefused(t, s, setting, "apply", "--server-side", "-f", sent)
	checkRefused(t, s, "", "apply", "--server-side", "-f", namespace("env: x"))
	checkRefused(t, s, "", "label", "namespace", "acme--x", "team=q")
	checkRefused(t, s, "", "label", "namespace", "acme--x", "billing.example.com/cost-centre=7", "--overwrite")
	checkRefused(t, s, "", "label", "namespace", "acme--x", "billing.example.com/cost-centre-")
	checkRefused(t, s, "tenants may not set or remove the label",
		"label", "namespace", "acme--x", "billing.example.com/other=7")
	checkOutput(t, s, `"42"`, "get", "namespace", "acme--x", "-o", "jsonpath={.metadata.labels}")
}

func clusterPods(t *testing.T, s *server) {
	pod := func(name, spec string) string {
		return testFile(t, `{ apiVersion: v1, kind: Pod, metadata: { namespace: acme--web, `+name+` },
  spec: { automountServiceAccountToken: false, containers: [ { name: c, image: i } ]`+spec+` } }`)
	}
	s.awaitKubectl(t, "acme", "create", "-f", pod("name: made", "")) // until the namespace has its default service account
	checkOutput(t, s, `"key":"gpu"`, "get", "pod", "made", "-n", "acme--web", "-o", "jsonpath={.spec.tolerations}")
	checkOutput(t, s, `"pool":"shared"`, "get", "pod", "made", "-n", "acme--web", "-o", "jsonpath={.spec.nodeSelector}")
	checkRefused(t, s, "", "create", "-f", pod("generateName: made-", ""))
	checkRefused(t, s, "", "apply", "--server-side", "-f", pod("name: applied", ""))
	for spec, want := range map[string]string{
		", nodeSelector: { pool: shared }":                                                "spec.nodeSelector[pool]",
		", tolerations: [ { key: gpu, operator: Exists, effect: NoSchedule } ]":           "spec.tolerations[0]",
		", tolerations: [ { key: x, operator: Exists } ]":                                 "spec.tolerations[0]",
		", nodeSelector: { pool: shared }, tolerations: [ { key: x, operator: Exists } ]": "spec.tolerations[0]",
	} {
		checkRefused(t, s, want, "create", "-f", pod("name: sent", spec))
		checkRefused(t, s, want, "create", "-f", pod("generateName: sent-", spec))
		checkRefused(t, s, want, "create", "--dry-run=server", "-f", pod("name: sent", spec))
		checkRefused(t, s, want, "apply", "--server-side", "-f", pod("name: sent", spec))
	}
	const on = "--namespace=acme--web"
	checkRefused(t, s, "", "label", "pod", "made", on, "a=b")
	checkRefused(t, s, "", "patch", "pod", "made", on, "--subresource=ephemeralcontainers", "-p",
		`{"spec":{"ephemeralContainers":[{"name":"d","image":"i"}]}}`)
	for kind, patch := range map[string]string{
		"--type=json": `[{"op":"add","path":"/spec/tolerations/-",` +
			`"value":{"key":"gpu","operator":"Exists","effect":"NoExecute"}}]`,
		"--type=strategic": `{"spec":{"tolerations":[{"key":"x","operator":"Exists"}]}}`,
	} {
		checkRefused(t, s, "spec.tolerations", "patch", "pod", "made", on, kind, "-p", patch)
	}
}
