// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// deleted marks a Publication as being deleted.
func deleted(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) }

// finalizers returns the finalizers of a Publication.
func (w *fixture) finalizers(name string) []string {
	w.t.Helper()
	u, err := w.dynamic.Resource(publicationResource).Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	return u.GetFinalizers()
}

// listing is a client that returns the error of answer for lists of copies of Publications whose
// names begin with "slow". It is not a reactor, because answer may wait and the fake client calls
// one reactor at a time.
type listing struct {
	metadata.Interface
	answer   func() error
	attempts atomic.Int32
}

// IsWatchListSemanticsUnSupported reports that the fake client does not support streaming lists.
func (*listing) IsWatchListSemanticsUnSupported() bool { return true }

func (l *listing) Resource(of schema.GroupVersionResource) metadata.Getter {
	return listingOf{l.Interface.Resource(of), l}
}

type listingOf struct {
	metadata.Getter
	*listing
}

func (l listingOf) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if !strings.HasPrefix(o.LabelSelector, tenant.PublicationLabel+"=slow") {
		return l.Getter.List(ctx, o)
	}
	l.attempts.Add(1)
	return nil, l.answer()
}

// TestPublicationDeletionsAreIndependent checks that Publications whose deletion takes long or
// fails do not delay other Publications. The engine retries with a growing delay.
func TestPublicationDeletionsAreIndependent(t *testing.T) {
	for name, answer := range map[string]func() error{
		"takes long": func() error {
			time.Sleep(25 * time.Second)
			return errors.New("timed out")
		},
		"fails": func() error { return apierrors.NewServiceUnavailable("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.stop()
				lists := &listing{Interface: w.metadata, answer: answer}
				w.reading = lists
				w.start()
				w.define()
				w.addSharedNamespace()
				w.namespace("acme--web", "acme", nil)
				w.source(authority)
				w.publish(unchanged)
				for i := range 2 {
					// A Publication whose source is missing has no copies, but the engine lists
					// them.
					w.publishAs(fmt.Sprint("slow-", i), func(p *v1alpha1.Publication) {
						p.Annotations = map[string]string{tenant.PruneAnnotation: "true"}
					})
					w.publishAs(fmt.Sprint("slow-", i), deleted)
				}
				w.source(changed)
				w.expectObjects("changed source", "acme--web", "configmaps/ca  second")
				w.publish(deleted)
				w.settle()
				w.expectObjects("deleted Publication", "acme--web")
				if left := w.finalizers("ca"); len(left) > 0 {
					t.Errorf("the other Publication has the finalizers %s", left)
				}
				before := lists.attempts.Load()
				time.Sleep(10 * time.Minute)
				if n := lists.attempts.Load() - before; n < 2*6 || n > 2*17 {
					t.Errorf("%d attempts in 10 minutes", n)
				}
				if left := w.finalizers("slow-0"); !slices.Equal(left, []string{tenant.PublicationFinalizer}) {
					t.Errorf("the finalizers changed although the copies cannot be listed: %s", left)
				}
			})
		})
	}
}

// TestNeverPublishedKind checks that the finalizer of a deleted Publication is removed if no
// configuration can allow its kind, because it then has no copies.
func TestNeverPublishedKind(t *testing.T) {
	for kind, ends := range map[string]bool{"Pod": true, "Widget": false} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.define()
				w.addSharedNamespace()
				w.publish(func(p *v1alpha1.Publication) { p.Spec.From.Kind = kind })
				w.publish(deleted)
				if got := len(w.finalizers("ca")) == 0; got != ends {
					t.Errorf("finalizer removed: %t, want %t", got, ends)
				}
			})
		})
	}
}

// invalidPublications returns specs that do not decode or are invalid.
func invalidPublications() map[string]any {
	from := map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"namespace":  "shared",
		"name":       "ca",
	}
	all := map[string]any{"all": true}
	return map[string]any{
		"the spec does not decode":   "x",
		"the source does not decode": map[string]any{"from": []any{"x"}, "tenants": all},
		"the tenants do not decode":  map[string]any{"from": from, "tenants": "x"},
		"hold does not decode":       map[string]any{"from": from, "tenants": all, "hold": "x"},
		"no tenants":                 map[string]any{"from": from, "tenants": map[string]any{}},
		"no spec":                    map[string]any{},
		"an invalid selector":        map[string]any{"from": from, "tenants": all, "namespaceSelector": wrongSelector()},
		"an unknown conflict policy": map[string]any{"from": from, "tenants": all, "onConflict": "Merge"},
		"a source without an object": map[string]any{"from": map[string]any{"kind": "ConfigMap"}, "tenants": all},
		"an invalid apiVersion":      map[string]any{"from": map[string]any{"apiVersion": "a/b/c"}, "tenants": all},
	}
}

func wrongSelector() map[string]any {
	return map[string]any{"matchExpressions": []any{map[string]any{"key": "x", "operator": "Like"}}}
}

