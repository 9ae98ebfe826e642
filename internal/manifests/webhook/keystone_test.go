// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

// The settings of a keystone source.
const (
	notSynced      = ""
	synced         = ", sync: {roles: {member: edit}}"
	createsTenants = ", sync: {roles: {member: edit}, createTenants: true}"
)

// keystoneOptions returns options whose configuration has a keystone source with the given
// settings, and the given additional sections.
func keystoneOptions(t *testing.T, settings string, sections ...string) webhook.Options {
	t.Helper()
	o := options(t)
	write(t, o.Config, `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: {sources: [
{name: openstack, tenants: ["*"], groupsPrefix: "keystone:", usernamePrefix: "keystone:",
keystone: {match: {opaque: true}, authURL: "https://keystone.example.com/v3", domain: name, cloud: kube,
cloudsFile: files/clouds.yaml`+settings+`}}]}`+strings.Join(append([]string{""}, sections...), ", ")+"}")
	write(t, filepath.Join(filepath.Dir(o.Config), "files", "clouds.yaml"), "clouds: {}\n")
	return o
}

// documents returns the documents of a kind in a file.
func documents[T any](t *testing.T, file []byte, kind string) (all []T) {
	t.Helper()
	for doc := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var is struct{ Kind string }
		if err := yaml.Unmarshal(doc, &is); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if is.Kind != kind {
			continue
		}
		var one T
		if err := yaml.UnmarshalStrict(doc, &one); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		all = append(all, one)
	}
	return all
}

// TestKeystoneSync checks the rights of the controller. It reads the configuration and may create
// namespaces only with the section sync. It may create Tenants only with createTenants.
func TestKeystoneSync(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings        string
		follows, create bool
	}{
		"no sync":       {notSynced, false, false},
		"sync":          {synced, true, false},
		"createTenants": {createsTenants, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := keystoneOptions(t, c.settings)
			files, err := webhook.Generate(o)
			if err != nil {
				t.Fatal(err)
			}
			var values struct {
				Keystone map[string]bool `json:"keystone"`
			}
			if err := yaml.Unmarshal(files["values.yaml"], &values); err != nil {
				t.Fatal(err)
			}
			if k := values.Keystone; len(k) != 2 || k["enabled"] != c.follows || k["createTenants"] != c.create {
				t.Errorf("values: %v", k)
			}
			checkDeployments(t, files["cluster/deployment.yaml"], c.follows)
			for resource, want := range map[string]bool{"namespaces": c.follows, "tenants": c.create} {
				t.Run(resource, func(t *testing.T) {
					if got := allowsCreation(t, files["cluster/accounts.yaml"], resource); got != want {
						t.Errorf("the manager may create %s: %v, want %v", resource, got, want)
					}
				})
			}
			expectFinding(t, name, findingsAfter(t, o, func(map[string][]byte) {}), "")
			o.Config = keystoneOptions(t, notSynced).Config
			other := findings(t, o, files)
			if len(other) > 0 != c.follows {
				t.Errorf("with a configuration without sync: %q", other)
			}
		})
	}
}

// checkDeployments checks that the Deployment of the service mounts the configuration, and that the
// Deployment of the controller mounts it only if follows is true.
func checkDeployments(t *testing.T, file []byte, follows bool) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, d := range documents[appsv1.Deployment](t, file, "Deployment") {
		pod := d.Spec.Template.Spec
		follower := follows && d.Name == "kubetenant-controller"
		const flag = "--keystone-config=/etc/kubetenant/config/tenancy.yaml"
		if has := slices.Contains(pod.Containers[0].Args, flag); has != follower {
			t.Errorf("%s: args %q", d.Name, pod.Containers[0].Args)
		}
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "config" && m.MountPath == "/etc/kubetenant/config" && m.ReadOnly
		})
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "config" })
		if want := follower || d.Name == "kubetenant-webhook"; mounted != want || i >= 0 != want {
			t.Errorf("%s: mounts %v, volumes %v", d.Name, pod.Containers[0].VolumeMounts, pod.Volumes)
		}
		if i >= 0 {
			volumes[d.Name] = pod.Volumes[i]
		}
	}
	if !follows {
		return
	}
	service, err := json.Marshal(volumes["kubetenant-webhook"])
	if err != nil {
		t.Fatal(err)
	}
	controller, err := json.Marshal(volumes["kubetenant-controller"])
	if err != nil || !bytes.Equal(service, controller) || !bytes.Contains(controller, []byte("files/clouds.yaml")) {
		t.Errorf("the controller has %s, the service %s, %v", controller, service, err)
	}
}

