// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package restriction denies the creation and update of resources that control machines, by
// tenants' callers and in tenants' namespaces. By default, these are nodes and DaemonSets, in every
// API version.
package restriction

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantRestriction"

var (
	errTenant    = errors.New("a tenant may not create or update this resource")
	errNamespace = errors.New("this resource may not be created or updated in a tenant's namespace")
)

// Options configure the plugin. Subject and Owner are required.
type Options struct {
	// Resources are the denied resources, in every version and with their subresources.
	Resources []schema.GroupResource
	// ExemptSystem allows callers of the system tenant to create and update the resources in a
	// tenant's namespace.
	ExemptSystem bool
	Subject      plugins.SubjectFunc
	Owner        plugins.OwnerFunc
}

// New returns the plugin. Callers outside the system tenant may not create or update the resources
// anywhere. In a tenant's namespace, callers of the system tenant may not do so either, with two
// exceptions. They may update the status and the finalizers, and the server itself may write the
// objects of Tenants. Deletion is always allowed.
func New(o Options) admission.ValidationInterface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !slices.Contains(p.Resources, a.GetResource().GroupResource()) {
		return nil
	}
	if !p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return admission.NewForbidden(a, errTenant)
	}
	if p.ExemptSystem || a.GetNamespace() == "" || isMaintenance(a) || p.Subject.IsManager(ctx, a) {
		return nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case owner != tenant.System():
		return admission.NewForbidden(a, errNamespace)
	}
	return nil
}

// isMaintenance reports whether an update writes the status, or changes only the fields of
// [plugins.IsMaintenance].
func isMaintenance(a admission.Attributes) bool {
	return a.GetOperation() == admission.Update && a.GetSubresource() == "status" || plugins.IsMaintenance(a)
}
