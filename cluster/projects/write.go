// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// write makes one change. It fails with a conflict if the object has changed since it was read.
func (s *Syncer) write(ctx context.Context, plan *Plan, c *Change) error {
	switch c.Action {
	case CreateTenant:
		return s.createTenant(ctx, c.Name, plan.Tenant)
	case UpdateTenant:
		_, err := s.tenants.PatchRead(ctx, plan.Object, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{tenant.KeystoneAnnotation: c.To.String()},
		}})
		return asConflict(err)
	case CreateNamespace:
		_, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        c.Name,
			Labels:      map[string]string{tenant.Label: plan.Tenant.String()},
			Annotations: map[string]string{tenant.KeystoneAnnotation: c.To.String()},
		}}, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
		return asConflict(err)
	case UpdateNamespace:
		return s.updateNamespace(ctx, c)
	case DeleteNamespace:
		err := s.Client.CoreV1().Namespaces().Delete(ctx, c.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &c.namespace.UID, ResourceVersion: &c.namespace.ResourceVersion},
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return fmt.Errorf("unknown action %q", c.Action)
}

// createTenant creates a Tenant that has only an ID. The admission policy of the Helm chart allows
// no other field, so the empty fields of the Go type must not be sent.
func (s *Syncer) createTenant(ctx context.Context, name string, id tenant.ID) error {
	_, err := s.Dynamic.Resource(tenantsResource()).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"id": id.String()},
	}}, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	return asConflict(err)
}

func (s *Syncer) updateNamespace(ctx context.Context, c *Change) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             c.namespace.UID,
		"resourceVersion": c.namespace.ResourceVersion,
		"annotations":     map[string]any{tenant.KeystoneAnnotation: c.To.String()},
	}})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Namespaces().Patch(ctx, c.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return asConflict(err)
}

// asConflict returns a conflict if a new object already exists or a changed object no longer
// exists. In both cases, the caches are outdated, and the next plan uses the current object.
// Other errors are returned unchanged.
func asConflict(err error) error {
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("objects"), "", err)
}