// allowsCreation reports whether a role in a file allows the creation of a resource. It fails the
// test if a role other than the role of the manager allows it.
func allowsCreation(t *testing.T, file []byte, resource string) (may bool) {
	t.Helper()
	for _, role := range documents[rbacv1.ClusterRole](t, file, "ClusterRole") {
		for _, r := range role.Rules {
			if !slices.Contains(r.Verbs, "create") || !slices.Contains(r.Resources, resource) {
				continue
			}
			may = true
			if role.Name != "kubetenant-tenants" || len(r.Resources) != 1 || len(r.Verbs) != 1 {
				t.Errorf("%s may create %s: %v", role.Name, resource, r)
			}
		}
	}
	return may
}

// TestStaticPoliciesOfKeystone checks that the policies in static manifests have the same rules as
// the policies in the cluster.
func TestStaticPoliciesOfKeystone(t *testing.T) {
	t.Parallel()
	o := keystoneOptions(t, createsTenants)
	o.StaticPolicies = true
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	const path = "control-plane/policies/policies.yaml"
	if text := string(files[path]); !strings.Contains(text, "create Tenants of Keystone domains") {
		t.Errorf("the policies do not have sync:\n%s", text)
	}
	expectFinding(t, "static", findingsAfter(t, o, func(map[string][]byte) {}), "")
}

// managerRequest returns a request of the manager for a namespace or a Tenant.
func managerRequest(operation admission.Operation, resource schema.GroupVersionResource, name string) attempt {
	a := attempt{
		operation: operation,
		resource:  resource,
		name:      name,
		by:        &user.DefaultInfo{Name: tenant.ManagerUser},
	}
	if resource == namespaces() {
		a.namespace = name
	}
	return a
}

func namespaces() schema.GroupVersionResource { return resourceOf("", "namespaces") }

func tenants() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "tenants"}
}

// labeledMetadata returns metadata with a tenant label and annotations, in pairs of key and
// value. If the tenant is empty, there is no label.
func labeledMetadata(id string, annotations ...string) map[string]any {
	metadata := map[string]any{}
	if id != "" {
		metadata["labels"] = map[string]any{tenant.Label: id}
	}
	if len(annotations) > 0 {
		all := map[string]any{}
		for i := 0; i < len(annotations); i += 2 {
			all[annotations[i]] = annotations[i+1]
		}
		metadata["annotations"] = all
	}
	return metadata
}

// TestPolicyOfKeystoneNamespaces checks that the manager can only create namespaces of projects,
// with the prefix of their tenant, and only if the configuration has sync.
func TestPolicyOfKeystoneNamespaces(t *testing.T) {
	t.Parallel()
	const key, project, denied = tenant.KeystoneAnnotation, `{"domain":"d","project":"p"}`, "and change their labels"
	const reserved = "authorization: {systemNamespaces: [kube-system, acme--platform]}"
	follows := generatedSet(t, keystoneOptions(t, synced, reserved))
	without := generatedSet(t, keystoneOptions(t, notSynced))
	for name, c := range map[string]struct {
		name     string
		metadata map[string]any
		denied   string // the expected denial with sync
	}{
		"a project":              {"acme--web-12345678", labeledMetadata("acme", key, project), ""},
		"without the annotation": {"acme--web-12345678", labeledMetadata("acme"), denied},
		"with another annotation": {
			"acme--web-12345678",
			labeledMetadata("acme", "example.com/keystone", project),
			denied,
		},
		"without the prefix":                 {"web", labeledMetadata("acme", key, project), denied},
		"with half of the prefix":            {"acme-web", labeledMetadata("acme", key, project), denied},
		"another tenant":                     {"acme--web-12345678", labeledMetadata("initech", key, project), denied},
		"the system tenant":                  {"system--web-12345678", labeledMetadata("system", key, project), denied},
		"without a tenant":                   {"acme--web-12345678", labeledMetadata("", key, project), denied},
		"a system namespace":                 {"kube-system", labeledMetadata("acme", key, project), denied},
		"a system namespace with the prefix": {"acme--platform", labeledMetadata("acme", key, project), denied},
	} {
		t.Run(name, func(t *testing.T) {
			a := managerRequest(admission.Create, namespaces(), c.name)
			a.metadata = c.metadata
			expectDenial(t, name, follows.denialMessages(t, &a), c.denied)
			expectDenial(t, name+", without sync", without.denialMessages(t, &a), denied)
		})
	}
}

