// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

// objects contains the objects of a scenario, keyed by kind, namespace and name. It implements
// serviceaccount.Objects, which reads the objects to which service account tokens are bound.
type objects map[[3]string][]byte

func objectsOf(s *Scenario) (objects, error) {
	rawObjects, err := ClusterObjects(s)
	if err != nil {
		return nil, err
	}
	all := objects{}
	for _, raw := range rawObjects {
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw.Raw, &m); err != nil {
			return nil, err
		}
		all[[3]string{m.Kind, m.Namespace, m.Name}] = raw.Raw
	}
	return all, nil
}

// get decodes an object. If the object has no UID, get sets a UID that depends on its name.
func get[T any](o objects, kind, namespace, name string, meta func(*T) *metav1.ObjectMeta) (*T, error) {
	raw, found := o[[3]string{kind, namespace, name}]
	if !found {
		return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	into := new(T)
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, err
	}
	if m := meta(into); m.UID == "" {
		m.UID = types.UID("uid-of-" + name)
	}
	return into, nil
}

func (o objects) GetServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return get(o, "ServiceAccount", namespace, name, func(a *corev1.ServiceAccount) *metav1.ObjectMeta {
		return &a.ObjectMeta
	})
}

func (o objects) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return get(o, "Pod", namespace, name, func(p *corev1.Pod) *metav1.ObjectMeta { return &p.ObjectMeta })
}

func (o objects) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return get(o, "Secret", namespace, name, func(s *corev1.Secret) *metav1.ObjectMeta { return &s.ObjectMeta })
}

func (o objects) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return get(o, "Node", "", name, func(n *corev1.Node) *metav1.ObjectMeta { return &n.ObjectMeta })
}

// Object implements [lookup.Controllers].
func (o objects) Object(
	_ context.Context, kind schema.GroupVersionKind, namespace, name string,
) (runtime.Object, error) {
	raw, found := o[[3]string{kind.Kind, namespace, name}]
	if !found {
		return nil, nil
	}
	return Decode(&runtime.RawExtension{Raw: raw})
}

// Metadata implements [lookup.Controllers].
func (o objects) Metadata(
	ctx context.Context, kind schema.GroupVersionKind, namespace, name string,
) (runtime.Object, error) {
	return o.Object(ctx, kind, namespace, name)
}

// source returns the object that a Publication copies, or nil if it does not exist.
func (o objects) source(
	_ context.Context, from *publication.Source, _ schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	raw, found := o[[3]string{from.Kind.Kind, from.Namespace, from.Name}]
	if !found {
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

// role returns the role of a RoleBinding, like [publication.RoleOf]. It reads the objects of the
// scenario, because the snapshot contains no roles if the delegate is not RBAC.
func (o objects) role(ctx context.Context, u *unstructured.Unstructured) (*publication.Role, error) {
	roles := simulator.NewSnapshot()
	for key, raw := range o {
		if key[0] != "ClusterRole" && key[0] != "Role" {
			continue
		}
		role := &unstructured.Unstructured{}
		if err := role.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		if err := roles.Add(role); err != nil {
			return nil, err
		}
	}
	return roles.PublicationRole(ctx, u)
}

// isDefaultPriority reports whether a PriorityClass is the cluster's default.
func (o objects) isDefaultPriority(name string) bool {
	class, err := get(o, "PriorityClass", "", name, func(c *schedulingv1.PriorityClass) *metav1.ObjectMeta {
		return &c.ObjectMeta
	})
	return err == nil && class.GlobalDefault
}

// uid implements Fixture.UID.
func (o objects) uid(ctx context.Context, namespace, name string) (string, error) {
	account, err := o.GetServiceAccount(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return string(account.UID), nil
}
