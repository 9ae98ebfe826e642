package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/tenancy"
)

const (
	// writers is how many objects are written at a time.
	writers = 16
	// printed is how many objects of a resource are printed.
	printed = 5
	// settles is how long a server may enforce a policy that was deleted.
	settles = 10 * time.Second
)

// labels removes the project's labels and annotations from all objects in namespaces, and then from the namespaces, which say until
// the end which tenant owns them.
func (r *run) labels(ctx context.Context) error {
	resources, err := tenancy.Resources(r.Admin.Kube.Discovery(), "list", "patch")
	if err != nil {
		return fmt.Errorf("discover the resources of the cluster: %w", err)
	}
	var unread []error
	for _, resource := range append(resources, core("namespaces")) {
		if len(unread) > 0 && resource == core("namespaces") {
			break
		}
		if err := r.unlabel(ctx, resource); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.Say("  not read: %v", err)
			unread = append(unread, err)
		}
	}
	if len(unread) > 0 {
		return ErrUnread
	}
	return nil
}

// unlabel removes them from all objects of a resource.
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
	for i, m := range found[:min(printed, len(found))] {
		if i > 0 {
			names += ", "
		}
		names += objectName(m)
	}
	if len(found) > printed {
		names += ", ..."
	}
	r.Say("  remove labels and annotations of %d %s: %s", len(found), resource.GroupResource(), names)
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

// unlabelOne removes them from one object. While a server still enforces a policy that was deleted, it is tried again.
func (r *run) unlabelOne(ctx context.Context, resource schema.GroupVersionResource, m *metav1.PartialObjectMetadata) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID, "labels": ourKeys(m.Labels), "annotations": ourKeys(m.Annotations)}})
	if err != nil {
		return err
	}
	for begun := time.Now(); ; {
		_, err := r.Admin.Metadata.Resource(resource).Namespace(m.Namespace).Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another has its name
			return nil
		case !apierrors.IsForbidden(err) || time.Since(begun) > settles:
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// ourKeys returns the project's keys with the value that removes them in a merge patch.
func ourKeys(of map[string]string) map[string]any {
	ours := map[string]any{}
	for key := range of {
		if isOurs(key) {
			ours[key] = nil
		}
	}
	return ours
}

func objectName(m *metav1.PartialObjectMetadata) string {
	if m.Namespace == corev1.NamespaceAll {
		return m.Name
	}
	return m.Namespace + "/" + m.Name
}
