// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// addPublication adds a Publication unless the server ignores it.
func (s *Snapshot) addPublication(u *unstructured.Unstructured) {
	stored, err := typed.Decode[v1alpha1.Publication](u)
	if err != nil {
		return
	}
	if p, err := publication.Parse(stored); err == nil {
		s.Publications[u.GetName()] = p
	}
}

// addSource adds an object if a Publication may copy it without further configuration.
func (s *Snapshot) addSource(obj runtime.Object, kind schema.GroupVersionKind) error {
	if _, err := (&publication.Rules{}).Resource(kind); err != nil {
		return nil //nolint:nilerr // no Publication may copy it
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	s.storeSource(u)
	return nil
}

// storeSource stores an object as a possible source of Publications, if its kind can be published
// without further configuration.
func (s *Snapshot) storeSource(u *unstructured.Unstructured) {
	if _, err := (&publication.Rules{}).Resource(u.GroupVersionKind()); err == nil {
		s.sources[sourceKey(u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName())] = u
	}
}

func sourceKey(kind schema.GroupKind, namespace, name string) string {
	return kind.String() + " " + namespace + "/" + name
}

// PublicationSource returns the object that a Publication copies, or nil if the snapshot does not
// contain the object.
func (s *Snapshot) PublicationSource(
	_ context.Context, from *publication.Source, _ schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	return s.sources[sourceKey(from.Kind.GroupKind(), from.Namespace, from.Name)], nil
}

// PublicationRole returns the role of a RoleBinding, like [publication.RoleOf].
func (s *Snapshot) PublicationRole(_ context.Context, u *unstructured.Unstructured) (*publication.Role, error) {
	if u.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}) {
		return nil, nil
	}
	var b rbacv1.RoleBinding
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b); err != nil {
		return nil, err
	}
	key := Key{Name: b.RoleRef.Name}
	if b.RoleRef.Kind != "ClusterRole" {
		key.Namespace = u.GetNamespace()
	}
	role := s.Roles[key]
	if role == nil {
		return nil, nil
	}
	out := &publication.Role{Aggregated: len(role.Aggregates) > 0}
	if len(role.Rules) > 0 { // a server decodes empty rules as nil, which affects the hash of the content
		out.Rules = role.Rules
	}
	return out, nil
}
