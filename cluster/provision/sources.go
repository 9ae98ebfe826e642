// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// maxSourceNamespaces is the maximum number of namespaces of the system tenant in which the engine
	// watches sources. Each kind in each namespace has its own watch.
	maxSourceNamespaces = 50
	// sourcesEvery is the interval at which the engine checks which watches it must start or
	// stop.
	sourcesEvery = 5 * time.Second
)

// sources watches the metadata of the objects in the system tenant's namespaces that may be
// published. It creates a Publication for each object with [tenant.PublishAnnotation] whose
// author admission has checked.
type sources struct {
	publisher *publisher
	annotated workqueue.TypedRateLimitingInterface[publication.Source]

	following map[sourceWatch]context.CancelFunc
	ignored   int // the last logged number of namespaces that exceed the limit
}

// sourceWatch identifies a watch on one kind in one namespace.
type sourceWatch struct {
	resource  schema.GroupVersionResource
	kind      schema.GroupVersionKind
	namespace string
}

func newSources(p *publisher) *sources {
	return &sources{
		publisher: p,
		annotated: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[publication.Source](retryAtFirst, retryAtLast)),
		following: map[sourceWatch]context.CancelFunc{},
	}
}

// run watches sources until ctx ends.
func (s *sources) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { work(ctx, s.annotated, 0, s.publish) })
	all, _ := s.publisher.engine.Tenants.Publications()
	for _, of := range all {
		if of.Automatic { // the annotation may have been removed while no engine ran
			s.annotated.Add(of.From)
		}
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) { s.follow(ctx, &running) }, sourcesEvery)
	s.annotated.ShutDown()
	running.Wait()
}

// follow starts the watches that are missing, and stops the watches that are no longer needed.
func (s *sources) follow(ctx context.Context, running *sync.WaitGroup) {
	wanted := s.watches(ctx)
	for at, stop := range s.following {
		if !slices.Contains(wanted, at) {
			stop()
			delete(s.following, at)
		}
	}
	for _, at := range wanted {
		if s.following[at] != nil {
			continue
		}
		watchCtx, stop := context.WithCancel(ctx)
		informer := metadatainformer.NewFilteredMetadataInformer(
			s.publisher.engine.Metadata, at.resource, at.namespace, 0, cache.Indexers{}, nil).Informer()
		// The system tenant may have many objects, so the cache contains only the metadata that
		// [onlyPublished] retains.
		if err := informer.SetTransform(onlyPublished); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to follow the sources of Publications", "resource", at.resource)
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.changed(at, nil, obj) },
			UpdateFunc: func(was, is any) { s.changed(at, was, is) },
			DeleteFunc: func(obj any) { s.changed(at, obj, nil) },
		}); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to follow the sources of Publications", "resource", at.resource)
		}
		s.following[at] = stop
		running.Go(func() { informer.RunWithContext(watchCtx) })
	}
}

// onlyPublished removes the metadata that [sources] does not read.
func onlyPublished(obj any) (any, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		annotations := map[string]string{}
		for _, key := range []string{tenant.PublishAnnotation, tenant.PublishedAnnotation} {
			if value, found := m.Annotations[key]; found {
				annotations[key] = value
			}
		}
		m.ObjectMeta = metav1.ObjectMeta{
			Namespace:       m.Namespace,
			Name:            m.Name,
			UID:             m.UID,
			ResourceVersion: m.ResourceVersion,
			Annotations:     annotations,
		}
	}
	return obj, nil
}

