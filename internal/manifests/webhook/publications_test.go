// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

// publishing contains admission settings that allow Publications of a kind that is not allowed by
// default.
const publishing = "{publication: {kinds: [{group: cert-manager.io, kind: Certificate, resource: certificates}]}}"

// labeled returns the metadata of a copy, with the labels that the controller sets, and
// annotations.
func labeled(source, publication string, annotations ...string) map[string]any {
	labels, all := map[string]any{tenant.Label: "acme"}, map[string]any{}
	if source != "" {
		labels[tenant.ManagedLabel] = source
	}
	if publication != "" {
		labels[tenant.PublicationLabel] = publication
	}
	for _, key := range annotations {
		all[key] = "x"
	}
	return map[string]any{"labels": labels, "annotations": all}
}

// copied returns the resources whose objects Publications can copy.
func copied() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		resourceOf(
			"",
			"configmaps",
		), resourceOf("", "limitranges"), resourceOf("", "resourcequotas"), resourceOf("", "secrets"),
		resourceOf("networking.k8s.io", "networkpolicies"),
		resourceOf("rbac.authorization.k8s.io", "roles"), resourceOf("rbac.authorization.k8s.io", "rolebindings"),
		resourceOf("cert-manager.io", "certificates"),
	}
}

// TestPoliciesOfCopies checks that the policies protect the copies of published objects while the
// service is unavailable, and that the manager may write only such copies.
func TestPoliciesOfCopies(t *testing.T) {
	t.Parallel()
	set := admissionSetWith(t, publishing)
	manager := &user.DefaultInfo{Name: tenant.ManagerUser}
	admin := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	alice := tenantCallers()["a user with the extra"]
	acme := map[string]string{corev1.LabelMetadataName: "acme--web", tenant.Label: "acme"}
	system := map[string]string{corev1.LabelMetadataName: "platform"}
	const create, update, remove = admission.Create, admission.Update, admission.Delete
	ours := labeled("publication", "ca", tenant.PublishedAnnotation)
	own, template := labeled("", ""), labeled("template", "", tenant.TemplateAnnotation)
	for name, c := range map[string]struct {
		operation admission.Operation
		was, is   map[string]any
		where     map[string]string
		by        user.Info
		denied    string // a part of the message; "" if no policy denies it
		only      string // the only resource of the case; "" for all copied resources
	}{
		"created": {operation: create, is: ours, by: manager},
		"changed": {
			operation: update,
			was:       ours,
			is:        ours,
			by:        manager,
		},
		"replaced": {
			operation: update,
			was:       own,
			is:        ours,
			by:        manager,
		},
		"deleted": {operation: remove, was: ours, by: manager},
		"created in a system namespace": {
			operation: create,
			is:        ours,
			where:     system,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"without labels": {
			operation: create,
			is:        own,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"without the Publication": {
			operation: create,
			is:        labeled("publication", "", tenant.PublishedAnnotation),
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"without the hash": {
			operation: create,
			is:        labeled("publication", "ca"),
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"another source": {
			operation: create,
			is:        labeled("tenant", "ca", tenant.PublishedAnnotation),
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"an own object changed": {
			operation: update,
			was:       own,
			is:        own,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"an own object deleted": {
			operation: remove,
			was:       own,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"an own object, for a template": {
			operation: update,
			was:       own,
			is:        template,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"released": {
			operation: update,
			was:       ours,
			is:        own,
			by:        manager,
			denied:    "in namespaces of tenants",
		},
		"a Secret of a template": {
			operation: create,
			is:        template,
			by:        manager,
			only:      "secrets",
			denied:    "that Publications copy",
		},
		"a ConfigMap of a template": {
			operation: create,
			is:        template,
			by:        manager,
			only:      "configmaps",
		},
		"forged by an administrator": {
			operation: create,
			is:        ours,
			by:        admin,
			denied:    "managed by a Tenant",
		},
		"forged by a tenant": {
			operation: create,
			is:        ours,
			by:        alice,
			denied:    "managed by a Tenant",
		},
		"forged with one label": {
			operation: create,
			is:        labeled("", "ca"),
			by:        alice,
			denied:    "managed by a Tenant",
		},
		"labeled": {
			operation: update,
			was:       own,
			is:        labeled("", "ca"),
			by:        alice,
			denied:    "managed by a Tenant",
		},
		"changed by an administrator": {
			operation: update,
			was:       ours,
			is:        own,
			by:        admin,
			denied:    "the object belongs to the Publication ca of the platform",
		},
		"changed by a tenant": {
			operation: update,
			was:       ours,
			is:        own,
			by:        alice,
			denied:    "the object belongs to the Publication ca of the platform",
		},
		"deleted by an administrator": {
			operation: remove,
			was:       ours,
			by:        admin,
			denied:    "the object belongs to the Publication ca of the platform",
		},
		"deleted by a tenant": {
			operation: remove,
			was:       ours,
			by:        alice,
			denied:    "the object belongs to the Publication ca of the platform",
		},
		"a copy with one label, deleted": {
			operation: remove,
			was:       labeled("", "ca"),
			by:        alice,
			denied:    "the object belongs to the Publication ca of the platform",
		},
		"an own object, by its tenant": {
			operation: update,
			was:       own,
			is:        own,
			by:        alice,
		},
		"an own object, deleted by its tenant": {operation: remove, was: own, by: alice},
		"written as it was by a tenant": {
			operation: update,
			was:       ours,
			is:        ours,
			by:        alice,
		},
		"a tenant with the manager's name": {
			operation: create,
			is:        ours,
			by:        &user.DefaultInfo{Name: tenant.ManagerUser, Groups: []string{"tenant:acme"}},
			denied:    "managed by a Tenant",
		},
		"a Publication's hash, created": {
			operation: create,
			is:        labeled("", "", tenant.PublishedAnnotation),
			by:        manager,
			only:      "publications",
			denied:    "may not confirm the content",
		},
		"a Publication's hash, set": {
			operation: update,
			was:       own,
			is:        labeled("", "", tenant.PublishedAnnotation),
			by:        manager,
			only:      "publications",
			denied:    "may not confirm the content",
		},
		"a Publication's hash, kept": {
			operation: update,
			was:       labeled("", "", tenant.PublishedAnnotation),
			is:        labeled("", "", tenant.PublishedAnnotation),
			by:        manager,
			only:      "publications",
		},
		"a Publication created": {
			operation: create,
			is:        own,
			by:        manager,
			only:      "publications",
		},
		"a Publication deleted": {
			operation: remove,
			was:       own,
			by:        manager,
			only:      "publications",
		},
		"a service account, by the manager": {
			operation: create,
			is:        ours,
			by:        manager,
			only:      "serviceaccounts",
			denied:    "may only write objects that Tenants define",
		},
		"a ClusterRole, by the manager": {
			operation: update,
			is:        ours,
			was:       ours,
			by:        manager,
			only:      "clusterroles",
			denied:    "may only write objects that Tenants define",
		},
		"a template's author, in a template": {
			operation: update,
			was:       template,
			is:        template,
			by:        manager,
			only:      "configmaps",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range copyResources(c.only) {
				a := attempt{
					operation:       c.operation,
					resource:        resource,
					namespace:       "acme--web",
					name:            "x",
					namespaceLabels: acme,
					by:              c.by,
					metadata:        c.is,
					oldMetadata:     c.was,
				}
				if c.where != nil {
					a.namespace, a.namespaceLabels = "platform", c.where
				}
				if resource.Resource == "publications" || resource.Resource == "clusterroles" {
					a.namespace, a.namespaceLabels = "", nil
					a.metadata, a.oldMetadata = withoutTenant(c.is), withoutTenant(c.was)
				}
				got := strings.Join(set.denialMessages(t, &a), "; ")
				if (got == "") != (c.denied == "") || !strings.Contains(got, c.denied) {
					t.Errorf("%s, %s: %q, want %q", name, resource.Resource, got, c.denied)
				}
			}
		})
	}
}

// withoutTenant removes the labels, as for a cluster-scoped object.
func withoutTenant(metadata map[string]any) map[string]any {
	return map[string]any{"annotations": metadata["annotations"]}
}

// copyResources returns the resource with the given name, or all resources of copies if only is
// "".
func copyResources(only string) []schema.GroupVersionResource {
	switch only {
	case "":
		return copied()
	case "publications":
		return []schema.GroupVersionResource{{Group: tenant.Domain, Version: "v1alpha1", Resource: only}}
	case "clusterroles":
		return []schema.GroupVersionResource{resourceOf("rbac.authorization.k8s.io", only)}
	}
	return []schema.GroupVersionResource{resourceOf("", only)}
}

// TestWebhooksOfSources checks that the service receives the writes of annotated objects by every
// caller, including the control plane. It also receives other writes of publishable objects by the
// control plane, but these writes are allowed if the service does not respond.
func TestWebhooksOfSources(t *testing.T) {
	t.Parallel()
	set := admissionSetWith(t, publishing)
	mutating := mutatingSet(t)
	system := map[string]string{corev1.LabelMetadataName: "platform"}
	marked := labeled("", "", tenant.PublishAnnotation)
	confirmed := labeled("", "", tenant.PublishedAnnotation)
	plain := labeled("", "")
	for name, c := range map[string]struct {
		was, is       map[string]any
		fails, ignore bool
	}{
		"annotated":              {is: marked, fails: true},
		"confirmed":              {is: confirmed, fails: true},
		"annotation added":       {was: plain, is: marked, fails: true},
		"annotation removed":     {was: confirmed, is: plain, fails: true},
		"not annotated":          {is: plain, ignore: true},
		"not annotated, updated": {was: plain, is: plain, ignore: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range copied() {
				for _, by := range []user.Info{
					&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}},
					&user.DefaultInfo{Name: "system:serviceaccount:kube-system:gitops"},
					&user.DefaultInfo{Name: "alice"},
				} {
					a := attempt{
						operation:       admission.Create,
						resource:        resource,
						namespace:       "platform",
						name:            "x",
						namespaceLabels: system,
						by:              by,
						metadata:        c.is,
						oldMetadata:     c.was,
					}
					if c.was != nil {
						a.operation = admission.Update
					}
					exempt := by.GetName() != "alice"
					validated := set.receivingWebhooks(t, &a)
					if got := slices.Contains(validated, "elsewhere.validating.kubetenant.dev"); got != (c.fails || !exempt) {
						t.Errorf("%s of %s by %s: validated by %q", name, resource.Resource, by.GetName(), validated)
					}
					mutated := mutating.receivingWebhooks(t, &a)
					if got := slices.Contains(mutated, "elsewhere.mutating.kubetenant.dev"); got != (c.fails || !exempt) {
						t.Errorf("%s of %s by %s: mutated by %q", name, resource.Resource, by.GetName(), mutated)
					}
					if got := slices.Contains(mutated, "sources.mutating.kubetenant.dev"); got != (c.ignore && exempt) {
						t.Errorf("%s of %s by %s: mutated by %q", name, resource.Resource, by.GetName(), mutated)
					}
				}
			}
		})
	}
}

// TestNoPublicationFromServiceNamespace checks that no caller can publish an object in the
// namespace of the service, which the webhooks skip.
func TestNoPublicationFromServiceNamespace(t *testing.T) {
	t.Parallel()
	set := admissionSetWith(t, publishing)
	plain := labeled("", "")
	for name, c := range map[string]struct {
		was, is map[string]any
		denied  bool
	}{
		"plain, created":     {is: plain},
		"annotated, created": {is: labeled("", "", tenant.PublishAnnotation), denied: true},
		"confirmed, created": {is: labeled("", "", tenant.PublishedAnnotation), denied: true},
		"annotated":          {was: plain, is: labeled("", "", tenant.PublishAnnotation), denied: true},
		"confirmed": {
			was:    labeled("", "", tenant.PublishAnnotation),
			is:     labeled("", "", tenant.PublishAnnotation, tenant.PublishedAnnotation),
			denied: true,
		},
		"unchanged":     {was: labeled("", "", tenant.PublishAnnotation), is: labeled("", "", tenant.PublishAnnotation)},
		"not published": {was: labeled("", "", tenant.PublishAnnotation), is: plain},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range copied() {
				for _, by := range []user.Info{
					&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}},
					&user.DefaultInfo{Name: "system:serviceaccount:" + own + ":kubetenant-webhook"},
				} {
					a := attempt{
						operation:       admission.Update,
						resource:        resource,
						namespace:       own,
						name:            "x",
						namespaceLabels: map[string]string{corev1.LabelMetadataName: own},
						by:              by,
						granted:         func(authorizer.Attributes) bool { return true },
						metadata:        c.is,
						oldMetadata:     c.was,
					}
					if c.was == nil {
						a.operation = admission.Create
					}
					if got := strings.Join(set.denialMessages(t, &a), "; "); strings.Contains(got, "cannot be published") != c.denied {
						t.Errorf("%s, %s by %s: %q", name, resource.Resource, by.GetName(), got)
					}
				}
			}
		})
	}
}

