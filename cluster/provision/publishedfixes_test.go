// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// configMap creates a ConfigMap with labels.
func (w *fixture) configMap(namespace, name string, labels map[string]string) {
	w.t.Helper()
	u := w.parse(authority)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetLabels(labels)
	_, err := w.dynamic.Resource(configMaps).Namespace(namespace).Create(w.t.Context(), u, metav1.CreateOptions{})
	w.must(err)
}

// update changes a namespace.
func (w *fixture) update(namespace string, change func(*corev1.Namespace)) {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), namespace, metav1.GetOptions{})
	w.must(err)
	change(ns)
	_, err = w.kube.CoreV1().Namespaces().Update(w.t.Context(), ns, metav1.UpdateOptions{})
	w.must(err)
}

// TestReleasedNamespaces checks that the copies in a namespace are deleted after the namespace
// has lost its tenant or belongs to a tenant that is not selected. Other objects remain.
func TestReleasedNamespaces(t *testing.T) {
	own, kept := "configmaps/own  first", "configmaps/kept std first"
	for name, c := range map[string]struct {
		change func(*corev1.Namespace)
		want   []string
	}{
		"without a label": {func(ns *corev1.Namespace) { delete(ns.Labels, tenant.Label) }, []string{kept, own}},
		"of the system tenant": {
			func(ns *corev1.Namespace) { ns.Labels[tenant.Label] = tenant.System().String() }, []string{kept, own},
		},
		"of a tenant that is not selected": {
			func(ns *corev1.Namespace) { ns.Labels[tenant.Label] = "globex" }, []string{kept, own},
		},
		"of the same tenant": {
			func(ns *corev1.Namespace) { ns.Labels["x"] = "y" }, []string{"configmaps/ca  first", kept, own},
		},
		"without a label, and being deleted": {
			func(ns *corev1.Namespace) {
				delete(ns.Labels, tenant.Label)
				ns.DeletionTimestamp = new(metav1.Now())
			}, []string{"configmaps/ca  first", kept, own},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.define()
				w.addSharedNamespace()
				w.namespace("acme--web", "acme", nil)
				w.namespace("acme--db", "acme", nil)
				w.template("std", strings.Replace(authority, "name: ca", "name: kept", 1))
				w.setTemplates("std")
				w.source(authority)
				w.publish(func(p *v1alpha1.Publication) {
					p.Spec.Tenants = v1alpha1.PublicationTenants{IDs: []string{"acme"}}
				})
				w.configMap("acme--web", "own", map[string]string{"app": "x"})
				before := []string{"configmaps/ca  first", kept, own}
				w.expectObjects("before", "acme--web", before...)
				w.update("acme--web", c.change)
				time.Sleep(11 * time.Minute)
				w.expectObjects("afterwards", "acme--web", c.want...)
				w.expectObjects("the other namespace", "acme--db", before[:2]...)
				w.expectObjects("the source", "shared", "configmaps/ca  first")
			})
		})
	}
}

// TestUnreadKinds checks that the drift check does not treat the copies as missing if a kind
// cannot be listed.
func TestUnreadKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		for i := range 20 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.source(authority)
		w.publish(unchanged)
		w.settle()
		var fails atomic.Bool
		fails.Store(true)
		prepend(&w.dynamic.Fake, "list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() == "" && fails.Load(), nil, apierrors.NewInternalError(errors.New("unavailable"))
		})
		w.dynamic.ClearActions()
		time.Sleep(11 * time.Minute)
		lists := 0
		for _, a := range w.dynamic.Actions() {
			if a.Matches("list", "configmaps") && a.GetNamespace() != "" {
				lists++
			}
		}
		if lists > 0 {
			t.Errorf("the copies in %d namespaces are read, although no copy is known to be missing", lists)
		}
	})
}

// TestCurrentWithoutPrepared checks that the status of a Publication reports a copy as current
// even if the namespace lacks another object.
func TestCurrentWithoutPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.setTemplates("missing")
		w.source(authority)
		w.publish(unchanged)
		w.expectObjects("without the template", "acme--web", "configmaps/ca  first")
		w.expectStatus("without the template", "TemplateRefused 1/0/1 of generation 1")
		w.publishedIs("without the template", "Published 1/1/0/0")
	})
}

