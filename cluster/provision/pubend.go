// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// deletionWorkers is the number of workers that handle deleted Publications.
	deletionWorkers = 4
	// deletionTimeout is the maximum duration of one attempt to finish the deletion of a Publication.
	deletionTimeout = 30 * time.Second
	// firstDeletionRetry is the delay after the first failed attempt. The delay doubles with each
	// failure, up to retryAtLast.
	firstDeletionRetry = time.Second
	// recheckCopiesAfter is the delay before the next attempt while copies are being deleted.
	recheckCopiesAfter = 2 * time.Second
)

// errCopies reports that a Publication that is being deleted still has copies.
var errCopies = errors.New("copies remain")

// handleDeletion deletes the copies of a Publication that is being deleted. It removes the
// finalizer when no copies remain. It has its own workers, so that a deletion that fails or takes
// long does not delay other Publications. If the CustomResourceDefinition of Publications is
// being deleted, the copies remain, and only the finalizer is removed.
func (p *publisher) handleDeletion(ctx context.Context, name string) error {
	was := p.get(name)
	if was == nil || !was.publication.Deleting {
		return nil
	}
	attempt, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	err := p.tryDelete(attempt, was)
	if errors.Is(err, errCopies) {
		p.deletions.AddAfter(name, recheckCopiesAfter)
		return nil
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Failed to end a deleted Publication, will retry", "publication", name, "err", err)
		p.engine.events.Event(
			v1alpha1.KindPublication,
			&metav1.ObjectMeta{Name: name, UID: was.publication.UID},
			corev1.EventTypeWarning,
			&metav1.Condition{Reason: v1alpha1.ReasonFailed, Message: tenants.ConditionMessage(err.Error())},
		)
	}
	return err
}

func (p *publisher) tryDelete(ctx context.Context, was *published) error {
	ending, err := p.isDefinitionEnding(ctx)
	if err != nil {
		return err
	}
	now := &published{publication: was.publication, invalid: was.invalid, gone: !ending}
	kind := was.publication.From.Kind
	if was.invalid {
		if kind, err = p.storedKind(ctx, was.publication); err != nil {
			return err
		}
	}
	var noKind error
	if now.resource, noKind = p.rules().Resource(kind); noKind != nil && !mayHaveCopies(kind) {
		noKind = nil
	}
	if !p.put(was, now) {
		p.names.Add(was.publication.Name)
		return nil
	}
	if was.differs(now) {
		p.queueNamespaces(was, now)
	}
	switch {
	case ending:
		return p.removeFinalizer(ctx, now.publication)
	case noKind != nil:
		return fmt.Errorf("the copies cannot be deleted until their kind can be published again: %w", noKind)
	}
	return p.finish(ctx, now)
}

// mayHaveCopies reports whether a configuration can allow a kind to be published. Otherwise, no
// copies of the kind exist.
func mayHaveCopies(kind schema.GroupVersionKind) bool {
	of := publication.Kind{Kind: kind.GroupKind(), Resource: strings.ToLower(kind.Kind)}
	return publication.CheckKind(of) == nil
}

// storedKind reads an invalid Publication from the server and returns the kind of its source. It
// returns the zero value if the spec does not name a kind.
func (p *publisher) storedKind(
	ctx context.Context, of *publication.Publication,
) (kind schema.GroupVersionKind, err error) {
	u, err := p.getStored(ctx, of)
	if u == nil || err != nil {
		return kind, err
	}
	from, _, _ := unstructured.NestedMap(u.Object, "spec", "from")
	version, _ := from["apiVersion"].(string)
	name, _ := from["kind"].(string)
	if kind = schema.FromAPIVersionAndKind(version, name); kind.Version == "" {
		return schema.GroupVersionKind{}, nil
	}
	return kind, nil
}

