// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// namespacesByTenant is the name of the index that finds namespaces by the value of their tenant
// label.
const namespacesByTenant = "kubetenant"

// Namespaces finds the namespaces of a cluster by the label [tenant.Label].
type Namespaces struct {
	informer cache.SharedIndexInformer
	indexer  cache.Indexer
	changes  *atomic.Uint64 // the number of creations, deletions and changes of the tenant label
}

// NewNamespaces returns the namespaces in the given informer. It adds an index, so it must be
// called only once for each informer.
func NewNamespaces(informer cache.SharedIndexInformer) (*Namespaces, error) {
	n := &Namespaces{informer: informer, indexer: informer.GetIndexer(), changes: &atomic.Uint64{}}
	if err := informer.AddIndexers(cache.Indexers{namespacesByTenant: func(obj any) ([]string, error) {
		if id := labelOf(obj); id != "" {
			return []string{id}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(
		countChanges(n.changes, func(was, now any) bool { return labelOf(was) == labelOf(now) }),
	)
	return n, err
}

// countChanges returns a handler that increments changes. It ignores updates for which same returns
// true.
func countChanges(changes *atomic.Uint64, same func(was, now any) bool) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changes.Add(1) },
		DeleteFunc: func(any) { changes.Add(1) },
		UpdateFunc: func(was, now any) {
			if !same(was, now) {
				changes.Add(1)
			}
		},
	}
}

func labelOf(obj any) string {
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return ""
	}
	return ns.Labels[tenant.Label]
}

// Tenants returns all values of the tenant label.
func (n *Namespaces) Tenants() []string { return n.indexer.ListIndexFuncValues(namespacesByTenant) }

// OwnedBy returns the names of the namespaces whose tenant label has the given value.
func (n *Namespaces) OwnedBy(id string) ([]string, error) {
	return n.indexer.IndexKeys(namespacesByTenant, id)
}

// count returns the namespaces whose tenant label has the given value, as counted objects. It
// includes namespaces that are being deleted.
func (n *Namespaces) count(id string) ([]quota.CountedObject, error) {
	all, err := n.indexer.ByIndex(namespacesByTenant, id)
	if err != nil {
		return nil, err
	}
	out := make([]quota.CountedObject, 0, len(all))
	for _, obj := range all {
		if ns, ok := obj.(*corev1.Namespace); ok {
			out = append(out, quota.CountedObject{
				UID:       ns.UID,
				Namespace: ns.Name,
				Version:   ns.ResourceVersion,
				Usage:     corev1.ResourceList{quota.NamespaceCount: *resource.NewQuantity(1, resource.DecimalSI)},
			})
		}
	}
	return out, nil
}

// owner returns the value of a namespace's tenant label, or "" if the namespace is not known.
func (n *Namespaces) owner(name string) string {
	obj, _, _ := n.indexer.GetByKey(name)
	return labelOf(obj)
}
