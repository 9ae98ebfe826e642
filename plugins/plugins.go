// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package plugins holds what the admission plugins have in common. Each plugin has a folder of its
// own and knows the caller's tenant and the owner of a namespace through function values only.
//
// Aggregated API servers never pass through kube-apiserver's admission: what they store is not
// governed by these plugins.
package plugins

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// SubjectFunc returns the tenant of an admission request's user. An error, whatever it is, means
// that the tenant is not known: such a caller MUST NOT be taken for the system tenant's.
type SubjectFunc func(context.Context, user.Info) (tenant.ID, error)

// OwnerFunc returns the tenant that owns a namespace: the system tenant where it has no label, the
// zero ID where it is nobody's or does not exist. An error means that it is not known: the
// request MUST be refused.
type OwnerFunc func(ctx context.Context, namespace string) (tenant.ID, error)

// ObjectFunc returns an object that is stored, as a controller's ownerReference names it, nil where
// there is none. An error means that it is not known: the request MUST be refused. The object may
// be of its version, unstructured, or where the function says so a [metav1.PartialObjectMetadata],
// and MUST NOT be changed.
type ObjectFunc func(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)

// IsSystem reports whether u is known to be the system tenant's.
func (subject SubjectFunc) IsSystem(ctx context.Context, u user.Info) bool {
	id, err := subject(ctx, u)
	return err == nil && id.IsSystem()
}

// IsManager reports whether the server itself writes, as the one who keeps what comes of Tenants.
func (subject SubjectFunc) IsManager(ctx context.Context, a admission.Attributes) bool {
	return a.GetUserInfo().GetName() == tenant.ManagerUser && subject.IsSystem(ctx, a.GetUserInfo())
}

// IsKubelet reports whether a node writes a Pod: which it may create, NodeRestriction says.
func (subject SubjectFunc) IsKubelet(ctx context.Context, a admission.Attributes) bool {
	kind := a.GetKind()
	return kind.Group == "" && kind.Kind == "Pod" && slices.Contains(a.GetUserInfo().GetGroups(), user.NodesGroup) &&
		subject.IsSystem(ctx, a.GetUserInfo())
}

// MakesClaims reports whether u, the system tenant's, is a controller that makes claims of
// templates (k8s.io/kubernetes pkg/controller/{statefulset,volume/ephemeral}, v1.37.1).
func MakesClaims(u user.Info) bool {
	return slices.Contains([]string{
		"system:serviceaccount:kube-system:statefulset-controller",
		"system:serviceaccount:kube-system:ephemeral-volume-controller", user.KubeControllerManager,
	}, u.GetName())
}

// EmptiesNamespaces reports whether u, the system tenant's, is a controller that deletes the content
// of a namespace that is being deleted (k8s.io/kubernetes pkg/controller/{namespace,garbagecollector},
// v1.37.1).
func EmptiesNamespaces(u user.Info) bool {
	return slices.Contains([]string{
		"system:serviceaccount:kube-system:namespace-controller",
		"system:serviceaccount:kube-system:generic-garbage-collector", user.KubeControllerManager,
	}, u.GetName())
}

// Interface is both halves of a plugin that mutates.
type Interface interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// IsVirtual reports whether the object of a write is not stored as it is sent: what is put into it
// would go nowhere.
func IsVirtual(a admission.Attributes) bool {
	switch kind := a.GetKind(); kind.Group {
	case "":
		return kind.Kind == "Binding"
	case "autoscaling":
		return kind.Kind == "Scale"
	case "policy":
		return kind.Kind == "Eviction"
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	}
	return false
}

// ErrObject says that a write's object is not of the kind that the write names.
var ErrObject = errors.New("the request has no object of the expected kind")

// Versioned returns an object as T, the type of kind: a server's internal object is converted, an
// unstructured one decoded. The result may be obj itself and MUST NOT be changed.
func Versioned[T any](obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) (*T, error) {
	switch obj := obj.(type) {
	case nil:
		return nil, ErrObject
	case runtime.Unstructured:
		out := new(T)
		return out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.UnstructuredContent(), out)
	default:
		if is, ok := any(obj).(*T); ok {
			return is, nil
		}
		converted, err := admission.ConvertToGVK(obj, kind, o)
		if err != nil {
			return nil, err
		}
		out, ok := any(converted).(*T)
		if !ok {
			return nil, ErrObject
		}
		return out, nil
	}
}
