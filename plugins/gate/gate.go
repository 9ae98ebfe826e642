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
	// Off admits every write. Shadow does so too, but reports each write that would be denied in
	// the log, in a warning and to Observe.
	Off, Shadow bool
	// DenyReason returns why the boundary denies a request, or "" if it does not. It MUST be safe for
	// concurrent use.
	DenyReason func(context.Context, authorizer.Attributes) string
	// OnDeny is called for each write that is denied, or would be denied in shadow mode.
	OnDeny func()
}

// New returns the plugin. It checks every write, delete and connect request in a tenant's
// namespace, and all such requests of tenants' callers elsewhere. The boundary does not limit other
// requests. Admission never sees reads.
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

// mayBelongToTenant reports whether a namespace belongs to a tenant, or may belong to one.
func (p *plugin) mayBelongToTenant(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	owner, err := p.Owner(ctx, namespace)
	return err != nil || !owner.IsSystem()
}

// attributesOf returns the authorization attributes of the request, as in its path. Admission
// cannot recognize a patch or the deletion of a collection. The boundary checks their effect on
// each object instead.
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
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" { // the name was in the body
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
