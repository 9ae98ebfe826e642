// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestConfiguredKinds checks that only the server may change a copy of a kind that the
// configuration adds, even if the new object is known. The labels of a kind that is never published
// have no effect.
func TestConfiguredKinds(t *testing.T) {
	const isCopy = "the object is a copy of the platform's Publication registry"
	object := func(kind, value string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       kind,
			"spec":       map[string]any{"value": value},
		}}
		u.SetName("registry")
		u.SetNamespace("acme--web")
		u.SetLabels(map[string]string{tenant.ManagedLabel: "publication", tenant.PublicationLabel: "registry"})
		return u
	}
	stored := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name:   "registry",
		Labels: object("Widget", "").GetLabels(),
	}}
	for name, c := range map[string]struct {
		verb, resource string
		written        bool
		configured     bool
		refused        bool
	}{
		"delete":                           {"delete", "widgets.example.com", false, true, true},
		"an unknown object":                {"update", "widgets.example.com", false, true, true},
		"a given object":                   {"update", "widgets.example.com", true, true, true},
		"a patch with a given object":      {"patch", "widgets.example.com", true, true, true},
		"the configuration is unknown":     {"delete", "widgets.example.com", false, false, true},
		"a Pod with the labels":            {"delete", "pods", false, true, false},
		"a Deployment with the labels":     {"delete", "deployments.apps", false, true, false},
		"an EndpointSlice with the labels": {"delete", "endpointslices.discovery.k8s.io", false, true, false},
		"an AccessGrant with the labels":   {"delete", "accessgrants.kubetenant.dev", false, true, false},
		"a ServiceAccount with the labels": {"delete", "serviceaccounts", false, true, false},
		"a volume claim with the labels":   {"delete", "persistentvolumeclaims", false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(c.verb, c.resource, "acme--web")
			r.Name = "registry"
			e := explained(t, newUser("alice", "acme", "dev"), r, func(q *explain.Query) {
				writing(t, schema.GroupVersionKind{}, nil)(q)
				q.Stored = stored
				if c.configured {
					q.Config.Admission.Publication.Kinds = []configv1alpha1.PublicationKind{
						{Group: "example.com", Kind: "Widget", Resource: "widgets"},
					}
				}
				if c.written {
					q.Write = &explain.Write{
						Kind:   schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
						Object: object("Widget", "new"),
						Old:    object("Widget", "old"),
					}
				}
			})
			refused := e.Admission == explain.Refused && strings.HasPrefix(e.Reason, isCopy)
			if refused != c.refused {
				t.Errorf("%s: %s; want refused: %t", e.Admission, e.Reason, c.refused)
			}
		})
	}
}

// TestUndecidedKinds checks that the result depends on the plugin TenantManaged if an object of a
// configured kind is unknown.
func TestUndecidedKinds(t *testing.T) {
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, configured := range []bool{true, false} {
			r := newRequest(verb, "widgets.example.com", "acme--web")
			r.Name = "registry"
			e := explained(t, newUser("alice", "acme", "dev"), r, func(q *explain.Query) {
				writing(t, schema.GroupVersionKind{}, nil)(q)
				if configured {
					q.Config.Admission.Publication.Kinds = []configv1alpha1.PublicationKind{
						{Group: "example.com", Kind: "Widget", Resource: "widgets"},
					}
				}
			})
			if result := e.Steps[len(e.Steps)-1].Result; strings.Contains(result, managed.Name) != configured {
				t.Errorf("%s, configured: %t: %s: %q", verb, configured, e.Admission, result)
			}
		}
	}
}

// TestChangesOfManagedObjects checks that no caller except the server may change a copy.
func TestChangesOfManagedObjects(t *testing.T) {
	const isCopy = "the object is a copy of the platform's Publication registry, " +
		"and only the server may change it: change " +
		"the source or the Publication instead"
	labeled := map[string]string{tenant.ManagedLabel: "publication", tenant.PublicationLabel: "registry"}
	templated := map[string]string{tenant.ManagedLabel: "template"}
	alice, root := newUser("alice", "acme", "dev"), newUser("root", "system", "system:masters")
	for name, c := range map[string]struct {
		verb, subresource, namespace string
		labels                       map[string]string
		user                         user.Info
		want                         string
	}{
		"delete": {verb: "delete", labels: labeled, want: isCopy},
		"update": {verb: "update", labels: labeled, want: isCopy},
		"patch":  {verb: "patch", labels: labeled, want: isCopy},
		"a cluster admin": {
			verb:   "delete",
			labels: labeled,
			user:   root,
			want:   isCopy,
		},
		"the server": {verb: "delete", labels: labeled, user: newUser(tenant.ManagerUser, "system")},
		"get":        {verb: "get", labels: labeled},
		"status":     {verb: "update", subresource: "status", labels: labeled},
		"an object of a template": {
			verb:   "delete",
			labels: templated,
			want:   "the object belongs to the server (kubetenant.dev/managed: template)",
		},
		"an object of the tenant":    {verb: "delete"},
		"a label of the copy alone":  {verb: "delete", labels: map[string]string{tenant.PublicationLabel: "registry"}},
		"a namespace that is ending": {verb: "delete", labels: labeled, namespace: "acme--ending"},
	} {
		t.Run(name, func(t *testing.T) {
			ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:              "acme--ending",
				Labels:            map[string]string{tenant.Label: "acme"},
				DeletionTimestamp: &metav1.Time{},
			}}
			if c.user == nil {
				c.user = alice
			}
			if c.namespace == "" {
				c.namespace = "acme--baseline"
			}
			r := newRequest(c.verb, strings.TrimSuffix("secrets/"+c.subresource, "/"), c.namespace)
			r.Name = "registry"
			var reason string
			e := explained(t, c.user, r, func(q *explain.Query) {
				writing(t, corev1.SchemeGroupVersion.WithKind("Secret"), nil, ending)(q)
				q.Stored = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "registry", Labels: c.labels}}
				reason = q.ManagedRefusal()
			})
			refused := e.Admission == explain.Refused && strings.Contains(e.Reason, c.want) && e.Decision == "deny"
			if c.want != "" && !refused || c.want == "" && e.Admission == explain.Refused {
				t.Errorf("%s, %s: %s; want %q", e.Decision, e.Admission, e.Reason, c.want)
			}
			if !strings.HasPrefix(reason, c.want) || c.want == "" && reason != "" {
				t.Errorf("ManagedRefusal() = %q; want %q", reason, c.want)
			}
		})
	}
}
