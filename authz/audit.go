// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"

	"k8s.io/apiserver/pkg/audit"
)

// The keys of the annotations that the boundary writes into audit events. The page
// docs/reference/audit-annotations.md is written from the comments.
const (
	// DecisionAuditAnnotation specifies the decision of the boundary: delegate, allow, deny or
	// shadow-deny. Every request that the boundary has decided has it.
	DecisionAuditAnnotation = "authorization.kubetenant.dev/decision"
	// ReasonAuditAnnotation specifies the reason of the decision. It is written if there is a reason.
	ReasonAuditAnnotation = "authorization.kubetenant.dev/reason"
	// ReasonCodeAuditAnnotation specifies the code of the reason, such as NamespaceNotOwned. The code
	// stays the same if the text changes. It is written if there is a reason.
	ReasonCodeAuditAnnotation = "authorization.kubetenant.dev/reason-code"
	// CallerTenantAuditAnnotation specifies the tenant of the caller. It is written if the caller has
	// a tenant.
	CallerTenantAuditAnnotation = "authorization.kubetenant.dev/caller-tenant"
	// OwnerTenantAuditAnnotation specifies the tenant that owns the requested namespace or object. It
	// is written if the request has such an owner.
	OwnerTenantAuditAnnotation = "authorization.kubetenant.dev/owner-tenant"
	// PathTenantAuditAnnotation specifies the tenant in the path of the request. It is written for a
	// path /tenants/<id>, because the URI of the audit event does not contain it.
	PathTenantAuditAnnotation = "authorization.kubetenant.dev/path-tenant"
)

// annotate writes the decision about the request itself into its audit event.
func annotate(ctx context.Context, path tenantPath, o Outcome) {
	kv := []string{DecisionAuditAnnotation, string(o.Verdict)}
	if o.Reason != ReasonNone {
		kv = append(kv, ReasonAuditAnnotation, o.Reason.String(), ReasonCodeAuditAnnotation, o.Reason.Code())
	}
	if !o.Caller.IsZero() {
		kv = append(kv, CallerTenantAuditAnnotation, o.Caller.String())
	}
	if !o.Owner.IsZero() {
		kv = append(kv, OwnerTenantAuditAnnotation, o.Owner.String())
	}
	if path != (tenantPath{}) {
		kv = append(kv, PathTenantAuditAnnotation, path.String())
	}
	audit.AddAuditAnnotations(ctx, kv...)
}
