// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package listinformer makes informers that list before they watch.
package listinformer

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// New returns an informer of a resource in all namespaces, without resync, that begins with a list
// at resourceVersion=0. One of client-go's begins with a streaming list (WatchList, KEP-3157)
// where that is enabled: of a resource without writes the bookmark that ends it may come from a
// timer, up to 1.25 s later (k8s.io/apiserver/pkg/storage/cacher/cacher.go, dispatchEvents,
// v0.37.1). It is for resources that a server waits for before it is ready, and that are few: the
// list is held as a whole.
func New(client dynamic.Interface, of schema.GroupVersionResource) cache.SharedIndexInformer {
	return dynamicinformer.NewDynamicSharedInformerFactory(listing{client}, 0).ForResource(of).Informer()
}

// servedEvery is the interval at which a list of an unserved resource is retried. A reflector would
// wait up to a minute (defaultBackoffMax and its jitter in
// k8s.io/client-go/tools/cache/reflector.go, v0.37.1).
const servedEvery = 3 * time.Second

type listing struct{ dynamic.Interface }

// Resource implements [dynamic.Interface].
func (l listing) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return namespaceable{l.Interface.Resource(of)}
}

type namespaceable struct {
	dynamic.NamespaceableResourceInterface
}

// Namespace implements [dynamic.NamespaceableResourceInterface].
func (n namespaceable) Namespace(name string) dynamic.ResourceInterface {
	return served{n.NamespaceableResourceInterface.Namespace(name)}
}

type served struct{ dynamic.ResourceInterface }

// List waits until the server serves the resource.
func (s served) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	for {
		list, err := s.ResourceInterface.List(ctx, o)
		if !apierrors.IsNotFound(err) {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(servedEvery):
		}
	}
}

// IsWatchListSemanticsUnSupported implements what reflectors ask of clients
// (k8s.io/client-go/util/watchlist).
func (listing) IsWatchListSemanticsUnSupported() bool { return true }
