// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/tenant"
)

// maxListed is the maximum number of objects that an error lists.
const maxListed = 20

// checkSystem returns an error if callers of a tenant created objects in a system namespace
// through which they could retain access. With Force, it only warns. The objects are not deleted,
// because the namespace also contains objects of the control plane.
func (r *Release) checkSystem(ctx context.Context, name string) error {
	found, err := r.createdByTenants(ctx, name)
	if err != nil || len(found) == 0 {
		return err
	}
	names := make([]string, 0, maxListed)
	for i := range found[:min(maxListed, len(found))] {
		names = append(names, fmt.Sprintf("%s/%s", found[i].resource.GroupResource(), found[i].name))
	}
	if len(found) > maxListed {
		names = append(names, "...")
	}
	problem := fmt.Sprintf(
		"callers of a tenant created %d objects in namespace %s, which would then belong to the system "+
			"tenant: %s",
		len(found),
		name,
		strings.Join(names, ", "),
	)
	if r.Force {
		r.Warn("%s", problem)
		return nil
	}
	return fmt.Errorf("%w: %s: check and delete them first (use --force to keep them)", ErrNamespaceNotEmpty, problem)
}

// createdByTenants returns the objects in a namespace that tenants' callers created, and through
// which they could retain access.
func (r *Release) createdByTenants(ctx context.Context, name string) ([]blocker, error) {
	var found []blocker
	for _, resource := range blocking() {
		objects, err := list(ctx, r.Objects, resource, name, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range objects {
			o := &objects[i]
			if isDefaultAccount(resource, o.GetName()) || !isCreatedByTenant(o.GetAnnotations()) {
				continue
			}
			found = append(found, newBlocker(resource, o))
		}
	}
	return found, nil
}

// isCreatedByTenant reports whether a tenant's caller created an object, or a controller created
// it for a tenant's caller. It reads the annotations in which the server records the creator. It
// returns true if an annotation is invalid.
func isCreatedByTenant(annotations map[string]string) bool {
	for _, key := range []string{tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation} {
		record, ok := annotations[key]
		var creator attribution.Creator
		if ok && (json.Unmarshal([]byte(record), &creator) != nil || creator.Tenant != tenant.System().String()) {
			return true
		}
	}
	return false
}

// releaseSystem removes the tenant label of a system namespace. It deletes only the objects that
// the server manages for the tenant.
func (r *Release) releaseSystem(ctx context.Context, ns *corev1.Namespace, former string) error {
	if former != tenant.System().String() {
		r.Warn("namespace %s is a system namespace, so its objects are not deleted: check its RoleBindings, Secrets and "+
			"ServiceAccounts for objects of tenant %s", ns.Name, former)
	}
	if err := r.removeLabel(ctx, ns, former); err != nil {
		return err
	}
	if err := r.deleteManaged(ctx, ns.Name); err != nil {
		return err
	}
	if err := r.unlabel(ctx, ns.Name); err != nil {
		return err
	}
	return r.complete(ctx, ns)
}
