// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const stdTemplate = `apiVersion: kubetenant.dev/v1alpha1
kind: NamespaceTemplate
metadata: { name: std }
spec:
  hold: true
  objects:
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: { name: own-tenant-only }
    spec: { podSelector: {}, ingress: [ { from: [ { namespaceSelector: { matchLabels: { kubetenant.dev/tenant: ` +
	`"${tenant}" } } } ], ports: [ { port: 80 } ] } ] }
  - apiVersion: v1
    kind: LimitRange
    metadata: { name: defaults }
    spec: { limits: [ { type: Container, max: { cpu: "1" }, default: { cpu: 1000m, memory: 128Mi } } ] }
  - apiVersion: v1
    kind: ResourceQuota
    metadata: { name: services }
    spec: { hard: { services.loadbalancers: "0" } }
  - apiVersion: v1
    kind: ConfigMap
    metadata: { name: about }
    immutable: true
    data: { where: "${namespace}" }
`

// templatesAreApplied checks that the objects of a NamespaceTemplate are in a namespace before its
// first Pod, follow changes of the template, and cannot be changed otherwise. It also checks that
// the server does not rewrite an object only because of the defaults that kube-apiserver adds.
func templatesAreApplied(t *testing.T, s *server) {
	checkObjects := func(namespace string, want ...string) error {
		out, err := s.kubectl(t, "admin", "get", "networkpolicies,limitranges,resourcequotas,configmaps", "-n", namespace,
			"-l", "kubetenant.dev/managed", "-o", "name")
		if got := strings.Fields(out); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s has %v, want %v", namespace, got, want)
		}
		return nil
	}
	all := []string{
		"networkpolicy.networking.k8s.io/own-tenant-only", "limitrange/defaults", "resourcequota/services", "configmap/about",
	}
	named := func(templates string) {
		t.Helper()
		s.apply(t,
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: stark }, `+
				`spec: { id: stark, bindings: [ { clusterRole: view, subjects: [ { kind: User, name: steward } ] } ], `+
				`namespaces: { templates: [ `+templates+` ] } } }`)
	}
	s.namespace(t, "stark--old", "stark")
	pod := func(namespace string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "` + namespace +
			`"}, "spec": {"containers": [{"name": "x", "image": "x"}], "automountServiceAccountToken": false}}`
	}
	s.apply(t, stdTemplate)
	named("std")
	waittest.Until(t, func() error { return checkObjects("stark--old", all...) })
	versions := func() string {
		t.Helper()
		out := s.mustKubectl(t, "admin", "get", "networkpolicies,limitranges,configmaps", "-n", "stark--old", "-l",
			"kubetenant.dev/managed", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
		return out
	}
	before := versions()

	// A namespace and its Pod are applied together. The server rejects the Pod until the namespace
	// has the objects that the Tenant specifies.
	path := testFile(t,
		`{ apiVersion: v1, kind: List, items: [ { apiVersion: v1, kind: Namespace, metadata: { name: stark--new, `+
			`labels: { kubetenant.dev/tenant: stark } } }, `+pod("stark--new")+` ] }`)
	// Until the namespace also has its default service account.
	s.awaitKubectl(t, "admin", append([]string{"apply", "-f", path}, asOps...)...)
	if err := checkObjects("stark--new", all...); err != nil {
		t.Errorf("the Pod was created too early: %v", err)
	}
	if out, err := s.kubectl(t, "admin", "get", "ns", "stark--new", "-o",
		`jsonpath={.metadata.annotations.kubetenant\.dev/held}`); err != nil || out != "" {
		t.Errorf("the annotation held remains: %s", out)
	}
	if out, err := s.kubectl(t, "admin", "get", "configmap", "about", "-n", "stark--new", "-o",
		"jsonpath={.data.where}"); err != nil || out != "stark--new" {
		t.Errorf("data.where is %s", out)
	}
	templatesAreProtected(t, s)

	// The server replaces an immutable object, and deletes an object that is no longer in the
	// template.
	s.apply(t,
		strings.NewReplacer(`"${namespace}"`, `"at ${namespace}"`, "name: services", "name: balancers").Replace(stdTemplate))
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "configmap", "about", "-n", "stark--old", "-o", "jsonpath={.data.where}")
		if err != nil || out != "at stark--old" {
			return fmt.Errorf("data.where is %s", out)
		}
		return checkObjects("stark--old", all[0], all[1], "resourcequota/balancers", all[3])
	})
	if strings.Fields(versions())[0] != strings.Fields(before)[0] ||
		strings.Fields(versions())[1] != strings.Fields(before)[1] {
		t.Errorf("unchanged objects were updated: %s, was %s", versions(), before)
	}

	// If a template is missing, Pods are rejected in new namespaces only.
	named("std, missing")
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "tenant", "stark", "-o",
			`jsonpath={.status.conditions[?(@.type=="Prepared")].message}`)
		if err != nil || !strings.Contains(out, "NamespaceTemplate missing does not exist") {
			return fmt.Errorf("the condition: %s", out)
		}
		return nil
	})
	s.mustKubectl(t, "admin", append([]string{
		"create", "-f",
		testFile(t,
			`{ apiVersion: v1, kind: Namespace, metadata: { name: stark--held, labels: { kubetenant.dev/tenant: stark } } }`),
	}, asOps...)...)
	waittest.Until(
		t,
		func() error { return checkObjects("stark--held", all[0], all[1], "resourcequota/balancers", all[3]) },
	)
	if out, err := s.kubectl(t, "admin", append([]string{
		"create", "--raw=/api/v1/namespaces/stark--held/pods", "-f", testFile(t, pod("stark--held")),
	}, asOps...)...); err == nil || !strings.Contains(out, "does not have everything that its Tenant specifies yet") {
		t.Errorf("the Pod was not rejected: %s", out)
	}
	for _, more := range [][]string{asOps, nil} { // nil: as the cluster's admin
		for _, args := range [][]string{
			{"annotate", "ns", "stark--held", "kubetenant.dev/held-"},
			{"annotate", "ns", "stark--held", "kubetenant.dev/prepared=x", "--overwrite"},
		} {
			if out, err := s.kubectl(t, "admin", append(args, more...)...); err != nil {
				t.Error(out)
			}
		}
		if out, err := s.kubectl(t, "admin", "get", "ns", "stark--held", "-o",
			`jsonpath={.metadata.annotations.kubetenant\.dev/held}{.metadata.annotations.kubetenant\.dev/`+
				`prepared}`); err != nil || out != "true" {
			t.Errorf("the annotations held and prepared were changed: %q", out)
		}
	}
	if out, err := s.kubectl(t, "admin",
		append([]string{"create", "configmap", "about", "-n", "stark--held"}, asOps...)...); err == nil {
		t.Errorf("a caller creates an object of a template: %s", out)
	}
	templatesStayInAnEndingNamespace(t, s)
	s.apply(t, pod("stark--old"))
	named("")
	for _, namespace := range []string{"stark--old", "stark--held"} {
		waittest.Until(t, func() error { return checkObjects(namespace) })
	}
}

