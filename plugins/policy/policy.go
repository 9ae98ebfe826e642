// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package policy limits the values that a tenant's objects may have to those that the operator
// configures for the tenant. It checks image registries and pull policies, the classes of
// ingresses, gateways and storage, hosts, and the types of Services.
//
// Priority classes and runtime classes affect where Pods run, so package placement checks them.
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

// Name is the name of the plugin.
const Name = "TenantPolicy"

// Options configure the plugin. All fields are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	Kinds   workload.Kinds
	// Rules returns the rules for a tenant, keyed by field name, such as [Hosts]. If the result
	// is nil, nothing is checked. The result MUST NOT be changed afterwards.
	Rules func(tenant.ID) plugins.Rules
}

// New returns the plugin. It checks all objects that are created or updated in a tenant's
// namespace, for every caller, except the Pods that kubelets write. An update may retain values
// that the object had before.
func New(o Options) admission.ValidationInterface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Validate implements [admission.ValidationInterface]. The error names all denied fields.
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
		if err != nil && !workload.IsFinalizing(a) {
			return fmt.Errorf("old object: %w", err)
		}
		for _, i := range old {
			before[said{i.field, i.value}] = true
		}
	}
	items, err := read(a.GetObject(), o)
	if err != nil {
		if workload.IsFinalizing(a) {
			return nil
		}
		return err
	}
	var errs plugins.Errors
	for _, i := range items {
		rule := rules[i.field]
		if before[said{i.field, i.value}] || rule.Allows(func(entry string) bool { return i.matches(entry, owner) }) {
			continue
		}
		errs.Add(deniedError(i, rule, owner))
	}
	return errs.Err()
}

// deniedError returns an error with the denied value and the allowed values. The allowed values are
// not secret, because they are configured for this tenant.
func deniedError(i item, rule plugins.Rule, owner tenant.ID) *field.Error {
	var allowed []string
	for _, entry := range rule.Allowed {
		if expanded, ok := expand(entry, owner); ok && rule.Policy == plugins.AllowListed {
			allowed = append(allowed, expanded)
		}
	}
	detail := "admission.policy." + i.field + " allows "
	if len(allowed) == 0 {
		detail += "none"
	} else {
		detail += strings.Join(allowed, ", ")
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
