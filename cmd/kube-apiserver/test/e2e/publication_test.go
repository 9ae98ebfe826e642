// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// published contains the objects that this test publishes.
const published = `{ apiVersion: v1, kind: Secret, metadata: { name: registry, namespace: platform }, type: Opaque,
  stringData: { token: first } }
---
{ apiVersion: v1, kind: ConfigMap, metadata: { name: about, namespace: platform }, data: { where: "${namespace}" } }
---
{ apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: { name: from-platform, namespace: platform },
  spec: { podSelector: {}, ingress: [ { from: [ { namespaceSelector: { matchLabels: {
  kubernetes.io/metadata.name: platform } } } ] } ] } }
---
{ apiVersion: v1, kind: LimitRange, metadata: { name: most, namespace: platform },
  spec: { limits: [ { type: Pod, max: { cpu: "4" } } ] } }
---
{ apiVersion: v1, kind: ResourceQuota, metadata: { name: services, namespace: platform },
  spec: { hard: { services.nodeports: "0" } } }
---
{ apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: { name: deployer, namespace: platform },
  rules: [ { apiGroups: [apps], resources: [deployments], verbs: [get, list, update] } ] }
---
{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: deployers, namespace: platform },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "deployers-of-${tenant}" } ] }
`

// publishedKinds contains the API version, kind and name of each object of published.
var publishedKinds = [][3]string{
	{"v1", "Secret", "registry"},
	{"v1", "ConfigMap", "about"},
	{"networking.k8s.io/v1", "NetworkPolicy", "from-platform"},
	{"v1", "LimitRange", "most"},
	{"v1", "ResourceQuota", "services"},
	{"rbac.authorization.k8s.io/v1", "Role", "deployer"},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", "deployers"},
}

func publicationOf(kind [3]string, more string) string {
	return fmt.Sprintf(`{ apiVersion: kubetenant.dev/v1alpha1, kind: Publication, metadata: { name: %s },
  spec: { from: { apiVersion: %s, kind: %s, namespace: platform, name: %s }, tenants: { ids: [stark] }%s } }
---
`, kind[2], kind[0], kind[1], kind[2], more)
}