// expectDenial fails the test unless a policy denied a request with a message, or none did if want
// is "".
func expectDenial(t *testing.T, name string, messages []string, want string) {
	t.Helper()
	got := strings.Join(messages, ", ")
	if (got == "") != (want == "") || !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// TestPolicyOfKeystoneRoles checks that the manager can record the roles of a project, and cannot
// change other annotations or labels.
func TestPolicyOfKeystoneRoles(t *testing.T) {
	t.Parallel()
	const key, other = tenant.KeystoneAnnotation, "example.com/owner"
	set := generatedSet(t, keystoneOptions(t, synced))
	for name, c := range map[string]struct {
		was, is map[string]any
		allow   bool
	}{
		"set": {
			labeledMetadata("acme", other, "x"),
			labeledMetadata("acme", other, "x", key, "r"),
			true,
		},
		"changed":                 {labeledMetadata("acme", key, "r"), labeledMetadata("acme", key, "s"), true},
		"removed":                 {labeledMetadata("acme", key, "r"), labeledMetadata("acme"), true},
		"with another annotation": {labeledMetadata("acme"), labeledMetadata("acme", key, "r", other, "x"), false},
		"another annotation changed": {
			labeledMetadata("acme", other, "x"),
			labeledMetadata("acme", other, "y", key, "r"),
			false,
		},
		"another annotation removed":     {labeledMetadata("acme", other, "x"), labeledMetadata("acme", key, "r"), false},
		"namespace without a tenant":     {labeledMetadata(""), labeledMetadata("", key, "r"), false},
		"namespace of the system tenant": {labeledMetadata("system"), labeledMetadata("system", key, "r"), false},
		"added tenant label":             {labeledMetadata(""), labeledMetadata("acme", key, "r"), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := managerRequest(admission.Update, namespaces(), "acme--web")
			a.oldMetadata, a.metadata = c.was, c.is
			a.spec, a.oldSpec = map[string]any{}, map[string]any{}
			want := "and change their labels"
			if c.allow {
				want = ""
			}
			expectDenial(t, name, set.denialMessages(t, &a), want)
		})
	}
}

// TestPolicyOfKeystoneTenants checks that the manager can only create Tenants without rights, and
// only if the configuration has createTenants.
func TestPolicyOfKeystoneTenants(t *testing.T) {
	t.Parallel()
	const only = "the annotation kubetenant.dev/keystone of a Tenant"
	creates, follows := generatedSet(t, keystoneOptions(t, createsTenants)), generatedSet(t, keystoneOptions(t, synced))
	spec := func(key string, value any) map[string]any { return map[string]any{"id": "acme", key: value} }
	owner := map[string]any{"ownerReferences": []any{map[string]any{"kind": "ConfigMap", "name": "x"}}}
	for name, c := range map[string]struct {
		metadata, spec map[string]any
		denied         string
	}{
		"an ID": {labeledMetadata(""), map[string]any{"id": "acme"}, ""},
		"the defaults": {
			labeledMetadata(""),
			map[string]any{"id": "acme", "access": "Open", "deletionPolicy": "Protect"},
			"",
		},
		"admins":         {labeledMetadata(""), spec("admins", []any{map[string]any{"kind": "User", "name": "eve"}}), only},
		"bindings":       {labeledMetadata(""), spec("bindings", []any{map[string]any{"clusterRole": "edit"}}), only},
		"no admins":      {labeledMetadata(""), spec("admins", []any{}), only},
		"a quota":        {labeledMetadata(""), spec("quota", map[string]any{"pods": "1"}), only},
		"a template":     {labeledMetadata(""), spec("templates", []any{"privileged"}), only},
		"a predecessor":  {labeledMetadata(""), spec("replaces", "1"), only},
		"a suspension":   {labeledMetadata(""), spec("suspension", "Closed"), only},
		"less access":    {labeledMetadata(""), spec("access", "ReadOnly"), only},
		"less security":  {labeledMetadata(""), spec("deletionPolicy", "Delete"), only},
		"an owner":       {owner, map[string]any{"id": "acme"}, only},
		"roles":          {labeledMetadata("", tenant.KeystoneAnnotation, "r"), map[string]any{"id": "acme"}, only},
		"no ID but more": {labeledMetadata(""), map[string]any{"namespaces": map[string]any{"max": "1"}}, only},
	} {
		t.Run(name, func(t *testing.T) {
			a := managerRequest(admission.Create, tenants(), "acme")
			a.metadata, a.spec = c.metadata, c.spec
			expectDenial(t, name, creates.denialMessages(t, &a), c.denied)
			expectDenial(
				t,
				name+", without createTenants",
				follows.denialMessages(t, &a),
				"may only write objects that Tenants define",
			)
		})
	}
	a := managerRequest(admission.Delete, tenants(), "acme")
	a.oldMetadata, a.oldSpec = labeledMetadata(""), map[string]any{"id": "acme"}
	expectDenial(t, "deleted", creates.denialMessages(t, &a), "may only write objects that Tenants define")
}

