package provision

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
)

// lookForObjects queues the namespaces in which an object of a template or a Publication has changed,
// does not exist, or should not exist.
func (e *Engine) lookForObjects(ctx context.Context, ofTenant func(tenant.ID) *given) {
	right := map[string]int{} // the number of correct objects by namespace
	wrong := map[string]bool{}
	for _, of := range e.kinds() {
		next := metav1.ListOptions{LabelSelector: givenSelector, Limit: pageOf(of)}
		var last string
		var gives *objects
		for {
			if err := e.pages.Wait(ctx); err != nil {
				return
			}
			list, err := e.Dynamic.Resource(of).List(ctx, next)
			if apierrors.IsNotFound(err) {
				break // the kind is no longer defined
			}
			if err != nil {
				e.notLooked(ctx, err)
				return
			}
			for i := range list.Items {
				is := &list.Items[i]
				if gives == nil || is.GetNamespace() != last { // the list is ordered by namespace
					last, gives = is.GetNamespace(), e.objectsIn(is.GetNamespace(), ofTenant)
				}
				if gives == nil {
					continue
				}
				key := object{of, is.GetName()}
				if want, has := gives.wanted[key]; has && isGiven(is, want.Unstructured) {
					right[last]++
				} else if has || gives.removes(key, is) {
					wrong[last] = true
				}
			}
			if next.Continue = list.GetContinue(); next.Continue == "" {
				break
			}
		}
	}
	all, err := e.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		if gives := e.objectsIn(ns.Name, ofTenant); gives != nil && right[ns.Name] != len(gives.wanted) {
			wrong[ns.Name] = true
		}
	}
	for name := range wrong {
		e.looksDrifted(name)
		e.later.Add(name)
	}
}

// pageOf returns how many objects of a kind are read at once. A ConfigMap, a Secret or a custom
// resource may be large.
func pageOf(of schema.GroupVersionResource) int64 {
	switch of.Resource {
	case "limitranges", "networkpolicies", "resourcequotas", "rolebindings", "roles":
		return driftPage
	}
	return driftPage / 10
}

// objectsIn returns the objects that a namespace should have. It returns nil if they are not known,
// or if the namespace has no tenant or is being deleted.
func (e *Engine) objectsIn(namespace string, ofTenant func(tenant.ID) *given) *objects {
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
	out := g.objects(id, ns)
	return &out
}
