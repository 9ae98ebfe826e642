// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package attribution records the creator of every object, and the user of Pods and Pod templates.
// Schedulers such as Apache YuniKorn assign resource usage to this user.
//
// The owner of an object is the object that its controller ownerReference names. A Pod that a
// controller creates gets the user of its owner. Any object that a controller creates also names
// the creator of its owner, see [tenant.OnBehalfOfAnnotation]. A Pod that a Deployment created
// through a ReplicaSet therefore names the user that created the Deployment.
//
// In general, only the server sets these annotations. Configured callers may supply the user. A
// caller that may impersonate a user may name that user in a new object. Callers of the system
// tenant may copy the user from the template of an object's owner.
package attribution

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// Name is the name of the plugin.
const Name = "TenantAttribution"

// Options configure the plugin. Subject, Owner, Kinds, Metadata and Objects are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Authorizer is the server's authorizer. It decides whether a caller may set annotations that
	// name another user on a new object, see [plugins.ImpersonationCheck]. If nil, no caller may
	// set them.
	Authorizer authorizer.Authorizer
	Kinds      workload.Kinds
	// Metadata returns at least the metadata of an object that an ownerReference names. It should
	// not need the network.
	Metadata plugins.ObjectFunc
	// Objects returns whole objects that ownerReferences name.
	Objects plugins.ObjectFunc
	// Creator enables the annotations that record the creator.
	Creator bool
	// WorkloadUser configures the record of the user.
	WorkloadUser WorkloadUser
}

// New returns the plugin. It checks every create and update of a stored object and of its
// subresources.
func New(o Options) plugins.Interface {
	return &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		Options: o,
		impersonation: plugins.ImpersonationCheck{
			Authorizer: o.Authorizer,
			Subject:    o.Subject,
			Owner:      o.Owner,
		},
		parsedValues: lru.New(maxCachedValues),
	}
}

type plugin struct {
	*admission.Handler
	Options
	impersonation plugins.ImpersonationCheck
	parsedValues  *lru.Cache
}

// Admit implements [admission.MutationInterface].
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.checkAnnotations(ctx, a, o, p.setCreator, p.setUser)
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.checkAnnotations(ctx, a, o, p.checkCreator, p.checkUser)
}

// checkAnnotations calls creator for the annotations that record the creator, and workloadUser for
// the annotations that record the user.
func (p *plugin) checkAnnotations(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
	creator func(ctx context.Context, c *caller, a admission.Attributes, old, obj metav1.Object) error,
	workloadUser func(
		ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, o admission.ObjectInterfaces,
	) error,
) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	_, hasTemplates := p.Kinds[a.GetKind().GroupKind()]
	hasTemplates = hasTemplates && !p.WorkloadUser.Off
	revision := a.GetKind().GroupKind() == revisionKind.GroupKind() && !p.WorkloadUser.Off
	if obj == nil || !p.Creator && !hasTemplates && !revision {
		return nil
	}
	var c *caller
	if old == nil || hasTemplates || revision { // otherwise, the caller is not needed
		c = p.caller(ctx, a.GetUserInfo())
	}
	if p.Creator {
		err = creator(ctx, c, a, old, obj)
	}
	if err == nil && hasTemplates {
		err = workloadUser(ctx, c, a, obj, o)
	}
	if err == nil && revision {
		err = p.checkRevision(ctx, c, a, o)
	}
	if err == nil && hasTemplates && workload.IsPod(a.GetKind().GroupKind()) {
		err = p.checkQueue(ctx, a, old, obj)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

var errOwner = errors.New("cannot look up the owner of the object")

// ownerOf returns the owner of a new object, and the owner's kind. The owner is the object in the
// same namespace that the controller ownerReference names. The owner is nil if that object does
// not exist or its kind has no Pod templates.
func (p *plugin) ownerOf(
	ctx context.Context, find plugins.ObjectFunc, a admission.Attributes, obj metav1.Object,
) (runtime.Object, schema.GroupVersionKind, error) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return nil, schema.GroupVersionKind{}, nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if _, ok := p.Kinds[kind.GroupKind()]; !ok {
		return nil, kind, nil
	}
	for _, lookup := range []plugins.ObjectFunc{find, p.Objects} { // a cache may still have a deleted object
		owner, err := lookup(ctx, kind, a.GetNamespace(), ref.Name)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to look up the owner of a new object", "kind", kind,
				"namespace", a.GetNamespace(), "name", ref.Name)
			return nil, kind, errOwner
		}
		if owner == nil {
			break
		}
		if m, err := meta.Accessor(owner); err == nil && m.GetUID() == ref.UID && m.GetNamespace() == a.GetNamespace() {
			return owner, kind, nil
		}
	}
	return nil, kind, nil
}