// TestControllerOfPublications checks that the Deployment passes the publishable kinds of the
// configuration to the controller.
func TestControllerOfPublications(t *testing.T) {
	t.Parallel()
	o := options(t)
	write(t, o.Config, "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, admission: "+publishing+"}")
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	const want = `--publication={"kinds":[{"group":"cert-manager.io","kind":"Certificate","resource":"certificates"}]}`
	for doc := range bytes.SplitSeq(files["cluster/deployment.yaml"], []byte("\n---\n")) {
		var d appsv1.Deployment
		if err := yaml.Unmarshal(doc, &d); err != nil {
			t.Fatal(err)
		}
		if d.Kind != "Deployment" {
			continue
		}
		args := d.Spec.Template.Spec.Containers[0].Args
		if has := slices.Contains(args, want); has != (d.Name == "kubetenant-controller") {
			t.Errorf("%s: args %q", d.Name, args)
		}
	}
}

// mutatingSet returns a set with the mutating webhooks, converted to validating webhooks, which
// have the same fields.
func mutatingSet(t *testing.T) *admissionSet {
	t.Helper()
	o := options(t)
	write(t, o.Config, "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, admission: "+publishing+"}")
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	set := newAdmissionSet()
	for doc := range bytes.SplitSeq(files["cluster/webhooks.yaml"], []byte("\n---\n")) {
		var hooks admissionregistrationv1.ValidatingWebhookConfiguration
		if err := yaml.Unmarshal(doc, &hooks); err != nil {
			t.Fatal(err)
		}
		if hooks.Kind == "MutatingWebhookConfiguration" {
			set.hooks = append(set.hooks, hooks.Webhooks...)
		}
	}
	set.compile(t)
	return set
}
