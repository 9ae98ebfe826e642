// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"hash/maphash"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Index contains roles and bindings, indexed by subject and namespace. A change takes effect as a
// whole, so no decision misses a binding or a subject during an update. Index is safe for
// concurrent use. Decisions wait only while a change is made.
type Index struct {
	masks masks

	mu       sync.RWMutex
	subjects map[subjectKey][]*binding
	bindings map[objectKey]*binding
	roles    map[objectKey]*role
}

// NewIndex returns an empty index. No request is allowed until it is filled, see [Index.Follow].
func NewIndex() *Index {
	return &Index{
		masks:    masks{maphash.MakeSeed()},
		subjects: map[subjectKey][]*binding{},
		bindings: map[objectKey]*binding{},
		roles:    map[objectKey]*role{},
	}
}

// objectKey is the key of a role or a binding. A cluster-scoped object has no namespace.
type objectKey struct{ namespace, name string }

// subjectKey is a subject in one namespace, or in the whole cluster if the namespace is empty.
type subjectKey struct {
	namespace, name string
	isGroup         bool // otherwise a user; a service account is the user that it authenticates as
}

// binding is a ClusterRoleBinding or a RoleBinding. Exactly one of cluster and namespaced is set.
// A binding never changes, except for the content of its role.
type binding struct {
	cluster    *rbacv1.ClusterRoleBinding
	namespaced *rbacv1.RoleBinding
	role       *role // nil if the reference is invalid
	limits     *limits
}

func (b *binding) namespace() string {
	if b.namespaced != nil {
		return b.namespaced.Namespace
	}
	return ""
}

func (b *binding) subjects() []rbacv1.Subject {
	if b.namespaced != nil {
		return b.namespaced.Subjects
	}
	return b.cluster.Subjects
}

func (b *binding) roleRef() *rbacv1.RoleRef {
	if b.namespaced != nil {
		return &b.namespaced.RoleRef
	}
	return &b.cluster.RoleRef
}

// keyOf returns the key of a subject of a binding in a namespace. It returns false for a subject
// that matches no user.
func keyOf(s *rbacv1.Subject, namespace string) (subjectKey, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subjectKey{namespace, s.Name, false}, true
	case rbacv1.GroupKind:
		return subjectKey{namespace, s.Name, true}, true
	case rbacv1.ServiceAccountKind:
		home := s.Namespace
		if home == "" {
			home = namespace
		}
		return subjectKey{namespace, serviceaccount.MakeUsername(home, s.Name), false}, home != ""
	}
	return subjectKey{}, false
}

// roleKey returns the key of the role that a binding in a namespace refers to. It returns false for
// a role that cannot exist.
func roleKey(ref *rbacv1.RoleRef, namespace string) (objectKey, bool) {
	switch ref.Kind {
	case "Role":
		return objectKey{namespace, ref.Name}, namespace != ""
	case "ClusterRole":
		return objectKey{name: ref.Name}, true
	}
	return objectKey{}, false
}

// setRole replaces the content of a role. If c is nil, setRole removes the role.
func (x *Index) setRole(key objectKey, c *content) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.roles[key]
	switch {
	case r != nil:
		r.content = c
		x.removeUnused(key, r)
	case c != nil:
		x.roles[key] = &role{content: c}
	}
}

// removeUnused removes a role that does not exist and that no binding refers to.
func (x *Index) removeUnused(key objectKey, r *role) {
	if r.content == nil && r.bindings == 0 {
		delete(x.roles, key)
	}
}

// setBinding replaces the binding of the same name with b. If b is nil, it removes the binding.
func (x *Index) setBinding(key objectKey, b *binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if before := x.bindings[key]; before != nil {
		x.unlink(before)
	}
	if b == nil {
		delete(x.bindings, key)
		return
	}
	x.bindings[key] = b
	if k, ok := roleKey(b.roleRef(), b.namespace()); ok {
		if b.role = x.roles[k]; b.role == nil {
			b.role = &role{}
			x.roles[k] = b.role
		}
		b.role.bindings++
	}
	subjects := b.subjects()
	for i := range subjects {
		if k, ok := keyOf(&subjects[i], b.namespace()); ok {
			x.subjects[k] = append(x.subjects[k], b)
		}
	}
}

// unlink removes a binding from its subjects and its role.
func (x *Index) unlink(b *binding) {
	subjects := b.subjects()
	for i := range subjects {
		k, ok := keyOf(&subjects[i], b.namespace())
		if !ok {
			continue
		}
		if left := removeBinding(x.subjects[k], b); len(left) > 0 {
			x.subjects[k] = left
		} else {
			delete(x.subjects, k)
		}
	}
	if b.role != nil {
		b.role.bindings--
		k, _ := roleKey(b.roleRef(), b.namespace())
		x.removeUnused(k, b.role)
	}
}

// removeBinding removes one occurrence of b from the list and may reorder the list.
func removeBinding(list []*binding, b *binding) []*binding {
	for i := range list {
		if list[i] == b {
			last := len(list) - 1
			list[i] = list[last]
			list[last] = nil
			return list[:last]
		}
	}
	return list
}
