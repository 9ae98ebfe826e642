// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package policy holds what a tenant's objects may ask of the cluster to what the operator offers
// that tenant: the registries of images and how they are pulled, the classes of ingresses, gateways
// and storage, the hosts that are served, and the types of Services.
//
// Priority and runtime classes are among what says where pods run, which is
// the placement package's.
package policy

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantPolicy"

// Options configure the plugin. All are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	Kinds   workload.Kinds
	// Rules returns what holds for a tenant, by the names of [Fields], nil where nothing does. The
	// result MUST NOT be changed afterwards.
	Rules func(tenant.ID) plugins.Rules
}

// New returns the plugin. It governs what is created and updated in tenant space, whoever
// writes; but kubelets' mirror pods pass. An update that asks for nothing else than the
// object did before passes.
func New(o Options) admission.ValidationInterface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Validate implements [admission.ValidationInterface]. The error names all fields that are refused.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	read := p.reader(a)
	if read == nil || a.GetNamespace() == "" {
		return nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if owner.IsSystem() {
		return nil
	}
	rules := p.Rules(owner)
	if rules == nil || p.Subject.IsKubelet(ctx, a) {
		return nil
	}
	if err := check(a, o, read, owner, rules); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func check(
	a admission.Attributes, o admission.ObjectInterfaces, read reader, owner tenant.ID, rules plugins.Rules,
) error {
	type said struct{ field, value string }
	before := map[said]bool{}
	if a.GetOperation() == admission.Update {
		old, err := read(a.GetOldObject(), o)
		if err != nil && !workload.IsLeaving(a) {
			return fmt.Errorf("old object: %w", err)
		}
		for _, i := range old {
			before[said{i.field, i.value}] = true
		}
	}
	items, err := read(a.GetObject(), o)
	if err != nil {
		if workload.IsLeaving(a) {
			return nil
		}
		return err
	}
	var refused plugins.Refusals
	for _, i := range items {
		rule := rules[i.field]
		if before[said{i.field, i.value}] || rule.Allows(func(entry string) bool { return i.matches(entry, owner) }) {
			continue
		}
		refused.Add(refusal(i, rule, owner))
	}
	return refused.Err()
}

// refusal says what of an item is not allowed, and what is. The list is the tenant's own.
func refusal(i item, rule plugins.Rule, owner tenant.ID) *field.Error {
	var offered []string
	for _, entry := range rule.Allowed {
		if own, is := expand(entry, owner); is && rule.Policy == plugins.AllowListed {
			offered = append(offered, own)
		}
	}
	detail := "admission.policy." + i.field + " allows "
	if len(offered) == 0 {
		detail += "none"
	} else {
		detail += strings.Join(offered, ", ")
	}
	if i.value == "" {
		return field.Required(field.NewPath(i.path), detail)
	}
	return &field.Error{
		Type:     field.ErrorTypeNotSupported,
		Field:    i.path,
		BadValue: i.value,
		Detail:   detail,
	}
}
