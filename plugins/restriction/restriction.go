// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package restriction keeps resources that govern machines out of tenant space: by default nodes
// and DaemonSets, in every API version.
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

// Name of the plugin.
const Name = "TenantRestriction"

var (
	errTenant = errors.New("a tenant may not create or update this resource")
	errSpace  = errors.New("this resource may not be created or updated in a tenant's namespace")
)

// Options configure the plugin. Subject and Owner are required.
type Options struct {
	// Resources that are kept out, in every version, their subresources included.
	Resources []schema.GroupResource
	// ExemptSystem lets callers of the system tenant create and update them in a tenant's namespace.
	ExemptSystem bool
	Subject      plugins.SubjectFunc
	Owner        plugins.OwnerFunc
}

// New returns the plugin. It refuses to create or update the resources by a tenant's caller, or one
// whose tenant is not known, anywhere; and by anybody in a tenant's namespace, but for the status
// and the finalizers of what is there already, and what Tenants give. Deleting is never refused.
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
	if p.ExemptSystem || a.GetNamespace() == "" || isUpkeep(a) || p.Subject.IsManager(ctx, a) {
		return nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case owner != tenant.System():
		return admission.NewForbidden(a, errSpace)
	}
	return nil
}

// isUpkeep reports whether an update writes the status, or leaves alone what the object requests.
func isUpkeep(a admission.Attributes) bool {
	return a.GetOperation() == admission.Update && a.GetSubresource() == "status" || plugins.IsUpkeep(a)
}
