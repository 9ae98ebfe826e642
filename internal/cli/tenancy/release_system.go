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

// mostMade is how many objects of a tenant's callers a refusal names.
const mostMade = 20

// checkSystem refuses to release a system namespace that holds objects of a tenant's callers.
// With Force it warns. The command deletes none of them, because the namespace holds the
// control plane's objects too.
func (r *Release) checkSystem(ctx context.Context, name string) error {
	found, err := r.madeByTenants(ctx, name)
	if err != nil || len(found) == 0 {
		return err
	}
	names := make([]string, 0, mostMade)
	for i := range found[:min(mostMade, len(found))] {
		names = append(names, fmt.Sprintf("%s/%s", found[i].resource.GroupResource(), found[i].name))
	}
	if len(found) > mostMade {
		names = append(names, "...")
	}
	what := fmt.Sprintf("callers of a tenant created %d objects in namespace %s, which would then belong to the system "+
		"tenant: %s",
		len(found), name, strings.Join(names, ", "))
	if r.Force {
		r.Warn("%s", what)
		return nil
	}
	return fmt.Errorf("%w: %s: check and delete them first (use --force to keep them)", ErrHolds, what)
}

// madeByTenants returns the objects of a namespace that callers of a tenant
// created and that give access.
func (r *Release) madeByTenants(ctx context.Context, name string) ([]held, error) {
	var found []held
	for _, resource := range blocking() {
		objects, err := list(ctx, r.Objects, resource, name, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range objects {
			o := &objects[i]
			if isDefaultAccount(resource, o.GetName()) || !isMadeByTenant(o.GetAnnotations()) {
				continue
			}
			found = append(found, holding(resource, o))
		}
	}
	return found, nil
}

// isMadeByTenant reports whether the server recorded a creator of an object that is not the system
// tenant's, or a controller acted for one. A record that cannot be read counts.
func isMadeByTenant(annotations map[string]string) bool {
	for _, key := range []string{tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation} {
		record, has := annotations[key]
		var creator attribution.Creator
		if has && (json.Unmarshal([]byte(record), &creator) != nil || creator.Tenant != tenant.System().String()) {
			return true
		}
	}
	return false
}

// releaseSystem removes the label of a namespace that the system tenant owns in any case. Its
// objects and credentials are the control plane's.
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