// changeRaw changes the stored Publication ca without decoding it.
func (w *fixture) changeRaw(change func(u *unstructured.Unstructured)) {
	w.t.Helper()
	defer w.settle()
	all := w.dynamic.Resource(publicationResource)
	u, err := all.Get(w.t.Context(), "ca", metav1.GetOptions{})
	w.must(err)
	change(u)
	u.SetGeneration(u.GetGeneration() + 1)
	_, err = all.Update(w.t.Context(), u, metav1.UpdateOptions{})
	w.must(err)
}

// TestInvalidPublication checks that the copies of a Publication that becomes invalid remain, and
// that other Publications are not delayed. Its condition reports the remedy. When the Publication
// is deleted, the copies are deleted, even if the leader never observed a valid version.
func TestInvalidPublication(t *testing.T) {
	for name, spec := range invalidPublications() {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/restart=", restart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { invalidPublication(t, spec, restart) })
			})
		}
	}
}

func invalidPublication(t *testing.T, spec any, restart bool) {
	w := newFixture(t)
	w.define()
	w.addSharedNamespace()
	w.namespace("acme--web", "acme", nil)
	w.source(authority)
	w.source(strings.Replace(authority, "name: ca", "name: other", 1))
	w.publish(unchanged)
	w.changeRaw(func(u *unstructured.Unstructured) { u.Object["spec"] = spec })
	if restart {
		w.stop()
		w.start()
	}
	w.publishAs("other", func(p *v1alpha1.Publication) { p.Spec.Hold = true })
	w.namespace("acme--new", "acme", map[string]string{tenant.HeldAnnotation: "true"})
	w.source(changed)
	time.Sleep(11 * time.Minute) // includes one drift check
	synctest.Wait()
	w.expectObjects("invalid", "acme--web", "configmaps/ca  first", "configmaps/other  first")
	w.expectObjects("a new namespace", "acme--new", "configmaps/other  first")
	if w.held() {
		t.Error("Pods wait for the invalid Publication")
	}
	u, err := w.dynamic.Resource(publicationResource).Get(t.Context(), "ca", metav1.GetOptions{})
	w.must(err)
	if got := fmt.Sprint(u.Object["status"]); !strings.Contains(got, "reason:Invalid") ||
		!strings.Contains(got, "Fix the Publication, or delete it") || strings.Contains(got, "reason:Published") {
		t.Errorf("the status is %s", got)
	}
	w.writes()
	time.Sleep(11 * time.Minute)
	synctest.Wait()
	if n := w.writes(); n > 0 {
		t.Errorf("%d writes while nothing changes", n)
	}
	w.changeRaw(func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(new(metav1.Now())) })
	w.settle()
	w.expectObjects("deleted", "acme--web", "configmaps/other  first")
	if left := w.finalizers("ca"); len(left) > 0 {
		t.Errorf("the deleted Publication has the finalizers %s", left)
	}
}

// TestInvalidPublicationIsFixed checks that a fixed Publication updates its copies.
func TestInvalidPublicationIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		var spec any
		w.changeRaw(func(u *unstructured.Unstructured) { spec, u.Object["spec"] = u.Object["spec"], "x" })
		w.source(changed)
		w.expectObjects("invalid", "acme--web", "configmaps/ca  first")
		w.changeRaw(func(u *unstructured.Unstructured) { u.Object["spec"] = spec })
		w.expectObjects("fixed", "acme--web", "configmaps/ca  second")
		w.publishedIs("fixed", "Published 1/1/0/0")
	})
}

// TestInvalidPublicationWithoutDefinition checks that, after the definition of Publications is
// deleted, the copies of an invalid Publication remain and its finalizer is removed.
func TestInvalidPublicationWithoutDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		w.changeRaw(func(u *unstructured.Unstructured) {
			u.Object["spec"] = "x"
			u.SetDeletionTimestamp(new(metav1.Now()))
		})
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		w.expectObjects("without the definition", "acme--web", "configmaps/ca  first")
		if left := w.finalizers("ca"); len(left) > 0 {
			t.Errorf("the Publication has the finalizers %s", left)
		}
	})
}

// TestPreparedBeforePublicationEnds checks that a copy is deleted even if its namespace is
// prepared after the Publication was deleted, but before the engine handles the deletion.
func TestPreparedBeforePublicationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		var fails atomic.Bool
		fails.Store(true)
		prepend(&w.dynamic.Fake, "get", "customresourcedefinitions",
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails.Load(), nil, apierrors.NewServiceUnavailable("not now")
			})
		w.publish(deleted)
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
		w.must(err)
		ns.Annotations[tenant.PreparedAnnotation] = "other" + strings.TrimLeft(ns.Annotations[tenant.PreparedAnnotation],
			"0123456789abcdef")
		_, err = w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
		w.must(err)
		w.settle()
		w.expectObjects("before the deletion is handled", "acme--web", "configmaps/ca  first")
		fails.Store(false)
		time.Sleep(2 * time.Minute)
		w.expectObjects("after the deletion is handled", "acme--web")
		if left := w.finalizers("ca"); len(left) > 0 {
			t.Errorf("the Publication has the finalizers %s", left)
		}
	})
}