// templatesStayInAnEndingNamespace checks that no caller can delete the objects of a template in a
// namespace that is being deleted while the namespace still contains a Pod.
func templatesStayInAnEndingNamespace(t *testing.T, s *server) {
	run := func(args ...string) string {
		t.Helper()
		out := s.mustKubectl(t, "admin", args...)
		return out
	}
	run("patch", "pod", "x", "-n", "stark--new", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/runs"]}}`)
	run("delete", "ns", "stark--new", "--wait=false")
	waittest.Until(t, func() error { // until the namespace controller deletes the Pod
		if run("get", "pod", "x", "-n", "stark--new", "-o", "jsonpath={.metadata.deletionTimestamp}") == "" {
			return errors.New("the namespace controller has not deleted the Pod")
		}
		return nil
	})
	for _, resource := range []string{"networkpolicies", "limitranges", "resourcequotas", "configmaps", "rolebindings"} {
		managed := strings.Fields(run("get", resource, "-n", "stark--new", "-l", "kubetenant.dev/managed", "-o", "name"))
		if len(managed) == 0 {
			t.Errorf("no managed %s in the namespace", resource)
		}
		for _, more := range [][]string{nil, asOps} {
			for _, args := range [][]string{
				append([]string{"delete"}, managed...), {"delete", resource, "-l", "kubetenant.dev/managed"},
			} {
				out, err := s.kubectl(t, "admin", append(append(args, "-n", "stark--new"), more...)...)
				if err == nil || !strings.Contains(out, "kubetenant.dev/managed") {
					t.Errorf("%v %v: %s", args, more, out)
				}
			}
		}
	}
	run("patch", "pod", "x", "-n", "stark--new", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.awaitOutput(t, "", "get", "ns", "stark--new", "--ignore-not-found", "-o", "jsonpath={.status}")
}

// templatesAreProtected checks that neither the cluster's admin nor a user of the system tenant can
// change the objects of a template. It also checks that the writer of a template can specify only
// objects that it may create itself.
func templatesAreProtected(t *testing.T, s *server) {
	for _, kind := range []string{
		"networkpolicy/own-tenant-only", "limitrange/defaults", "resourcequota/services", "configmap/about",
	} {
		for what, args := range map[string][]string{
			"deleted":   {"delete", kind},
			"unlabeled": {"label", kind, "kubetenant.dev/managed-"},
			"annotated": {"annotate", kind, "a=b"},
			"changed to have an owner": {
				"patch", kind, "--type=merge", "-p",
				`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
			},
		} {
			for _, more := range [][]string{nil, asOps} {
				if out, err := s.kubectl(t, "admin", append(append(args, "-n", "stark--new"), more...)...); err == nil ||
					!strings.Contains(out, "kubetenant.dev/managed") {
					t.Errorf("%s is %s: %s", kind, what, out)
				}
			}
		}
	}
	if out, err := s.kubectl(t, "admin", "delete", "configmaps", "-n", "stark--new", "-l",
		"kubetenant.dev/managed"); err == nil || !strings.Contains(out, "kubetenant.dev/managed") {
		t.Errorf("all are deleted: %s", out)
	}
	s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: { name: template-writer },
  rules: [ { apiGroups: [kubetenant.dev], resources: [namespacetemplates], verbs: ["*"] },
  { apiGroups: [""], resources: [configmaps], verbs: ["*"] } ] }`)
	s.apply(t,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: { name: template-writer },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: template-writer },
  subjects: [ { kind: ServiceAccount, name: writer, namespace: kube-system } ] }`)
	asWriter := []string{"--as=system:serviceaccount:kube-system:writer"}
	for want, object := range map[string]string{
		"":                           `{ apiVersion: v1, kind: ConfigMap, metadata: { name: x } }`,
		"may not create limitranges": `{ apiVersion: v1, kind: LimitRange, metadata: { name: x } }`,
		"must be ConfigMap, LimitRa": `{ apiVersion: v1, kind: Secret, metadata: { name: x } }`,
		"spec.objects[0]: metadata.namespac": `{ apiVersion: v1, kind: ConfigMap, metadata: { name: x, ` +
			`namespace: kube-system } }`,
	} {
		template := `{ apiVersion: kubetenant.dev/v1alpha1, kind: NamespaceTemplate, metadata: { name: written }, ` +
			`spec: { objects: [ ` + object + ` ] } }`
		out, err := s.kubectl(t, "admin", append([]string{"apply", "-f", testFile(t, template)}, asWriter...)...)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v %s", object, err, out)
		}
	}
}