// isDefinitionEnding reports whether the CustomResourceDefinition of Publications is being deleted
// or does not exist.
func (p *publisher) isDefinitionEnding(ctx context.Context) (bool, error) {
	name := v1alpha1.Resource(v1alpha1.ResourcePublications).String()
	definition, err := p.engine.Dynamic.Resource(tenants.Definitions()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && definition.GetDeletionTimestamp() != nil, err
}

// finish removes the finalizer of a Publication that is being deleted if no copies remain.
// Otherwise, it returns [errCopies].
func (p *publisher) finish(ctx context.Context, is *published) error {
	for _, resource := range p.engine.kinds() {
		more := false
		var err error
		if is.invalid {
			more, err = p.queueCopies(ctx, is.publication.Name, resource)
		} else {
			more, err = p.hasMoreCopies(ctx, is.publication.Name, resource, 0)
		}
		if err != nil {
			return err
		}
		if more {
			return errCopies
		}
	}
	return p.removeFinalizer(ctx, is.publication)
}

// hasMoreCopies reports whether a Publication has more than the given number of copies of a kind.
func (p *publisher) hasMoreCopies(
	ctx context.Context, name string, resource schema.GroupVersionResource, than int64,
) (bool, error) {
	list, err := p.engine.Metadata.Resource(resource).List(ctx,
		metav1.ListOptions{LabelSelector: tenant.PublicationLabel + "=" + name, Limit: than + 1})
	if apierrors.IsNotFound(err) { // the kind is no longer defined
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the copies: %w", err)
	}
	return int64(len(list.Items)) > than, nil
}

// queueCopies queues the namespaces that have a copy from a Publication, if the copy has the
// given resource. It reports whether it found a copy. It finds the copies by their label, because
// it is unknown which namespaces an invalid Publication selects.
func (p *publisher) queueCopies(
	ctx context.Context, name string, resource schema.GroupVersionResource,
) (found bool, err error) {
	next := metav1.ListOptions{LabelSelector: tenant.PublicationLabel + "=" + name, Limit: driftPage}
	for {
		list, err := p.engine.Metadata.Resource(resource).List(ctx, next)
		if apierrors.IsNotFound(err) { // the kind is no longer defined
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("list the copies: %w", err)
		}
		for i := range list.Items {
			found = true
			p.engine.markDrifted(list.Items[i].Namespace)
			p.engine.updates.Add(list.Items[i].Namespace)
		}
		if next.Continue = list.Continue; next.Continue == "" {
			return found, nil
		}
	}
}

// addFinalizer adds the finalizer to a Publication.
func (p *publisher) addFinalizer(ctx context.Context, of *publication.Publication) error {
	return p.patchFinalizers(ctx, of, func(others []string) []string {
		return append(others, tenant.PublicationFinalizer)
	})
}

func (p *publisher) removeFinalizer(ctx context.Context, of *publication.Publication) error {
	return p.patchFinalizers(ctx, of, func(others []string) []string { return others })
}

// getStored returns the stored Publication, which may not decode. It returns nil if the Publication
// does not exist or has another UID.
func (p *publisher) getStored(ctx context.Context, of *publication.Publication) (*unstructured.Unstructured, error) {
	u, err := p.engine.Dynamic.Resource(resourceOf(v1alpha1.ResourcePublications)).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case u.GetUID() != of.UID:
		return nil, nil
	}
	return u, nil
}

// patchFinalizers calls change with the finalizers of other programs. It writes the result as the
// new list of finalizers, if its length differs from that of the stored list.
func (p *publisher) patchFinalizers(
	ctx context.Context, of *publication.Publication, change func(others []string) []string,
) error {
	stored, err := p.getStored(ctx, of)
	if stored == nil || err != nil {
		return err
	}
	next := change(slices.DeleteFunc(slices.Clone(stored.GetFinalizers()),
		func(f string) bool { return f == tenant.PublicationFinalizer }))
	if len(next) == len(stored.GetFinalizers()) {
		return nil
	}
	return p.patchStored(ctx, stored, map[string]any{"metadata": map[string]any{"finalizers": next}})
}

// patchStored applies a merge patch to a Publication. It fails with a conflict if the Publication
// has changed since it was read. Unlike [typed.Client], it does not decode the Publication.
func (p *publisher) patchStored(
	ctx context.Context, stored *unstructured.Unstructured, patch map[string]any, subresources ...string,
) error {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = stored.GetUID(), stored.GetResourceVersion()
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if err := p.engine.writes.wait(ctx, tenant.ID{}, adds); err != nil {
		return err
	}
	_, err = p.engine.Dynamic.Resource(resourceOf(v1alpha1.ResourcePublications)).Patch(ctx, stored.GetName(),
		types.MergePatchType, text, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
