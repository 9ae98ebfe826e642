// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/nearest"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// suggestLimit is the maximum number of objects of each kind that are read to find a similar name.
const suggestLimit = 1000

// CheckExists returns an error if a tenant has no Tenant, namespace or RetiredTenant. The error
// suggests a similar existing name. It wraps [ErrNoTenant], or is an error from a client. If the
// caller may not read these objects, CheckExists returns nil.
func CheckExists(ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID) error {
	if id.IsZero() || id.IsSystem() {
		return nil
	}
	for _, absent := range []func() (bool, error){
		func() (bool, error) { return absentObject(ctx, d, v1alpha1.ResourceTenants, id) },
		func() (bool, error) {
			list, err := k.CoreV1().Namespaces().List(ctx,
				metav1.ListOptions{Limit: 1, LabelSelector: tenant.Label + "=" + id.String()})
			return err == nil && len(list.Items) == 0, err
		},
		func() (bool, error) { return absentObject(ctx, d, v1alpha1.ResourceRetiredTenants, id) },
	} {
		isAbsent, err := absent()
		if apierrors.IsForbidden(err) {
			return nil
		}
		if err != nil || !isAbsent {
			return err
		}
	}
	if better := nearest.Name(id.String(), existing(ctx, k, d)); better != "" {
		return fmt.Errorf("tenant %s: %w; did you mean %s?", id, ErrNoTenant, better)
	}
	return fmt.Errorf("tenant %s: %w", id, ErrNoTenant)
}

// HasAny reports whether a tenant has a Tenant object or a namespace.
func HasAny(ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID) (bool, error) {
	absent, err := absentObject(ctx, d, v1alpha1.ResourceTenants, id)
	if err != nil || !absent {
		return !absent, refusal(err)
	}
	list, err := k.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{Limit: 1, LabelSelector: tenant.Label + "=" + id.String()})
	if err != nil {
		return false, refusal(err)
	}
	return len(list.Items) > 0, nil
}

// CheckNamespaceExists returns an error if a namespace does not exist. The error wraps
// [ErrMissing], or is an error from the client. If the caller may not read the namespace,
// CheckNamespaceExists returns nil.
func CheckNamespaceExists(ctx context.Context, k kube.Interface, name string) error {
	_, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %s: %w", name, ErrMissing)
	case apierrors.IsForbidden(err):
		return nil
	}
	return err
}

// absentObject reports whether a tenant has no object of a resource. It returns true if the server
// does not serve the resource.
func absentObject(ctx context.Context, d dynamic.Interface, resource string, id tenant.ID) (bool, error) {
	objects := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource))
	if resource == v1alpha1.ResourceTenants {
		_, err := objects.Get(ctx, id.ObjectName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}
	list, err := objects.List(ctx, metav1.ListOptions{}) // a RetiredTenant's name ends with a UID, which is unknown here
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		retiredID, _, err := tenants.ReadRetired(typed.Decode[v1alpha1.RetiredTenant](&list.Items[i]))
		if err != nil || retiredID == id {
			return false, err
		}
	}
	return true, nil
}

// existing returns the tenants that have a Tenant object or a namespace, if the caller may list
// them. It reads at most [suggestLimit] objects of each kind.
func existing(ctx context.Context, k kube.Interface, d dynamic.Interface) (names []string) {
	if list, err := d.Resource(tenantObjects).List(ctx, metav1.ListOptions{Limit: suggestLimit}); err == nil {
		for i := range list.Items {
			names = append(names, tenantOf(&list.Items[i]))
		}
	}
	options := metav1.ListOptions{Limit: suggestLimit, LabelSelector: tenant.Label}
	if list, err := k.CoreV1().Namespaces().List(ctx, options); err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Labels[tenant.Label])
		}
	}
	return names
}
