// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gate asks the boundary about writes that have not met it: of callers who went
// around the gateway of a cluster whose kube-apiserver nobody may configure, from within or
// by the cloud's own identities.
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

// Name of the plugin.
const Name = "TenantGate"

// Options configure the plugin. All are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Off lets everything pass, Shadow too: what would be refused is told in the log, in
	// warnings, and to Observe.
	Off, Shadow bool
	// Denies returns why the boundary denies a request, "" where it does not. It MUST be
	// safe for concurrent use.
	Denies func(context.Context, authorizer.Attributes) string
	// Observe is told of each write that is, or would be, refused.
	Observe func()
}

// New returns the plugin. It judges what anybody writes, deletes or connects to in a tenant's
// namespace, and what tenants' callers do elsewhere: what others do there is none of the boundary's
// business. Reads it never sees.
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
	if err != nil && !p.isTenants(ctx, a.GetNamespace()) {
		return nil // somebody without a tenant, in no tenant's space
	}
	reason := p.Denies(ctx, attributesOf(a))
	if reason == "" {
		return nil
	}
	p.Observe()
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

// isSelfReview reports whether somebody asks about himself, which stores nothing.
func isSelfReview(a admission.Attributes) bool {
	kind := a.GetKind()
	return (kind.Group == "authorization.k8s.io" || kind.Group == "authentication.k8s.io") &&
		strings.HasPrefix(kind.Kind, "Self")
}

// isTenants reports whether a namespace is a tenant's, or may be.
func (p *plugin) isTenants(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	owner, err := p.Owner(ctx, namespace)
	return err != nil || !owner.IsSystem()
}

// attributesOf returns those of the request that a write is of, as its path said them. Of
// patches and of the deletion of a collection admission does not know; the boundary takes them
// for what they do to each object.
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
	if a.GetOperation() == admission.Create && a.GetSubresource() == "" { // it stood in the body
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
	return "create" // to connect, too
}