// TestPolicyOfKeystoneDomains checks that the manager can record the domain of a Tenant and the
// domain's roles, and cannot change other fields of the Tenant.
func TestPolicyOfKeystoneDomains(t *testing.T) {
	t.Parallel()
	const key, other = tenant.KeystoneAnnotation, "example.com/owner"
	set := generatedSet(t, keystoneOptions(t, createsTenants))
	spec := map[string]any{"id": "acme"}
	for name, c := range map[string]struct {
		was, is map[string]any
		spec    map[string]any
		allow   bool
	}{
		"set": {labeledMetadata(""), labeledMetadata("", key, "d"), spec, true},
		"changed": {
			labeledMetadata("", key, "d", other, "x"),
			labeledMetadata("", key, "e", other, "x"),
			spec,
			true,
		},
		"with another annotation":  {labeledMetadata(""), labeledMetadata("", key, "d", other, "x"), spec, false},
		"other annotation changed": {labeledMetadata("", other, "x"), labeledMetadata("", key, "d", other, "y"), spec, false},
		"other annotation removed": {labeledMetadata("", other, "x"), labeledMetadata("", key, "d"), spec, false},
		"added label":              {labeledMetadata(""), labeledMetadata("acme", key, "d"), spec, false},
		"added admins": {
			labeledMetadata(""),
			labeledMetadata("", key, "d"),
			map[string]any{"id": "acme", "admins": []any{map[string]any{"name": "eve"}}},
			false,
		},
		"less access": {
			labeledMetadata(""),
			labeledMetadata("", key, "d"),
			map[string]any{"id": "acme", "access": "Closed"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := managerRequest(admission.Update, tenants(), "acme")
			a.oldMetadata, a.metadata, a.oldSpec, a.spec = c.was, c.is, spec, c.spec
			want := "change the finalizer"
			if c.allow {
				want = ""
			}
			expectDenial(t, name, set.denialMessages(t, &a), want)
		})
	}
}

// TestForgedKeystoneAnnotation checks that the service receives each change of the Keystone
// annotation, including changes by the control plane.
func TestForgedKeystoneAnnotation(t *testing.T) {
	t.Parallel()
	set := generatedSet(t, keystoneOptions(t, synced))
	for name, c := range map[string]struct {
		was, is map[string]any
		judged  bool
	}{
		"set":     {labeledMetadata("acme"), labeledMetadata("acme", tenant.KeystoneAnnotation, "r"), true},
		"removed": {labeledMetadata("acme", tenant.KeystoneAnnotation, "r"), labeledMetadata("acme"), true},
		"unchanged": {
			labeledMetadata("acme", tenant.KeystoneAnnotation, "r"),
			labeledMetadata("acme", tenant.KeystoneAnnotation, "r"),
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := managerRequest(admission.Update, namespaces(), "acme--web")
			a.oldMetadata, a.metadata = c.was, c.is
			a.by = &user.DefaultInfo{Name: "system:kube-controller-manager"}
			if names := set.receivingWebhooks(t, &a); (len(names) > 0) != c.judged {
				t.Errorf("received by %v", names)
			}
		})
	}
}
