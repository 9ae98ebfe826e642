// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// controllerResources maps built-in kinds to their resources. It has the kinds whose controllers
// create objects from templates.
var controllerResources = map[schema.GroupKind]schema.GroupVersionResource{
	{Kind: "ReplicationController"}:      corev1.SchemeGroupVersion.WithResource("replicationcontrollers"),
	{Group: "apps", Kind: "DaemonSet"}:   appsv1.SchemeGroupVersion.WithResource("daemonsets"),
	{Group: "apps", Kind: "Deployment"}:  appsv1.SchemeGroupVersion.WithResource("deployments"),
	{Group: "apps", Kind: "ReplicaSet"}:  appsv1.SchemeGroupVersion.WithResource("replicasets"),
	{Group: "apps", Kind: "StatefulSet"}: appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	{Group: "batch", Kind: "CronJob"}:    batchv1.SchemeGroupVersion.WithResource("cronjobs"),
	{Group: "batch", Kind: "Job"}:        batchv1.SchemeGroupVersion.WithResource("jobs"),
}

// ControllerLookup reads the objects that control other objects, such as the ReplicaSet of a Pod,
// for admission plugins. It caches the metadata of objects whose kind is in controllerResources.
type ControllerLookup struct {
	informers map[schema.GroupKind]cache.SharedIndexInformer
	live      dynamic.Interface
	mapper    meta.ResettableRESTMapper
}

// NewControllerLookup returns a lookup whose cache is empty until [ControllerLookup.Run] is called.
// mapper maps kinds that are not in controllerResources to resources.
func NewControllerLookup(
	objects metadata.Interface, live dynamic.Interface, mapper meta.ResettableRESTMapper,
) (*ControllerLookup, error) {
	l := &ControllerLookup{map[schema.GroupKind]cache.SharedIndexInformer{}, live, mapper}
	factory := metadatainformer.NewSharedInformerFactory(objects, 0)
	for kind, resource := range controllerResources {
		informer := factory.ForResource(resource).Informer()
		if err := informer.SetTransform(keepAttribution); err != nil {
			return nil, err
		}
		l.informers[kind] = informer
	}
	return l, nil
}

// keepAttribution removes all fields of an object except those that admission plugins read.
func keepAttribution(obj any) (any, error) {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil // a tombstone
	}
	trimmed := &metav1.PartialObjectMetadata{
		TypeMeta: o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       o.Namespace,
			Name:            o.Name,
			UID:             o.UID,
			ResourceVersion: o.ResourceVersion,
		},
	}
	for _, key := range []string{tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation} {
		if value, found := o.Annotations[key]; found {
			plugins.SetAnnotation(trimmed, key, &value)
		}
	}
	return trimmed, nil
}

// HasSynced reports whether all objects whose kind is in controllerResources have been read once.
func (l *ControllerLookup) HasSynced() bool {
	for _, informer := range l.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// Run watches the objects whose kind is in controllerResources until ctx ends. It must be called
// only once.
func (l *ControllerLookup) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, informer := range l.informers {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Wait()
}

// Metadata implements [plugins.ObjectFunc]. It returns the metadata of an object if the object is
// in the cache. Otherwise, it reads the object from the server.
func (l *ControllerLookup) Metadata(
	ctx context.Context, kind schema.GroupVersionKind, namespace, name string,
) (runtime.Object, error) {
	if informer, known := l.informers[kind.GroupKind()]; known {
		obj, found, err := informer.GetStore().GetByKey(namespace + "/" + name)
		if object, ok := obj.(runtime.Object); err == nil && found && ok {
			return object, nil
		}
	}
	return l.Object(ctx, kind, namespace, name) // the object may be newer than the cache
}

// Object implements [plugins.ObjectFunc]. It reads the object from the server. It returns nil if
// the object does not exist or its kind is unknown or not namespaced.
func (l *ControllerLookup) Object(
	ctx context.Context, kind schema.GroupVersionKind, namespace, name string,
) (runtime.Object, error) {
	resource, known := controllerResources[kind.GroupKind()]
	if !known {
		mapping, err := l.mapping(kind)
		if err != nil || mapping == nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			return nil, err
		}
		resource = mapping.Resource
	}
	object, err := l.live.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err // returning object, a nil pointer, would make the result a non-nil interface
	}
	return object, nil
}

// mapping returns the resource mapping of a kind, or nil if the server does not know the kind.
func (l *ControllerLookup) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := l.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) { // the kind may be new
		l.mapper.Reset()
		mapping, err = l.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	var unknown *meta.NoKindMatchError
	if errors.As(err, &unknown) {
		return nil, nil
	}
	return mapping, err
}

// DefaultPriority returns a function that reports whether the PriorityClass with the given name is
// the cluster's default.
func DefaultPriority(classes schedulinglisters.PriorityClassLister) func(name string) bool {
	return func(name string) bool {
		class, err := classes.Get(name)
		return err == nil && class.GlobalDefault
	}
}
