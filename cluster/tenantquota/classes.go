// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/listinformer"
	"github.com/kubetenant/kubetenant/plugins/quota"
)

// deviceClasses watches the DeviceClasses. The informer starts only when they are first needed,
// because most quotas do not limit devices.
type deviceClasses struct {
	informer  cache.SharedIndexInformer
	wanted    chan struct{} // receives a value when the informer is needed
	notServed atomic.Bool   // the server does not serve the kind
}

func newDeviceClasses(client dynamic.Interface) *deviceClasses {
	c := &deviceClasses{wanted: make(chan struct{}, 1)}
	c.informer = listinformer.New(
		recordingClient{client, &c.notServed},
		resourcev1.SchemeGroupVersion.WithResource("deviceclasses"),
	)
	return c
}

// run watches the DeviceClasses from the first call of [Store.Classes] until ctx ends.
func (c *deviceClasses) run(ctx context.Context) {
	select {
	case <-c.wanted:
		c.informer.RunWithContext(ctx)
	case <-ctx.Done():
	}
}

// Classes returns the DeviceClasses of the cluster. The result is empty if the server does not
// serve the kind. Classes fails with [quota.ErrUnknown] if the DeviceClasses have not been read.
func (s *Store) Classes() (quota.Classes, error) {
	select {
	case s.classes.wanted <- struct{}{}:
	default:
	}
	if !s.classes.informer.HasSynced() {
		if s.classes.notServed.Load() {
			return nil, nil
		}
		return nil, quota.ErrUnknown
	}
	objects := s.classes.informer.GetStore().List()
	all := make([]*unstructured.Unstructured, 0, len(objects))
	for _, obj := range objects {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			all = append(all, u)
		}
	}
	// The scheduler prefers the newest class of an extended resource
	// (k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache, v0.37.1).
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		if order := b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time); order != 0 {
			return order
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	classes := make(quota.Classes, 0, len(all))
	for _, u := range all {
		extended, _, err := unstructured.NestedString(u.Object, "spec", "extendedResourceName")
		if err != nil {
			return nil, err
		}
		classes = append(classes, quota.Class{Name: u.GetName(), Extended: corev1.ResourceName(extended)})
	}
	return classes, nil
}

// recordingClient is a client that records in unserved whether the last list failed because the
// server does not serve the resource.
type recordingClient struct {
	dynamic.Interface
	unserved *atomic.Bool
}

// Resource implements [dynamic.Interface].
func (n recordingClient) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return recordingResource{n.Interface.Resource(of), n.unserved}
}

type recordingResource struct {
	dynamic.NamespaceableResourceInterface
	unserved *atomic.Bool
}

// Namespace implements [dynamic.NamespaceableResourceInterface].
func (n recordingResource) Namespace(name string) dynamic.ResourceInterface {
	return recordingNamespace{n.NamespaceableResourceInterface.Namespace(name), n.unserved}
}

type recordingNamespace struct {
	dynamic.ResourceInterface
	unserved *atomic.Bool
}

// List implements [dynamic.ResourceInterface].
func (n recordingNamespace) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := n.ResourceInterface.List(ctx, o)
	n.unserved.Store(apierrors.IsNotFound(err))
	return list, err
}
