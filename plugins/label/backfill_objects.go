// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant"
)

// backfillResource corrects the objects of a resource, page by page. It returns the tenants with
// objects that could not be written, and the errors. The tenants are nil if not all objects were
// checked.
func (s *Backfill) backfillResource(
	ctx context.Context,
	r schema.GroupVersionResource,
	namespace string,
) (tenantSet, error) {
	failed := tenantSet{}
	var problems []error
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := s.objects.Resource(r).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, errors.Join(append(problems, err)...)
		}
		err = s.fixLabels(ctx, r, page.Items, failed)
		if errors.Is(err, errOwner) {
			return nil, errors.Join(append(problems, err)...)
		}
		if err != nil && len(problems) < maxProblems {
			problems = append(problems, err)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return failed, errors.Join(problems...)
		}
	}
}

// fixLabels corrects wrong labels of objects. If an object could not be written, it adds the
// owner and the tenant in the object's label to failed.
func (s *Backfill) fixLabels(
	ctx context.Context, r schema.GroupVersionResource, objects []metav1.PartialObjectMetadata, failed tenantSet,
) error {
	owners := map[string]tenant.ID{} // one lookup for each namespace
	for i := range objects {
		namespace := objects[i].Namespace
		if _, known := owners[namespace]; known {
			continue
		}
		var err error
		if owners[namespace], err = s.owner(ctx, namespace); err != nil {
			return fmt.Errorf("%w %s: %v", errOwner, namespace, err) //nolint:errorlint // the client's errors are nobody's API
		}
	}
	var group errgroup.Group
	group.SetLimit(maxWriters)
	var mu sync.Mutex
	for i := range objects {
		m := &objects[i].ObjectMeta
		owner := owners[m.Namespace]
		label, ok := m.Labels[tenant.Label]
		want := owner.String()
		if owner.IsSystem() {
			want = ""
		}
		if ok == (want != "") && label == want {
			continue
		}
		group.Go(func() error {
			err := s.patchLabel(ctx, r, m, want)
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed[owner] = true
			if claimed, invalid := tenant.Parse(label); invalid == nil {
				failed[claimed] = true
			}
			return fmt.Errorf("%s/%s: %w", m.Namespace, m.Name, err)
		})
	}
	return group.Wait()
}

// patchLabel sets the label of one object, or removes it if want is empty. The UID in the patch
// protects a newer object with the same name. The plugin determines the label that is stored.
func (s *Backfill) patchLabel(
	ctx context.Context,
	r schema.GroupVersionResource,
	m *metav1.ObjectMeta,
	want string,
) error {
	var label any // null removes the label
	if want != "" {
		label = want
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    m.UID,
		"labels": map[string]any{tenant.Label: label},
	}})
	if err != nil {
		return err
	}
	_, err = s.objects.Resource(r).Namespace(m.Namespace).Patch(ctx, m.Name, types.MergePatchType,
		patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && s.isGone(ctx, r, m) {
		return nil
	}
	return err
}

// isGone reports whether the object no longer exists. Another object may exist with the same name.
func (s *Backfill) isGone(ctx context.Context, r schema.GroupVersionResource, m *metav1.ObjectMeta) bool {
	current, err := s.objects.Resource(r).Namespace(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && current.UID != m.UID
}