// objectsArePublished checks that an object of each kind is copied to the namespaces of a tenant.
// It also checks that the copies follow changes of their source, and cannot be changed otherwise.
func objectsArePublished(t *testing.T, s *server) {
	run := func(args ...string) string {
		t.Helper()
		out, err := s.kubectl(t, "admin", args...)
		if err != nil {
			t.Fatal(args, out)
		}
		return out
	}
	ready := func(name, want string) {
		t.Helper()
		waittest.Until(t, func() error {
			out := run("get", "publication", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
			if out != want {
				return fmt.Errorf("%s is %q, want %q: %s", name, out, want, run("get", "publication", name, "-o", "yaml"))
			}
			return nil
		})
	}
	copied := func(kind, name, path, want string) {
		t.Helper()
		s.awaitOutput(t, want, "get", kind, name, "-n", "stark--old", "--ignore-not-found",
			"-o", "jsonpath="+path)
	}
	s.apply(t, `{ apiVersion: v1, kind: Namespace, metadata: { name: platform } }`)
	sources, all := published, ""
	for _, kind := range publishedKinds {
		all += publicationOf(kind, "")
	}
	s.apply(t, sources+"---\n"+all, asOps...)
	for _, kind := range publishedKinds {
		ready(kind[2], "Published")
	}
	copied("secret", "registry", "{.data.token}{.metadata.labels}", "Zmlyc3Q="+
		`{"kubetenant.dev/managed":"publication","kubetenant.dev/publication":"registry","kubetenant.dev/tenant":"stark"}`)
	copied("configmap", "about", "{.data.where}", "stark--old")
	copied("rolebinding", "deployers", "{.subjects[0].name}", "deployers-of-stark")
	copiesAreProtected(t, s)

	// A namespace that is created later gets all copies.
	s.namespace(t, "stark--pub", "stark")
	for _, kind := range publishedKinds {
		waittest.Until(t, func() error {
			out, err := s.kubectl(t, "admin", "get", kind[1], kind[2], "-n", "stark--pub", "-o", "name")
			if err != nil {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}

	// Replace the source with a Secret of another type, although the type of a copy is immutable.
	// Then change a source as an author without the required rights.
	run(append([]string{"delete", "secret", "registry", "-n", "platform"}, asOps...)...)
	copied("secret", "registry", "{.type}", "")
	s.apply(t, `{ apiVersion: v1, kind: Secret, metadata: { name: registry, namespace: platform },
  type: example.com/other,
  stringData: { token: second } }`, asOps...)
	copied("secret", "registry", "{.type} {.data.token}", "example.com/other c2Vjb25k")
	sourcesOfOthers(t, s, ready, copied)

	// The copies of a deleted Publication are deleted. The copies of other Publications are not.
	run("delete", "publication", "about", "--timeout=60s")
	copied("configmap", "about", "{.data.where}", "")
	copied("secret", "registry", "{.data.token}", "c2Vjb25k")
	run(append([]string{"delete", "publications", "--all", "--timeout=60s"}, asOps...)...)
	for _, kind := range publishedKinds {
		copied(kind[1], kind[2], "{.metadata.name}", "")
	}
	annotatedObjects(t, s, copied)
}

// copiesAreProtected checks that neither the cluster's admin nor a user of the system tenant can
// change or delete a copy.
func copiesAreProtected(t *testing.T, s *server) {
	for _, kind := range publishedKinds {
		copied := strings.ToLower(kind[1]) + "/" + kind[2]
		for what, args := range map[string][]string{
			"deleted":   {"delete", copied},
			"unlabeled": {"label", copied, "kubetenant.dev/managed-"},
			"relabeled": {"label", copied, "kubetenant.dev/publication=x", "--overwrite"},
			"annotated": {"annotate", copied, "a=b"},
			"changed to have an owner": {
				"patch", copied, "--type=merge", "-p",
				`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
			},
			"deleted by label": {"delete", strings.ToLower(kind[1]), "-l", "kubetenant.dev/managed"},
		} {
			for _, more := range [][]string{nil, asOps} {
				args := slices.Concat(args, []string{"-n", "stark--old"}, more)
				if out, err := s.kubectl(t, "admin", args...); err == nil || !strings.Contains(out, "kubetenant.dev/") {
					t.Errorf("%s is %s by %v: %s", copied, what, more, out)
				}
			}
		}
	}
}

// sourcesOfOthers checks that the content of a source is not copied if its author does not have the
// rights to publish it.
func sourcesOfOthers(
	t *testing.T, s *server, ready func(name, want string), copied func(kind, name, path, want string),
) {
	s.apply(t, `{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding,
  metadata: { name: editor, namespace: platform },
  roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin },
  subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: editor } ] }`)
	asEditor := []string{"--as=editor", "--as-user-extra=kubetenant.dev/tenant=system"}
	s.apply(t,
		`{ apiVersion: v1, kind: ConfigMap, metadata: { name: about, namespace: platform }, data: { where: forged } }`,
		asEditor...)
	ready("about", "AuthorNotChecked")
	copied("configmap", "about", "{.data.where}", "stark--old")
	for what, object := range map[string]string{
		"hash of the content": `{ apiVersion: v1, kind: ConfigMap, metadata: { name: about, namespace: platform,
  annotations: { kubetenant.dev/published: "00000000000000000000000000000000" } }, data: { where: forged } }`,
		"Publication": publicationOf([3]string{"v1", "ConfigMap", "about"}, ", onConflict: Replace"),
		"publish annotation": `{ apiVersion: v1, kind: ConfigMap, metadata: { name: other, namespace: platform,
  annotations: { kubetenant.dev/publish: "*" } } }`,
	} {
		out, err := s.kubectl(t, "admin", append([]string{"apply", "-f", testFile(t, object)}, asEditor...)...)
		if err == nil && what != "hash of the content" {
			t.Errorf("%s: %s", what, out)
		}
	}
	ready("about", "AuthorNotChecked")
	s.apply(t, `{ apiVersion: v1, kind: ConfigMap, metadata: { name: about, namespace: platform },
  data: { where: "in ${namespace}" } }`, asOps...)
	ready("about", "Published")
	copied("configmap", "about", "{.data.where}", "in stark--old")
}

// annotatedObjects checks that the annotation kubetenant.dev/publish publishes an object, and that
// its removal deletes the copies. The annotation must have no effect on an object in a tenant's
// namespace.
func annotatedObjects(t *testing.T, s *server, copied func(kind, name, path, want string)) {
	annotate := func(value string, more ...string) (string, error) {
		t.Helper()
		return s.kubectl(t, "admin",
			slices.Concat([]string{"annotate", "configmap", "about", "--overwrite", "kubetenant.dev/publish" + value}, more)...)
	}
	if out, err := annotate("=*", append([]string{"-n", "platform"}, asOps...)...); err != nil {
		t.Fatal(out)
	}
	copied("configmap", "about", "{.data.where}", "in stark--old")
	if out, err := annotate("-", append([]string{"-n", "platform"}, asOps...)...); err != nil {
		t.Fatal(out)
	}
	copied("configmap", "about", "{.data.where}", "")
	s.mustKubectl(t, "admin", "create", "configmap", "about", "-n", "stark--pub")
	out, err := annotate("=*", append([]string{"-n", "stark--pub"}, asOps...)...)
	if err != nil || !strings.Contains(out, "Warning") {
		t.Errorf("the annotation on an object of a tenant: %v %s", err, out)
	}
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "publications", "-o", "name")
		if err != nil || strings.Contains(out, "publication.kubetenant.dev/") {
			return fmt.Errorf("there are Publications: %s", out)
		}
		return nil
	})
}
