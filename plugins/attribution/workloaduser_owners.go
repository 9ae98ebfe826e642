// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
)

// oldValues contains the old value of each template, keyed by the path of the template in the new
// object.
type oldValues map[string]*string

// requiredValue returns the value that a new Pod or template must have. It returns nil if a
// template has no value and must not get one.
func (p *plugin) requiredValue(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) (*string, error) {
	value := userValue(d.meta)
	if c.controller && value != nil && p.maySupply(c, *value) == nil {
		return value, nil // fast path for the Pods of a ReplicaSet, which does not encode the caller
	}
	callerUser, err := callerValue(c)
	switch {
	case err != nil:
		return nil, err
	case value == nil:
		if value, inherits, err := p.inheritedValue(ctx, c, a, obj, d, o); inherits || err != nil {
			return value, err
		}
		return &callerUser, nil
	case *value == callerUser: // the server calls the plugins again after a webhook has changed the object
		return value, nil
	}
	refusal := p.maySupply(c, *value)
	if refusal == nil {
		return value, nil
	}
	if isOwners, err := p.isOwnerValue(ctx, c, a, obj, d, o); err != nil || isOwners {
		return value, err
	}
	switch {
	case a.GetOperation() == admission.Create && p.mayRetainUser(ctx, c, a, *value):
		return value, nil
	case !c.controller && p.WorkloadUser.Restamp:
		return &callerUser, nil
	}
	return nil, refusal
}

// mayRetainUser reports whether the caller may set a user on a new object. The value has no field
// for the tenant, so the user is treated as a user of the tenant that owns the namespace.
func (p *plugin) mayRetainUser(ctx context.Context, c *caller, a admission.Attributes, value string) bool {
	info, err := p.parse(value)
	if err != nil || a.GetNamespace() == "" {
		return false
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	return err == nil &&
		p.impersonation.MayImpersonate(ctx, c, plugins.Identity{User: info.User, Groups: info.Groups}, owner)
}

// isOwnerValue reports whether a caller of the system tenant copied the value from the existing
// owner of the new object. A controller compares the template of the new object with the owner's
// template. If the server changed the value, the controller would create the object again and
// again. A tenant's caller may not copy a value, because the caller could name any owner.
func (p *plugin) isOwnerValue(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) (bool, error) {
	if !c.controller && (!c.id.IsSystem() || d.path == "") {
		return false, nil
	}
	owners, err := p.ownerValue(ctx, a, obj, d, o)
	return err == nil && owners.value != nil && sameValue(owners.value, userValue(d.meta)), err
}

// inheritedValue returns the value that a new Pod or template without a value gets from its
// owner, and reports whether the owner determines the value. A Pod gets its owner's value. A
// template that a configured controller creates gets no value, because the controller compares
// the template with the owner's template. A template from another caller of the system tenant
// gets no value if the owner has none.
func (p *plugin) inheritedValue(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) (value *string, ok bool, err error) {
	isTemplate := d.path != ""
	if !c.controller && (!c.id.IsSystem() || !isTemplate) {
		return nil, false, nil
	}
	owners, err := p.ownerValue(ctx, a, obj, d, o)
	switch {
	case err != nil:
		return nil, false, err
	case isTemplate && owners.found && (c.controller || owners.value == nil):
		return nil, true, nil
	case !isTemplate && owners.value != nil:
		return owners.value, true, nil
	}
	return nil, false, nil
}

// inherited is the value in the template of an object's owner. found reports whether the owner
// exists.
type inherited struct {
	found bool
	value *string
}

// ownerValue returns the value in the template of a new object's owner. If the owner has several
// templates, it returns only a value that the new object already has.
func (p *plugin) ownerValue(
	ctx context.Context, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) (inherited, error) {
	owner, kind, err := p.ownerOf(ctx, p.Objects, a, obj)
	if err != nil || owner == nil {
		return inherited{}, err
	}
	templates, err := p.Kinds.Read(owner, kind, o)
	if err != nil || templates == nil {
		return inherited{found: true}, err
	}
	for _, t := range templates.Templates {
		if value := userValue(t.Meta); value != nil {
			if current := userValue(d.meta); len(templates.Templates) == 1 || current != nil && *current == *value {
				return inherited{true, value}, nil
			}
		}
	}
	return inherited{found: true}, nil
}
