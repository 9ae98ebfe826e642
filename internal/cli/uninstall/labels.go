// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// writers is the number of concurrent writes.
	writers = 16
	// maxPrinted is the maximum number of objects of each resource that are printed.
	maxPrinted = 5
	// settleTime is how long a server may still enforce an admission policy after its deletion.
	settleTime = 10 * time.Second
)

// labels removes the labels and annotations of kubetenant from all objects. Namespaces are last,
// because their labels show their owners.
func (r *run) labels(ctx context.Context) error {
	resources, err := r.labeledResources()
	unread := err != nil
	if unread {
		r.Printf("  could not be read: %v", err)
	}
	for _, resource := range resources {
		if err := r.unlabel(ctx, resource); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Printf("  could not be read: %v", err)
			unread = true
		}
	}
	switch {
	case unread:
		return ErrUnread
	case len(r.failed) > 0:
		return ErrFailed
	}
	if err := r.recordProgress(ctx); err != nil {
		return err
	}
	return r.unlabel(ctx, core("namespaces"))
}

// labeledResources returns the resources whose objects may have labels and annotations of
// kubetenant. It includes cluster-scoped resources, because annotations record the creators of
// their objects. It omits namespaces, which unlabel handles last, and events, which expire. It may
// return both resources and an error.
func (r *run) labeledResources() ([]schema.GroupVersionResource, error) {
	lists, err := r.Admin.Kube.Discovery().ServerPreferredResources()
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists)
	found, parseErr := discovery.GroupVersionResources(lists)
	var all []schema.GroupVersionResource
	for resource := range found {
		if resource.Resource != "events" && resource != core("namespaces") && resource.Group != tenant.Domain {
			all = append(all, resource)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all, errors.Join(err, parseErr)
}

// unlabel removes the labels and annotations of kubetenant from all objects of a resource.
func (r *run) unlabel(ctx context.Context, resource schema.GroupVersionResource) error {
	var found []*metav1.PartialObjectMetadata
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.Admin.Metadata.Resource(resource).List(ctx, opts)
	}, func(m *metav1.PartialObjectMetadata) {
		if len(ourKeys(m.Labels))+len(ourKeys(m.Annotations)) > 0 {
			found = append(found, m)
		}
	})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || err == nil && len(found) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	names := ""
	for i, m := range found[:min(maxPrinted, len(found))] {
		if i > 0 {
			names += ", "
		}
		names += objectName(m)
	}
	if len(found) > maxPrinted {
		names += ", ..."
	}
	r.Printf("  remove labels and annotations of %d %s: %s", len(found), resource.GroupResource(), names)
	if r.DryRun {
		return nil
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(writers)
	for _, m := range found {
		g.Go(func() error {
			if err := r.unlabelOne(ctx, resource, m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				r.fail(err, "remove labels and annotations of %s %s", resource.GroupResource(), objectName(m))
			}
			return nil
		})
	}
	return g.Wait()
}

// unlabelOne removes the labels and annotations of kubetenant from one object. It retries while a
// server still enforces a deleted admission policy.
func (r *run) unlabelOne(ctx context.Context, resource schema.GroupVersionResource,
	m *metav1.PartialObjectMetadata,
) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         m.UID,
		"labels":      ourKeys(m.Labels),
		"annotations": ourKeys(m.Annotations),
	}})
	if err != nil {
		return err
	}
	for begun := time.Now(); ; {
		_, err := r.Admin.Metadata.Resource(resource).Namespace(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the object was deleted or recreated
			return nil
		case !apierrors.IsForbidden(err) || time.Since(begun) > settleTime:
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// ourKeys returns the keys of kubetenant with null values. A merge patch removes a key with a null
// value.
func ourKeys(keys map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range keys {
		if isOurs(key) {
			patch[key] = nil
		}
	}
	return patch
}

func objectName(m *metav1.PartialObjectMetadata) string {
	if m.Namespace == corev1.NamespaceAll {
		return m.Name
	}
	return m.Namespace + "/" + m.Name
}
