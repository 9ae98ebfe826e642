// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// kinds returns the custom resources of kubetenant.
func kinds() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, name := range []string{
		v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants,
		v1alpha1.ResourceTenantMembers, v1alpha1.ResourceTenantQuotas,
		v1alpha1.ResourceNamespaceTemplates, v1alpha1.ResourcePublications, v1alpha1.ResourceAccessGrants,
		v1alpha1.ResourceTenantUsages,
	} {
		all = append(all, v1alpha1.SchemeGroupVersion.WithResource(name))
	}
	return all
}

var definitions = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// checkEnding returns an error if a Tenant is being deleted. Without kubetenant, no server would
// complete the deletion.
func (r *run) checkEnding(ctx context.Context) error {
	tenants := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	definition, err := r.Admin.Objects.Resource(definitions).Get(ctx, tenants.GroupResource().String(),
		metav1.GetOptions{})
	switch {
	// If the CustomResourceDefinition is being deleted, all Tenants are deleted with it.
	case apierrors.IsNotFound(err), err == nil && definition.GetDeletionTimestamp() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("read the CustomResourceDefinition of Tenants: %w", err)
	}
	var ending []string
	err = r.eachObject(ctx, tenants, func(u *unstructured.Unstructured) {
		if u.GetDeletionTimestamp() != nil {
			ending = append(ending, u.GetName())
		}
	})
	if err != nil || len(ending) == 0 {
		return err
	}
	return r.unlessForced(fmt.Errorf("%w: these Tenants are being deleted, which would never finish: wait until they "+
		"are gone: %s", ErrRefused, strings.Join(ending, ", ")))
}

// finalizers removes the finalizers that kubetenant set. It does not delete the objects.
func (r *run) finalizers(ctx context.Context) error {
	r.step(4, "remove the finalizers of kubetenant")
	if r.servers.Running() {
		r.Printf("  a running server may add them again, so this step is repeated after the servers have changed")
	}
	return r.removeFinalizers(ctx, isOurs)
}

// removeFinalizers removes each finalizer for which goes returns true from the objects of
// kubetenant's kinds.
func (r *run) removeFinalizers(ctx context.Context, goes func(finalizer string) bool) error {
	for _, resource := range kinds() {
		var blocked []*unstructured.Unstructured
		if err := r.eachObject(ctx, resource, func(u *unstructured.Unstructured) {
			if slices.ContainsFunc(u.GetFinalizers(), goes) {
				blocked = append(blocked, u)
			}
		}); err != nil {
			return err
		}
		for _, u := range blocked {
			r.do(ctx, func(ctx context.Context) error { return r.release(ctx, resource, u, goes) },
				"remove the finalizer of %s %s", u.GetKind(), u.GetName())
		}
	}
	return nil
}

// allFinalizers removes all finalizers from the objects of kubetenant's kinds, before the objects
// are deleted. A tenant's caller can set any finalizer on an object of its tenant, and no
// controller would remove it.
func (r *run) allFinalizers(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	return r.removeFinalizers(ctx, func(string) bool { return true })
}

// release removes each finalizer for which goes returns true from an object. It returns an error
// if the object has changed since it was read.
func (r *run) release(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured,
	goes func(finalizer string) bool,
) error {
	stay := slices.DeleteFunc(u.GetFinalizers(), goes)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             u.GetUID(),
		"resourceVersion": u.GetResourceVersion(),
		"finalizers":      stay,
	}})
	if err != nil {
		return err
	}
	objects := r.Manager.Objects.Resource(resource)
	if u.GetNamespace() != "" {
		_, err = objects.Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch,
			metav1.PatchOptions{})
	} else {
		_, err = objects.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// isOurs reports whether the domain of a finalizer, label or annotation belongs to kubetenant.
func isOurs(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == tenant.Domain || strings.HasSuffix(domain, "."+tenant.Domain))
}
