// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// AuditEventMargin is the period after the creation of a namespace or Tenant object in which no
// audit event is attributed to it. An event in this period may belong to a deleted object of the
// same name, because creation times have a resolution of one second and the clocks of servers
// differ.
const AuditEventMargin = 5 * time.Second

// auditEventKey marks the context of lookups that attribute an audit event to a tenant. Its value
// is the time of the event. These lookups must use only the cache.
type auditEventKey struct{}

func isCachedOnly(ctx context.Context) bool { return ctx.Value(auditEventKey{}) != nil }

func auditEventContext(at time.Time) context.Context {
	return context.WithValue(context.Background(), auditEventKey{}, at)
}

// eventMayPrecede reports whether ctx belongs to an audit event that may be older than ns.
func eventMayPrecede(ctx context.Context, ns *corev1.Namespace) bool {
	at, ok := ctx.Value(auditEventKey{}).(time.Time)
	return ok && MayPrecede(at, ns.CreationTimestamp.Time)
}

// MayPrecede reports whether an audit event at the given time may be older than a namespace or
// Tenant object with the given creation time. It also returns true within [AuditEventMargin] after
// the creation.
func MayPrecede(at, created time.Time) bool {
	return !created.IsZero() && !at.After(created.Add(AuditEventMargin))
}

// AuditEventTenants returns the tenants of the users in an audit event. The time of the event is
// at. The first tenant is that of the authenticated caller. The second is that of the
// impersonated user as, or of the caller if as is nil. The ID of an unknown tenant is zero.
// Lookups use only the cache. The tenant of a service account is unknown if its namespace may
// have been created after the event.
//
// Security: the server that wrote the event MUST have checked that the caller may impersonate as.
func (b *Boundary) AuditEventTenants(caller, as user.Info, at time.Time) (authenticated, acting tenant.ID) {
	ctx := auditEventContext(at)
	authenticated, err := b.options.Subjects.TenantOf(ctx, caller)
	if err != nil {
		return tenant.ID{}, tenant.ID{}
	}
	if as == nil || !authenticated.IsSystem() {
		return authenticated, authenticated
	}
	if acting, err = b.options.Subjects.impersonatedTenant(ctx, authenticated, as); err != nil {
		return authenticated, tenant.ID{}
	}
	return authenticated, acting
}

// AuditEventOwner returns the tenant that owned the namespace of an audit event at the given time,
// or the zero ID if the owner is unknown. It uses only the cache, as [Boundary.AuditEventTenants]
// does.
func (b *Boundary) AuditEventOwner(namespace string, at time.Time) tenant.ID {
	id, err := b.options.Owners.find(auditEventContext(at), requester{}, namespace).owner()
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// PathTenant returns the tenant that a request's path names. The boundary limits the request to
// this tenant. PathTenant returns the zero ID if the path names no tenant or all tenants.
func PathTenant(ctx context.Context) tenant.ID {
	if state := requestStateFrom(ctx); state != nil {
		return state.path.id
	}
	return tenant.ID{}
}
