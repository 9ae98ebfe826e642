// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
)

// earlier contains the old value of each template, by the path of the template in the new object.
type earlier map[string]*string

// wanted returns the value that a new Pod or template must have, or nil if it must have none.
func (p *plugin) wanted(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (*string, error) {
	value := supplied(d.meta)
	if c.controller && value != nil && p.maySupply(c, *value) == nil {
		return value, nil // the fast path of a ReplicaSet's Pods does not encode the caller
	}
	mine, err := own(c)
	switch {
	case err != nil:
		return nil, err
	case value == nil:
		if value, inherits, err := p.inherits(ctx, c, a, is, d, o); inherits || err != nil {
			return value, err
		}
		return &mine, nil
	case *value == mine: // the server calls the plugins again after a webhook has changed the object
		return value, nil
	}
	refusal := p.maySupply(c, *value)
	if refusal == nil {
		return value, nil
	}
	if isOwners, err := p.isOwners(ctx, c, a, is, d, o); err != nil || isOwners {
		return value, err
	}
	switch {
	case a.GetOperation() == admission.Create && p.mayKeepUser(ctx, c, a, *value):
		return value, nil
	case !c.controller && p.WorkloadUser.Restamp:
		return &mine, nil
	}
	return nil, refusal
}

// mayKeepUser reports whether the caller may keep a user in a new object. The value names a tenant
// only in its groups, so the user must belong to the owner of the namespace.
func (p *plugin) mayKeepUser(ctx context.Context, c *caller, a admission.Attributes, value string) bool {
	info, err := p.parse(value)
	if err != nil || a.GetNamespace() == "" {
		return false
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	return err == nil && p.marks.MayKeep(ctx, c, plugins.Person{User: info.User, Groups: info.Groups}, owner)
}

// isOwners reports whether a caller of the system tenant copied the value from the live owner of
// the new object. A controller compares the template of the new object with the owner's template.
// If the server changed the value, the controller would create the object again without end. A
// tenant's caller may not copy a value, because it could name any owner.
func (p *plugin) isOwners(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (bool, error) {
	if !c.controller && (!c.id.IsSystem() || d.path == "") {
		return false, nil
	}
	owners, err := p.owners(ctx, a, is, d, o)
	return err == nil && owners.value != nil && same(owners.value, supplied(d.meta)), err
}

// inherits returns the value that a new Pod or template without a value gets from its owner, and
// reports whether the owner determines the value. A Pod gets its owner's value. A template stays
// without a value if its controller compares it with the owner's template.
func (p *plugin) inherits(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (value *string, does bool, err error) {
	isTemplate := d.path != ""
	if !c.controller && (!c.id.IsSystem() || !isTemplate) {
		return nil, false, nil
	}
	owners, err := p.owners(ctx, a, is, d, o)
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

// owners returns the value in the template of a new object's owner.
func (p *plugin) owners(
	ctx context.Context, a admission.Attributes, is metav1.Object, d described, o admission.ObjectInterfaces,
) (inherited, error) {
	owner, kind, err := p.maker(ctx, p.Objects, a, is)
	if err != nil || owner == nil {
		return inherited{}, err
	}
	templates, err := p.Kinds.Read(owner, kind, o)
	if err != nil || templates == nil {
		return inherited{found: true}, err
	}
	for _, t := range templates.Templates {
		// If the owner has several templates, the value must be that of the new object.
		if value := supplied(t.Meta); value != nil {
			if has := supplied(d.meta); len(templates.Templates) == 1 || has != nil && *has == *value {
				return inherited{true, value}, nil
			}
		}
	}
	return inherited{found: true}, nil
}