// TestNameOfAnotherObject checks that the engine does not overwrite a Publication of another
// object that already has the name of the Publication to create.
func TestNameOfAnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		source := publication.Source{
			Kind:      corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			Namespace: "shared",
			Name:      "ca",
		}
		name := publication.NameFor(source)
		w.publish(func(p *v1alpha1.Publication) {
			p.Name = name
			p.Labels = map[string]string{tenant.ManagedLabel: publication.SourceAnnotation}
			p.Spec.From.Name = "other"
		})
		w.source(strings.Replace(authority, "labels:", `annotations: { "kubetenant.dev/publish": "*" }, labels:`, 1))
		w.settle()
		u, err := w.dynamic.Resource(publicationResource).Get(t.Context(), name, metav1.GetOptions{})
		w.must(err)
		p, err := typed.Decode[v1alpha1.Publication](u)
		w.must(err)
		if p.Spec.From.Name != "other" {
			t.Errorf("the source of the Publication is now %s", p.Spec.From.Name)
		}
		w.expectObjects("with another object", "acme--web")
	})
}

// TestUnpublishedWithoutContent checks that the Publication of an annotated object is deleted
// with the object, even if the author of the last content was not checked.
func TestUnpublishedWithoutContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		annotate := func(text string) string {
			return strings.Replace(text, "name: ca", `name: ca, annotations: { "kubetenant.dev/publish": "*" }`, 1)
		}
		w.source(annotate(authority))
		w.expectObjects("at first", "acme--web", "configmaps/ca  first")
		w.sourceBy(annotate(changed), false)
		w.expectObjects("without a check", "acme--web", "configmaps/ca  first")
		w.source("")
		time.Sleep(time.Minute)
		w.expectObjects("without the object", "acme--web")
		if list := w.storedPublications(); slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool {
			return u.GetDeletionTimestamp() == nil
		}) {
			t.Errorf("the Publications are %v", list.Items)
		}
	})
}

// TestDeletedPublicationOfUnknownKind checks that the finalizer of a deleted Publication remains
// while its kind cannot be published. The engine may not see all copies of such a kind.
func TestDeletedPublicationOfUnknownKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.publish(func(p *v1alpha1.Publication) {
			p.Spec.From.APIVersion, p.Spec.From.Kind = "example.com/v1", "Widget"
		})
		w.publish(func(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) })
		time.Sleep(5 * time.Minute)
		if got := w.storedPublications().Items[0].GetFinalizers(); len(got) != 1 {
			t.Errorf("the finalizers are %v", got)
		}
		w.publish(func(p *v1alpha1.Publication) { p.Spec.From.APIVersion, p.Spec.From.Kind = "v1", "ConfigMap" })
		time.Sleep(2 * time.Minute)
		if got := w.storedPublications().Items[0].GetFinalizers(); len(got) != 0 {
			t.Errorf("with a known kind, the finalizers are %v", got)
		}
	})
}

// TestLateCopy checks that a copy that a former leader wrote after the Publication was deleted is
// also deleted.
func TestLateCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		w.publish(func(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) })
		time.Sleep(time.Minute)
		w.must(w.dynamic.Resource(publicationResource).Delete(t.Context(), "ca", metav1.DeleteOptions{}))
		w.settle()
		w.configMap("acme--web", "ca", map[string]string{
			tenant.ManagedLabel:     "publication",
			tenant.PublicationLabel: "ca",
			tenant.Label:            "acme",
		})
		w.configMap("acme--web", "other", map[string]string{
			tenant.ManagedLabel:     "publication",
			tenant.PublicationLabel: "unknown",
			tenant.Label:            "acme",
		})
		time.Sleep(11 * time.Minute)
		w.expectObjects("a late copy", "acme--web", "configmaps/other  first")
	})
}
