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

// addPublication adds a Publication. It ignores a Publication that the server ignores.
func (s *Snapshot) addPublication(u *unstructured.Unstructured) {
	stored, err := typed.Decode[v1alpha1.Publication](u)
	if err != nil {
		return
	}
	if p, err := publication.Parse(stored); err == nil {
		s.Publications[u.GetName()] = p
	}
}

// noSource is PublicationSource of the stack. A snapshot does not have the objects that Publications
// copy.
func noSource(
	context.Context, *publication.Source, schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	return nil, nil
}

// PublicationRole returns the role of a RoleBinding, as [publication.RoleOf] does.
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
	if len(role.Rules) > 0 { // a server returns no rules as nil, which the hash of the content depends on
		out.Rules = role.Rules
	}
	return out, nil
}
