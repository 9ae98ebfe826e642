// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant"
)

// changeRetention is how long a change applies to requests that were being authorized when the
// change occurred. It is longer than the request timeout of a server (--request-timeout, 60 s by
// default).
const changeRetention = 2 * time.Minute

// Sessions contains the active requests of a server, from every caller and on every path. A
// request of a tenant's caller in a namespace ends when the namespace gets another owner.
// Otherwise, a watch in a namespace that was deleted and created again for another tenant would
// continue in the new namespace. A request that an exception allowed ends with the exception. A
// request of a caller ends when the caller is revoked. The zero value is ready to use. Sessions
// is safe for concurrent use.
//
// When a session ends, its context ends. A connection that a handler hijacked (exec, attach,
// portforward) closes. After a change or an expired exception has ended a session, the body of
// the request cannot be read.
type Sessions struct {
	mu      sync.Mutex
	active  map[string]map[*session]struct{} // keyed by namespace, "" for requests without one
	changes []change
}

// Caller is the caller of an active request.
type Caller struct {
	// Tenant is zero if the caller has no tenant. User is nil if the boundary resolved no caller,
	// as for the server's own client.
	Tenant tenant.ID
	User   user.Info
	// Impersonator is the authenticated user if User is impersonated, otherwise nil.
	Impersonator user.Info
	// MappedFrom is the authenticated user if [RecordMappedCaller] replaced it by User, otherwise
	// nil.
	MappedFrom user.Info
	// Certificates are the client certificates of the request.
	Certificates []*x509.Certificate
}

// session is one active request. If its caller belongs to a tenant other than system, owner is
// the tenant that owned the requested object at authorization. Otherwise, owner is zero.
type session struct {
	Caller
	owner    tenant.ID
	excepted bool
	until    time.Time // end of the exception; zero if it has none
	end      context.CancelFunc
}

// change is an event that ends sessions in one namespace or in all namespaces.
type change struct {
	at        time.Time
	namespace string
	ends      func(*session) bool
}

// begin returns a context that ends with the session. The request was authorized after began, so
// changes since began apply too. The caller must call done at the end of the request.
func (s *Sessions) begin(
	ctx context.Context, namespace string, sess session, began time.Time,
) (_ context.Context, done func()) {
	ctx, sess.end = context.WithCancel(ctx)
	stop := sess.end
	if !sess.until.IsZero() {
		ctx, stop = context.WithDeadlineCause(ctx, sess.until, errEnded)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Backward(s.changes) {
		if !c.at.After(began) {
			break // changes are sorted by time
		}
		if c.concerns(namespace) && c.ends(&sess) {
			sess.end()
		}
	}
	if s.active == nil {
		s.active = map[string]map[*session]struct{}{}
	}
	if s.active[namespace] == nil {
		s.active[namespace] = map[*session]struct{}{}
	}
	s.active[namespace][&sess] = struct{}{}
	return ctx, func() {
		stop()
		sess.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.active[namespace], &sess)
		if len(s.active[namespace]) == 0 {
			delete(s.active, namespace)
		}
	}
}

// allNamespaces is the namespace of a change that concerns all namespaces.
const allNamespaces = "*"

func (c *change) concerns(namespace string) bool {
	return c.namespace == allNamespaces || c.namespace == namespace
}

// end ends the sessions in a namespace for which ends returns true. It also ends such sessions of
// requests that are still being authorized.
func (s *Sessions) end(namespace string, ends func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.changes) > 0 && now.Sub(s.changes[0].at) > changeRetention {
		s.changes = s.changes[1:]
	}
	c := change{now, namespace, ends}
	s.changes = append(s.changes, c)
	for name, sessions := range s.active {
		if !c.concerns(name) {
			continue
		}
		for sess := range sessions {
			if ends(sess) {
				sess.end()
			}
		}
	}
}

// endOtherTenants ends the sessions in a namespace that were authorized for another owner. A zero
// owner means that the namespace is unowned or was deleted.
func (s *Sessions) endOtherTenants(namespace string, owner tenant.ID) {
	s.end(namespace, func(sess *session) bool { return !sess.owner.IsZero() && sess.owner != owner })
}

// EndRevoked ends the sessions for which revoked reports that the caller is revoked.
func (s *Sessions) EndRevoked(revoked func(*Caller) bool) {
	s.end(allNamespaces, func(sess *session) bool { return sess.User != nil && revoked(&sess.Caller) })
}

// EndTenants ends the sessions of callers whose tenant matches. It also ends the sessions in
// which an exception allows access to the objects of a matching tenant. For callers without a
// tenant, matches receives the zero ID. Sessions of the system tenant's callers do not end. A
// client that still has access can connect again.
func (s *Sessions) EndTenants(matches func(tenant.ID) bool) {
	s.end(allNamespaces, func(sess *session) bool {
		hasCaller := sess.User != nil || !sess.Tenant.IsZero() // not the server's own client
		return hasCaller && !sess.Tenant.IsSystem() &&
			(matches(sess.Tenant) || sess.excepted && !sess.owner.IsZero() && matches(sess.owner))
	})
}

// EndAll ends all sessions.
func (s *Sessions) EndAll() { s.end(allNamespaces, func(*session) bool { return true }) }

// EndExcepted ends the sessions in a namespace that an exception allowed. An empty namespace means
// all namespaces. A client that still has access can connect again.
func (s *Sessions) EndExcepted(namespace string) {
	if namespace == "" {
		namespace = allNamespaces
	}
	s.end(namespace, func(sess *session) bool { return sess.excepted })
}

// EndOtherTenants ends the sessions in a namespace that were authorized for a tenant other than
// owner.
func (s *Sessions) EndOtherTenants(namespace string, owner tenant.ID) {
	s.endOtherTenants(namespace, owner)
}

// NamespaceHandler returns an event handler for a Namespace informer. It ends the sessions that
// were authorized for another owner of a namespace. ownerOf returns the tenant that owns a
// Namespace.
func (s *Sessions) NamespaceHandler(ownerOf func(*corev1.Namespace) tenant.ID) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if ns, ok := obj.(*corev1.Namespace); ok && !initial {
				s.endOtherTenants(ns.Name, ownerOf(ns))
			}
		},
		UpdateFunc: func(oldObj, newObj any) {
			before, _ := oldObj.(*corev1.Namespace)
			now, ok := newObj.(*corev1.Namespace)
			if !ok || before == nil {
				return
			}
			if before.UID != now.UID {
				s.endOtherTenants(now.Name, tenant.ID{}) // created again, and the deletion was not observed
				return
			}
			if ownerOf(before) != ownerOf(now) {
				s.endOtherTenants(now.Name, ownerOf(now))
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.endOtherTenants(name.Name, tenant.ID{})
			}
		},
	}
}
