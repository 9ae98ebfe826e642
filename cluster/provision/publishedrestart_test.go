// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// blocking is a client whose reads of ConfigMaps wait until the test closes open.
type (
	blocking struct {
		dynamic.Interface
		open chan struct{}
	}
	blockingResource struct {
		dynamic.NamespaceableResourceInterface
		open chan struct{}
	}
	blockingObjects struct {
		dynamic.ResourceInterface
		open chan struct{}
	}
)

func (b blocking) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := b.Interface.Resource(of)
	if of == configMaps {
		return blockingResource{all, b.open}
	}
	return all
}

func (b blockingResource) Namespace(name string) dynamic.ResourceInterface {
	return blockingObjects{b.NamespaceableResourceInterface.Namespace(name), b.open}
}

func (b blockingObjects) Get(
	ctx context.Context, name string, options metav1.GetOptions, subresources ...string,
) (*unstructured.Unstructured, error) {
	select {
	case <-b.open:
		return b.ResourceInterface.Get(ctx, name, options, subresources...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestHeldUntilRead checks that a namespace is not marked as prepared until the engine has read
// the Publications that select it and their sources. Until then, Pods wait if a Publication has
// spec.hold.
func TestHeldUntilRead(t *testing.T) {
	for name, beforeStart := range map[string]bool{
		"a Publication from before the start": true,
		"a new Publication":                   false,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.define()
				w.addSharedNamespace()
				w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
				w.source(authority)
				w.stop()
				open := make(chan struct{})
				w.objectClient = blocking{w.dynamic, open}
				held := func(p *v1alpha1.Publication) { p.Spec.Hold = true }
				if beforeStart {
					w.publish(held)
				}
				w.start()
				if !beforeStart {
					time.Sleep(time.Minute) // the engine no longer waits for its inputs
					w.publish(held)
				}
				w.namespace("acme--new", "acme", map[string]string{tenant.HeldAnnotation: "true"})
				w.namespace("acme--web", "acme", nil)
				w.settle()
				w.expectObjects("before the source was read", "acme--new")
				if !w.held() {
					t.Error("Pods do not wait for a Publication that was not read")
				}
				if got := w.prepared("acme--web"); got != "" {
					t.Errorf("a namespace is prepared without the Publication: %s", got)
				}
				close(open)
				time.Sleep(time.Minute)
				w.expectObjects("after the source was read", "acme--new", "configmaps/ca  first")
				w.expectObjects("after the source was read", "acme--web", "configmaps/ca  first")
				if w.held() {
					t.Error("Pods still wait")
				}
			})
		})
	}
}

// TestHeldByLaggingCache checks that Pods wait until the engine has observed the version of each
// Publication that the server has.
func TestHeldByLaggingCache(t *testing.T) {
	for name, cached := range map[string]func(*unstructured.UnstructuredList) error{
		"a Publication is missing": func(l *unstructured.UnstructuredList) error {
			l.Items = nil
			return nil
		},
		"a Publication has an older version": func(l *unstructured.UnstructuredList) error {
			l.Items[0].SetGeneration(l.Items[0].GetGeneration() - 1)
			return unstructured.SetNestedMap(l.Items[0].Object, map[string]any{"ids": []any{"globex"}}, "spec", "tenants")
		},
		"a Publication has another UID": func(l *unstructured.UnstructuredList) error {
			l.Items[0].SetUID("p0")
			return unstructured.SetNestedMap(l.Items[0].Object, map[string]any{"ids": []any{"globex"}}, "spec", "tenants")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.define()
				w.addSharedNamespace()
				w.source(authority)
				w.publish(func(p *v1alpha1.Publication) {
					p.Spec.Hold = true
					p.Finalizers = []string{tenant.PublicationFinalizer}
				})
				w.stop()
				var lags atomic.Bool
				lags.Store(true)
				prepend(&w.dynamic.Fake, "list", v1alpha1.ResourcePublications,
					func(clienttesting.Action) (bool, runtime.Object, error) {
						if !lags.Load() {
							return false, nil, nil
						}
						list := w.storedPublications()
						w.must(cached(list))
						return true, list, nil
					})
				w.start()
				w.namespace("acme--new", "acme", map[string]string{tenant.HeldAnnotation: "true"})
				time.Sleep(5 * time.Minute)
				w.expectObjects("with the old cache", "acme--new")
				if !w.held() {
					t.Error("Pods do not wait for a Publication that the cache lacks")
				}
				lags.Store(false)
				w.publish(unchanged) // causes a watch event
				time.Sleep(2 * time.Minute)
				w.expectObjects("with the cache", "acme--new", "configmaps/ca  first")
				if w.held() {
					t.Error("Pods still wait")
				}
			})
		})
	}
}

// TestHeldWithoutLiveList checks that Pods wait while the server cannot list Publications.
func TestHeldWithoutLiveList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var fails atomic.Bool
		fails.Store(true)
		prepend(&w.metadata.Fake, "list", v1alpha1.ResourcePublications,
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails.Load(), nil, errors.New("unavailable")
			})
		w.tenant(nothing)
		w.namespace("acme--new", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		time.Sleep(5 * time.Minute)
		if !w.held() {
			t.Error("Pods do not wait while the Publications are not known")
		}
		fails.Store(false)
		time.Sleep(2 * time.Minute)
		if w.held() {
			t.Error("Pods still wait")
		}
	})
}
