// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package plugins contains the code that the admission plugins share. Each plugin has its own
// folder. A plugin receives the caller's tenant and the owner of a namespace through function
// values.
//
// Requests to aggregated API servers do not pass the admission of kube-apiserver. The plugins
// therefore do not check the objects that aggregated API servers store.
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

// SubjectFunc returns the tenant of the user of an admission request. If it returns an error, the
// tenant is unknown, and the caller MUST NOT be treated as a caller of the system tenant.
type SubjectFunc func(context.Context, user.Info) (tenant.ID, error)

// OwnerFunc returns the tenant that owns a namespace. A namespace without [tenant.Label] belongs to
// the system tenant. The result is the zero ID if the namespace is unowned or does not exist. If
// the function returns an error, the owner is unknown, and the request MUST be denied.
type OwnerFunc func(ctx context.Context, namespace string) (tenant.ID, error)

// ObjectFunc returns the stored object that a controller's ownerReference names, or nil if the
// object does not exist. If the function returns an error, the request MUST be denied.
//
// The object has its versioned type or is unstructured. The documentation of a function specifies
// whether it may return only the metadata of the object. The object MUST NOT be changed.
type ObjectFunc func(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)

// IsSystem reports whether u is known to belong to the system tenant.
func (subject SubjectFunc) IsSystem(ctx context.Context, u user.Info) bool {
	id, err := subject(ctx, u)
	return err == nil && id.IsSystem()
}

// IsManager reports whether the server itself sends the request, as [tenant.ManagerUser].
func (subject SubjectFunc) IsManager(ctx context.Context, a admission.Attributes) bool {
	return a.GetUserInfo().GetName() == tenant.ManagerUser && subject.IsSystem(ctx, a.GetUserInfo())
}

// IsKubelet reports whether a node writes a Pod. NodeRestriction decides which Pods a node may
// create.
func (subject SubjectFunc) IsKubelet(ctx context.Context, a admission.Attributes) bool {
	kind := a.GetKind()
	return kind.Group == "" && kind.Kind == "Pod" && slices.Contains(a.GetUserInfo().GetGroups(), user.NodesGroup) &&
		subject.IsSystem(ctx, a.GetUserInfo())
}

// CreatesClaims reports whether u is a controller that creates PersistentVolumeClaims from
// templates (k8s.io/kubernetes pkg/controller/{statefulset,volume/ephemeral}, v1.37.1). u MUST
// belong to the system tenant.
func CreatesClaims(u user.Info) bool {
	return slices.Contains([]string{
		"system:serviceaccount:kube-system:statefulset-controller",
		"system:serviceaccount:kube-system:ephemeral-volume-controller", user.KubeControllerManager,
	}, u.GetName())
}

// EmptiesNamespaces reports whether u is a controller that deletes the objects in a namespace that
// is being deleted (k8s.io/kubernetes pkg/controller/{namespace,garbagecollector}, v1.37.1). u MUST
// belong to the system tenant.
func EmptiesNamespaces(u user.Info) bool {
	return slices.Contains([]string{
		"system:serviceaccount:kube-system:namespace-controller",
		"system:serviceaccount:kube-system:generic-garbage-collector", user.KubeControllerManager,
	}, u.GetName())
}

// Interface combines the interfaces of a mutating and a validating plugin.
type Interface interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// IsVirtual reports whether the object of a write only requests an action and is not stored itself.
// Examples are Bindings, Scales, Evictions and reviews. Changes to the metadata of such an object
// have no effect.
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

// ErrObject reports that a write has no object, or an object of an unexpected type.
var ErrObject = errors.New("the request has no object of the expected kind")

// Versioned returns an object as T, the Go type of kind. It converts an internal object and decodes
// an unstructured object. The result may be obj itself and MUST NOT be changed.
func Versioned[T any](obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) (*T, error) {
	switch obj := obj.(type) {
	case nil:
		return nil, ErrObject
	case runtime.Unstructured:
		out := new(T)
		return out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.UnstructuredContent(), out)
	default:
		if typed, ok := any(obj).(*T); ok {
			return typed, nil
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
