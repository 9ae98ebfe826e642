// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package attribution records who asked for what: the creator on every object, and the user on pods
// and their templates, for schedulers that account by user (Apache YuniKorn).
//
// Both are written by the plugin alone, whatever a client sends; what a controller makes
// takes them from the object that it is made from, so that the chain Deployment,
// ReplicaSet, Pod tells the human.
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

// Name of the plugin.
const Name = "TenantAttribution"

// Options configure the plugin. Subject, Owner, Kinds, Metadata and Objects are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Authorizer is the server's. It decides whether a caller may keep the marks of another user in a
	// new object ([plugins.Marks]). If nil, no caller may.
	Authorizer authorizer.Authorizer
	Kinds      workload.Kinds
	// Metadata returns the metadata at least of what ownerReferences name. It should not need the
	// network.
	Metadata plugins.ObjectFunc
	// Objects returns all of it.
	Objects plugins.ObjectFunc
	// Creator records the creator.
	Creator bool
	// WorkloadUser is the other face.
	WorkloadUser WorkloadUser
}

// New returns the plugin. It governs every write of what is stored, subresources included.
func New(o Options) plugins.Interface {
	return &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		Options: o,
		marks: plugins.Marks{
			Authorizer: o.Authorizer,
			Subject:    o.Subject,
			Owner:      o.Owner,
		},
		valid: lru.New(remembered),
	}
}

type plugin struct {
	*admission.Handler
	Options
	marks plugins.Marks
	valid *lru.Cache
}

// Admit implements [admission.MutationInterface].
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.each(ctx, a, o, p.record, p.stamp)
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.each(ctx, a, o, p.checkCreator, p.checkUser)
}

// each does one thing for the creator and one for the user.
func (p *plugin) each(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces,
	creator func(ctx context.Context, c *caller, a admission.Attributes, was, is metav1.Object) error,
	workloadUser func(
		ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, o admission.ObjectInterfaces,
	) error,
) error {
	was, is, err := plugins.Stored(a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	_, describes := p.Kinds[a.GetKind().GroupKind()]
	describes = describes && !p.WorkloadUser.Off
	revision := a.GetKind().GroupKind() == revisionKind.GroupKind() && !p.WorkloadUser.Off
	if is == nil || !p.Creator && !describes && !revision {
		return nil
	}
	var c *caller
	if was == nil || describes || revision { // else it does not matter who it is
		c = p.caller(ctx, a.GetUserInfo())
	}
	if p.Creator {
		err = creator(ctx, c, a, was, is)
	}
	if err == nil && describes {
		err = workloadUser(ctx, c, a, is, o)
	}
	if err == nil && revision {
		err = p.checkRevision(ctx, c, a, o)
	}
	if err == nil && describes && workload.IsPod(a.GetKind().GroupKind()) {
		err = p.checkQueue(ctx, a, was, is)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

var errOwner = errors.New("cannot look up the owner of the object")

// maker returns what a new object is made from: what its controller ownerReference names in its own
// namespace, nil where that does not exist (any more) or is of a kind that describes no pods.
func (p *plugin) maker(
	ctx context.Context, find plugins.ObjectFunc, a admission.Attributes, is metav1.Object,
) (runtime.Object, schema.GroupVersionKind, error) {
	ref := metav1.GetControllerOfNoCopy(is)
	if ref == nil {
		return nil, schema.GroupVersionKind{}, nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if _, makes := p.Kinds[kind.GroupKind()]; !makes {
		return nil, kind, nil
	}
	for _, look := range []plugins.ObjectFunc{find, p.Objects} { // a cache may know one of that name that is gone
		owner, err := look(ctx, kind, a.GetNamespace(), ref.Name)
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
