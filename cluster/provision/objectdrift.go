// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// objectDrift is the result of a check of all objects of templates and Publications.
type objectDrift struct {
	correct map[string]int  // the number of correct objects, keyed by namespace
	drifted map[string]bool // the namespaces that have objects to change or delete
}

// checkObjectDrift queues the namespaces in which an object of a template or a Publication has
// changed, does not exist, or should not exist.
func (e *Engine) checkObjectDrift(ctx context.Context) {
	desired := map[tenant.ID]*desiredState{}
	ofTenant := func(id tenant.ID) *desiredState {
		if _, known := desired[id]; !known {
			desired[id], _ = e.desiredFor(ctx, id) // nil if not known yet, a later pass checks it
		}
		return desired[id]
	}
	found := objectDrift{map[string]int{}, map[string]bool{}}
	complete := true
	for _, of := range e.kinds() {
		if err := e.checkKind(ctx, of, ofTenant, &found); err != nil {
			e.logDriftError(ctx, err)
			complete = false
		}
	}
	all, err := e.lister.List(labels.Everything())
	if err != nil || !complete {
		all = nil // objects of a kind that could not be read must not be treated as missing
	}
	for _, ns := range all {
		desired := e.objectsIn(ns.Name, schema.GroupVersionResource{}, ofTenant)
		if desired != nil && found.correct[ns.Name] != len(desired.wanted) {
			found.drifted[ns.Name] = true
		}
	}
	for name := range found.drifted {
		e.markDrifted(name)
		e.updates.Add(name)
	}
}

// checkKind checks all objects of a kind and adds the results to found. It deletes copies of
// Publications in namespaces without a tenant.
func (e *Engine) checkKind(
	ctx context.Context, of schema.GroupVersionResource, ofTenant func(tenant.ID) *desiredState, found *objectDrift,
) error {
	next := metav1.ListOptions{LabelSelector: provisionedSelector, Limit: pageOf(of)}
	var last string
	var desired *objects
	for {
		if err := e.pages.Wait(ctx); err != nil {
			return err
		}
		list, err := e.Dynamic.Resource(of).List(ctx, next)
		if apierrors.IsNotFound(err) {
			return nil // the kind is no longer defined
		}
		if later := continued(err); later != "" {
			next.Continue = later
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			stored := &list.Items[i]
			if desired == nil || stored.GetNamespace() != last { // the list is ordered by namespace
				last, desired = stored.GetNamespace(), e.objectsIn(stored.GetNamespace(), of, ofTenant)
			}
			key := object{of, stored.GetName()}
			if desired == nil {
				if isCopy(stored) && e.hasNoTenant(last) {
					if err := e.removeObject(ctx, key, stored); err != nil {
						e.logDriftError(ctx, err)
					}
				}
				continue
			}
			if want, ok := desired.wanted[key]; ok && isSameObject(stored, want.Unstructured) {
				found.correct[last]++
			} else if ok || desired.removes(key, stored) {
				found.drifted[last] = true
			}
		}
		if next.Continue = list.GetContinue(); next.Continue == "" {
			return nil
		}
	}
}

// continued returns the token with which a list can continue after its continue token has
// expired, or "" for any other error. The rest of the list is then from a later state of the
// server.
func continued(err error) string {
	status := apierrors.APIStatus(nil)
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// isCopy reports whether an object is a copy of a Publication.
func isCopy(u *unstructured.Unstructured) bool {
	return u.GetLabels()[tenant.ManagedLabel] == managed.SourcePublication
}

// pageOf returns the page size for a kind. The page size is smaller for kinds with large objects,
// such as ConfigMaps, Secrets and custom resources.
func pageOf(of schema.GroupVersionResource) int64 {
	switch of.Resource {
	case "limitranges", "networkpolicies", "resourcequotas", "rolebindings", "roles":
		return driftPage
	}
	return driftPage / 10
}

// objectsIn returns the objects of the resource of that a namespace should have, or all objects
// if of is the zero value. It returns nil if the objects are not known, or if the namespace has
// no tenant or is being deleted.
func (e *Engine) objectsIn(
	namespace string, of schema.GroupVersionResource, ofTenant func(tenant.ID) *desiredState,
) *objects {
	ns, err := e.lister.Get(namespace)
	if err != nil || ns.DeletionTimestamp != nil {
		return nil
	}
	id := e.OwnerOf(ns)
	if id.IsZero() || id.IsSystem() {
		return nil
	}
	g := ofTenant(id)
	if g == nil {
		return nil
	}
	out := g.objectsOf(id, ns, of)
	return &out
}