// watches returns the watches that are needed, for at most maxSourceNamespaces namespaces.
// Namespaces that Publications name have priority.
func (s *sources) watches(ctx context.Context) (all []sourceWatch) {
	rules := s.publisher.rules()
	named := map[string]bool{}
	kinds := map[schema.GroupVersionKind]bool{}
	for of := range publication.BuiltIn() {
		kinds[of] = true
	}
	publications, _ := s.publisher.engine.Tenants.Publications()
	for _, of := range publications {
		named[of.From.Namespace] = true
		if _, err := rules.Resource(of.From.Kind); err == nil {
			kinds[of.From.Kind] = true
		}
	}
	namespaces, err := s.publisher.engine.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	namespaces = slices.DeleteFunc(slices.Clone(namespaces), func(ns *corev1.Namespace) bool {
		return !s.publisher.engine.OwnerOf(ns).IsSystem() || ns.Name == s.publisher.engine.Unseen
	})
	slices.SortFunc(namespaces, func(a, b *corev1.Namespace) int {
		if named[a.Name] != named[b.Name] {
			if named[a.Name] {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	ignored := max(0, len(namespaces)-maxSourceNamespaces)
	if ignored > 0 && ignored != s.ignored {
		klog.FromContext(ctx).Info("The system tenant has too many namespaces: in some of them, the annotation to publish "+
			"an object has no effect, and a change of a source is noticed late. Publications name the first namespaces",
			"followed", maxSourceNamespaces, "ignored", ignored)
	}
	s.ignored = ignored
	for _, ns := range namespaces[:min(len(namespaces), maxSourceNamespaces)] {
		for kind := range kinds {
			if resource, err := rules.Resource(kind); err == nil {
				all = append(all, sourceWatch{resource, kind, ns.Name})
			}
		}
	}
	return all
}

// changed queues the Publications whose source is a changed object. It also queues the object
// itself if it has or had [tenant.PublishAnnotation].
func (s *sources) changed(at sourceWatch, was, is any) {
	before, now := metadataOf(was), metadataOf(is)
	object := now
	if object == nil {
		object = before
	}
	if object == nil {
		return
	}
	source := publication.Source{Kind: at.kind, Namespace: object.Namespace, Name: object.Name}
	all, _ := s.publisher.engine.Tenants.Publications()
	for _, of := range all {
		if of.From.Kind.GroupKind() == source.Kind.GroupKind() && of.From.Namespace == source.Namespace &&
			of.From.Name == source.Name {
			s.publisher.names.Add(of.Name)
		}
	}
	if before != nil && before.Annotations[tenant.PublishAnnotation] != "" ||
		now != nil && now.Annotations[tenant.PublishAnnotation] != "" {
		s.annotated.Add(source)
	}
}

func metadataOf(obj any) *metav1.PartialObjectMetadata {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	m, _ := obj.(*metav1.PartialObjectMetadata)
	return m
}

// publish creates, updates or deletes the Publication of an object that has or had
// [tenant.PublishAnnotation].
func (s *sources) publish(ctx context.Context, source publication.Source) error {
	resource, err := s.publisher.rules().Resource(source.Kind)
	if err != nil {
		return nil //nolint:nilerr // such an annotation has no effect
	}
	object, err := s.publisher.engine.Metadata.Resource(resource).
		Namespace(source.Namespace).
		Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	name := publication.NameFor(source)
	stored, getErr := s.publisher.publications.Get(ctx, cache.ObjectName{Name: name})
	if getErr != nil && !apierrors.IsNotFound(getErr) {
		return getErr
	}
	if getErr != nil {
		stored = nil
	}
	if stored != nil && stored.Labels[tenant.ManagedLabel] != publication.SourceAnnotation {
		return nil // another caller wrote this Publication
	}
	if apierrors.IsNotFound(err) {
		return s.unpublish(ctx, name, stored)
	}
	value := object.Annotations[tenant.PublishAnnotation]
	if stored != nil && stored.Spec.From != sourceOfSpec(source) {
		return fmt.Errorf("the Publication %s is of another object than %s", name, source)
	}
	// Admission sets [tenant.PublishedAnnotation] if the author may publish the object. Without
	// it, no Publication is created, because [tenant.PublishAnnotation] may have been set while a
	// tenant owned the namespace.
	if stored == nil && object.Annotations[tenant.PublishedAnnotation] == "" {
		return nil
	}
	if value == "" {
		if stored != nil {
			return s.delete(ctx, stored)
		}
		return nil
	}
	tenants, err := publication.TenantsOf(value)
	if err != nil {
		klog.FromContext(ctx).Info("Ignoring an annotation that does not name tenants", "annotation",
			tenant.PublishAnnotation, "kind", source.Kind.Kind, "namespace", source.Namespace, "name", source.Name, "err", err)
		return nil
	}
	return s.write(ctx, name, stored, source, tenants)
}

// unpublish deletes the Publication of an object that does not exist, unless the copies must
// remain. stored is nil if the Publication does not exist.
func (s *sources) unpublish(ctx context.Context, name string, stored *v1alpha1.Publication) error {
	if stored == nil {
		return nil
	}
	switch state := s.publisher.get(name); {
	case state == nil, !state.gone && state.reason != v1alpha1.ReasonSourceMissing:
		s.publisher.names.Add(name)
		return errUnresolved
	case state.gone:
		return s.delete(ctx, stored)
	}
	return nil // the condition of the Publication reports that the copies remain
}

// errUnresolved reports that the publisher has not observed the deletion of a source yet.
var errUnresolved = errors.New("the state of the Publication is not known yet")

func (s *sources) delete(ctx context.Context, stored *v1alpha1.Publication) error {
	if err := s.publisher.engine.writes.wait(ctx, tenant.ID{}, revokes); err != nil {
		return err
	}
	err := s.publisher.publications.Delete(ctx, stored)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sourceOfSpec converts a source to the type in the spec of a Publication.
func sourceOfSpec(source publication.Source) v1alpha1.PublicationSource {
	return v1alpha1.PublicationSource{
		APIVersion: source.Kind.GroupVersion().String(),
		Kind:       source.Kind.Kind,
		Namespace:  source.Namespace,
		Name:       source.Name,
	}
}

// write creates the Publication of an object if stored is nil. Otherwise, it updates the spec of
// the Publication.
func (s *sources) write(
	ctx context.Context, name string, stored *v1alpha1.Publication,
	source publication.Source, to v1alpha1.PublicationTenants,
) error {
	want := v1alpha1.PublicationSpec{From: sourceOfSpec(source), Tenants: to}
	if stored != nil && equality.Semantic.DeepEqual(stored.Spec, want) {
		return nil
	}
	if err := s.publisher.engine.writes.wait(ctx, tenant.ID{}, adds); err != nil {
		return err
	}
	if stored != nil {
		_, err := s.publisher.publications.PatchRead(ctx, stored, map[string]any{"spec": map[string]any{
			"from":              want.From,
			"tenants":           map[string]any{"all": to.All, "ids": to.IDs, "selector": nil},
			"namespaceSelector": nil,
			"onConflict":        nil,
			"hold":              nil,
		}})
		return err
	}
	_, err := s.publisher.publications.Create(ctx, &v1alpha1.Publication{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindPublication},
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{tenant.ManagedLabel: publication.SourceAnnotation},
			Finalizers: []string{tenant.PublicationFinalizer},
		},
		Spec: want,
	})
	if err != nil {
		return fmt.Errorf("create the Publication of %s: %w", source, err)
	}
	return nil
}
