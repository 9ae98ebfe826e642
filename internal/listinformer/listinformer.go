// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package listinformer creates informers that begin with a list instead of a streaming list.
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

// New returns an informer for a resource in all namespaces, without resync. The informer begins
// with a list at resourceVersion=0, even if streaming lists are enabled (WatchList, KEP-3157). A
// streaming list can be slow. For a resource without writes, a timer may send the bookmark at the
// end of the list, up to 1.25 s later (k8s.io/apiserver/pkg/storage/cacher/cacher.go,
// dispatchEvents, v0.37.1).
//
// New is for resources with few objects that a server needs before it is ready. The whole list is
// in memory.
func New(client dynamic.Interface, resource schema.GroupVersionResource) cache.SharedIndexInformer {
	return dynamicinformer.NewDynamicSharedInformerFactory(listClient{client}, 0).ForResource(resource).Informer()
}

// retryInterval is the interval between lists of a resource that is not served yet. A reflector
// would wait up to a minute (defaultBackoffMax and its jitter in
// k8s.io/client-go/tools/cache/reflector.go, v0.37.1).
const retryInterval = 3 * time.Second

type listClient struct{ dynamic.Interface }

// Resource implements [dynamic.Interface].
func (l listClient) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return namespaceable{l.Interface.Resource(resource)}
}

type namespaceable struct {
	dynamic.NamespaceableResourceInterface
}

// Namespace implements [dynamic.NamespaceableResourceInterface].
func (n namespaceable) Namespace(name string) dynamic.ResourceInterface {
	return servedResource{n.NamespaceableResourceInterface.Namespace(name)}
}

type servedResource struct{ dynamic.ResourceInterface }

// List lists the resource. It retries until the server serves the resource or ctx ends.
func (s servedResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	for {
		list, err := s.ResourceInterface.List(ctx, o)
		if !apierrors.IsNotFound(err) {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryInterval):
		}
	}
}

// IsWatchListSemanticsUnSupported implements the interface that reflectors check
// (k8s.io/client-go/util/watchlist).
func (listClient) IsWatchListSemanticsUnSupported() bool { return true }
