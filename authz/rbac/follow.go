// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// Follow updates the index from the informers. The returned function reports whether the index
// contains all objects that existed at the start.
func (x *Index) Follow(informers rbacinformers.Interface) (synced func() bool, err error) {
	var registered []cache.ResourceEventHandlerRegistration
	for _, informer := range []cache.SharedIndexInformer{
		informers.ClusterRoles().Informer(), informers.Roles().Informer(),
		informers.ClusterRoleBindings().Informer(), informers.RoleBindings().Informer(),
	} {
		r, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    x.Set,
			UpdateFunc: func(_, updated any) { x.Set(updated) },
			DeleteFunc: x.Delete,
		})
		if err != nil {
			return nil, err
		}
		registered = append(registered, r)
	}
	return func() bool {
		for _, r := range registered {
			if !r.HasSynced() {
				return false
			}
		}
		return true
	}, nil
}

// Set adds a role or a binding, or replaces the object of the same kind and name. It ignores
// objects of other kinds. The object MUST NOT be changed afterwards.
func (x *Index) Set(obj any) {
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		x.setRole(keyOfObject(o), x.masks.compile(o.Rules))
	case *rbacv1.Role:
		x.setRole(keyOfObject(o), x.masks.compile(o.Rules))
	case *rbacv1.ClusterRoleBinding:
		x.setBinding(keyOfObject(o), &binding{cluster: o, limits: limitsOf(o)})
	case *rbacv1.RoleBinding:
		x.setBinding(keyOfObject(o), &binding{namespaced: o, limits: limitsOf(o)})
	}
}

// Delete removes a role or a binding. The object may be the tombstone of an informer.
func (x *Index) Delete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		x.setRole(keyOfObject(o), nil)
	case *rbacv1.Role:
		x.setRole(keyOfObject(o), nil)
	case *rbacv1.ClusterRoleBinding:
		x.setBinding(keyOfObject(o), nil)
	case *rbacv1.RoleBinding:
		x.setBinding(keyOfObject(o), nil)
	}
}

func keyOfObject(o metav1.Object) objectKey { return objectKey{o.GetNamespace(), o.GetName()} }
