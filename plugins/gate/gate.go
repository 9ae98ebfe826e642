// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gate checks writes that have not passed the boundary, in clusters whose kube-apiserver
// cannot be configured. Such a write comes from a caller that bypasses the gateway. The caller runs
// in the cluster, or has an identity of the cloud provider.
package gate

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/plugins"
)

// Name is the name of the plugin.
const Name = "TenantGate"

// Options configure the plugin. All fields are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Off admits every write. Shadow also admits every write, but reports each write that would
	// be denied in the log, in a warning and through OnDeny.
	Off, Shadow bool
	// DenyReason returns why the boundary denies a request, or "" if it does not. It MUST be safe
	// for concurrent use.
	DenyReason func(context.Context, authorizer.Attributes) string
	// OnDeny is called for each write that is denied, or would be denied in shadow mode.
	OnDeny func()
}

// New returns the plugin. It checks the create, update, delete and connect requests of callers
// outside the system tenant. Outside the tenants' namespaces, it does not check callers without a
// tenant. It never checks requests in which callers review their own access. It cannot check
// reads, for which admission is not called.
func New(o Options) admission.ValidationInterface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.Off || isSelfReview(a) || p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil && !p.mayBelongToTenant(ctx, a.GetNamespace()) {
		return nil // a caller without a tenant, outside the tenants' namespaces
	}
	reason := p.DenyReason(ctx, attributesOf(a))
	if reason == "" {
		return nil
	}
	p.OnDeny()
	if p.Shadow {
		klog.FromContext(ctx).Info("Would be refused by TenantGate", "reason", reason,
			"user", a.GetUserInfo().GetName(), "tenant", caller, "verb", verbOf(a),
			"resource", a.GetResource().GroupResource(), "subresource", a.GetSubresource(),
			"namespace", a.GetNamespace())
		warning.AddWarning(ctx, "", "would be refused by "+Name+", which is in shadow mode: "+reason)
		return nil
	}
	return admission.NewForbidden(a, errors.New(reason))
}

// isSelfReview reports whether a caller reviews its own access, which stores nothing.
func isSelfReview(a admission.Attributes) bool {
	kind := a.GetKind()
	return (kind.Group == "authorization.k8s.io" || kind.Group == "authentication.k8s.io") &&
		strings.HasPrefix(kind.Kind, "Self")
}

// mayBelongToTenant reports whether a namespace is not known to belong to the system tenant.
func (p *plugin) mayBelongToTenant(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	owner, err := p.Owner(ctx, namespace)
	return err != nil || !owner.IsSystem()
}

// attributesOf returns the authorization attributes of the request. Admission sees a patch as an
// update, and the deletion of a collection as deletions of its objects. The attributes therefore
// have the verb of each individual write.
func attributesOf(a admission.Attributes) authorizer.Attributes {
	r := a.GetResource()
	out := authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            verbOf(a),
		Namespace:       a.GetNamespace(),
		Name:            a.GetName(),
		ResourceRequest: true,
		APIGroup:        r.Group,
		APIVersion:      r.Version,
		Resource:        r.Resource,
		Subresource:     a.GetSubresource(),
	}
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" { // the path of a create request has no name
		out.Name = ""
		if r.Group == "" && r.Resource == "namespaces" {
			out.Namespace = ""
		}
	}
	return out
}

func verbOf(a admission.Attributes) string {
	switch a.GetOperation() {
	case admission.Update:
		return "update"
	case admission.Delete:
		return "delete"
	}
	return "create" // also for connect
}
