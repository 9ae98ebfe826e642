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

// remembered is how long a change is remembered for requests that were being authorized meanwhile;
// longer than a server lets one wait (--request-timeout, 60 s by default).
const remembered = 2 * time.Minute

// Sessions are the active requests of a server, of every caller and on every path. A request in a
// namespace ends when the namespace gets another owner. Otherwise, a watch in a namespace that was
// deleted and created again for another tenant would continue in the new namespace. A request that
// an exception allowed ends with the exception, and a request of a revoked caller with the
// revocation. The zero value is ready to use. Safe for concurrent use.
//
// A session ends by its context, and by its connection if that was taken over from HTTP
// (exec, attach, portforward). The body of a request cannot be read after its session has ended.
type Sessions struct {
	mu      sync.Mutex
	open    map[string]map[*session]struct{} // by namespace, empty for those over all
	changes []change
}

// Caller is who has a session open.
type Caller struct {
	// Tenant is zero for nobody's, User nil for the server's own client.
	Tenant tenant.ID
	User   user.Info
	// Real is who was authenticated, where User is impersonated; else nil.
	Real user.Info
	// Source is who was authenticated, where the server knows it by another name
	// ([NoteMapped]); else nil.
	Source user.Info
	// Certificates that came with the request.
	Certificates []*x509.Certificate
}

// session is one request, of a tenant's caller in a namespace that is owner's. A
// zero owner is for any other.
type session struct {
	Caller
	owner    tenant.ID
	excepted bool
	until    time.Time // of the exception; zero for no end
	end      context.CancelFunc
}

// change is what ends sessions.
type change struct {
	at        time.Time
	namespace string
	ends      func(*session) bool
}

// begin returns a context that ends with the session. It was authorized at some time since began.
// The caller calls done at the end.
func (s *Sessions) begin(
	ctx context.Context, namespace string, this session, began time.Time,
) (_ context.Context, done func()) {
	ctx, this.end = context.WithCancel(ctx)
	stop := this.end
	if !this.until.IsZero() {
		ctx, stop = context.WithDeadline(ctx, this.until)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Backward(s.changes) {
		if !c.at.After(began) {
			break // they stand in the order of their time
		}
		if c.concerns(namespace) && c.ends(&this) {
			this.end()
		}
	}
	if s.open == nil {
		s.open = map[string]map[*session]struct{}{}
	}
	if s.open[namespace] == nil {
		s.open[namespace] = map[*session]struct{}{}
	}
	s.open[namespace][&this] = struct{}{}
	return ctx, func() {
		stop()
		this.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open[namespace], &this)
		if len(s.open[namespace]) == 0 {
			delete(s.open, namespace)
		}
	}
}

// everywhere stands for all namespaces in a change.
const everywhere = "*"

func (c *change) concerns(namespace string) bool {
	return c.namespace == everywhere || c.namespace == namespace
}

// end ends the sessions that a change is about, those that are open and those that are about to.
func (s *Sessions) end(namespace string, ends func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.changes) > 0 && now.Sub(s.changes[0].at) > remembered {
		s.changes = s.changes[1:]
	}
	this := change{now, namespace, ends}
	s.changes = append(s.changes, this)
	for name, open := range s.open {
		if !this.concerns(name) {
			continue
		}
		for one := range open {
			if ends(one) {
				one.end()
			}
		}
	}
}

// endOthers ends what is open in a namespace that is owner's now, zero for nobody's.
func (s *Sessions) endOthers(namespace string, owner tenant.ID) {
	s.end(namespace, func(open *session) bool { return !open.owner.IsZero() && open.owner != owner })
}

// EndRevoked ends what callers that are revoked have open.
func (s *Sessions) EndRevoked(revoked func(*Caller) bool) {
	s.end(everywhere, func(open *session) bool { return open.User != nil && revoked(&open.Caller) })
}

// EndTenants ends what callers of some tenants have open, the zero ID for callers
// without one, and what exceptions of theirs let in; never the system tenant's. Who may
// still ask for it opens it again.
func (s *Sessions) EndTenants(of func(tenant.ID) bool) {
	s.end(everywhere, func(open *session) bool {
		somebody := open.User != nil || !open.Tenant.IsZero() // not the server's own client
		return somebody && !open.Tenant.IsSystem() &&
			(of(open.Tenant) || open.excepted && !open.owner.IsZero() && of(open.owner))
	})
}

// EndAll ends all that is open, whoever's it is.
func (s *Sessions) EndAll() { s.end(everywhere, func(*session) bool { return true }) }

// EndExcepted ends what exceptions let in: of one namespace, or with an empty one everywhere.
// Clients that are still allowed open it again.
func (s *Sessions) EndExcepted(namespace string) {
	if namespace == "" {
		namespace = everywhere
	}
	s.end(namespace, func(open *session) bool { return open.excepted })
}

// EndOthers ends what callers of other tenants than owner have open in a namespace.
func (s *Sessions) EndOthers(namespace string, owner tenant.ID) { s.endOthers(namespace, owner) }

// Follow returns the handler of a Namespace informer. ownerOf returns the
// tenant that owns a Namespace.
func (s *Sessions) Follow(ownerOf func(*corev1.Namespace) tenant.ID) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if ns, ok := obj.(*corev1.Namespace); ok && !initial {
				s.endOthers(ns.Name, ownerOf(ns))
			}
		},
		UpdateFunc: func(was, is any) {
			before, _ := was.(*corev1.Namespace)
			now, ok := is.(*corev1.Namespace)
			switch {
			case !ok || before == nil:
			case before.UID != now.UID:
				s.endOthers(now.Name, tenant.ID{}) // made anew: the deletion was not seen
			case ownerOf(before) != ownerOf(now):
				s.endOthers(now.Name, ownerOf(now))
			}
		},
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				s.endOthers(name.Name, tenant.ID{})
			}
		},
	}
}
