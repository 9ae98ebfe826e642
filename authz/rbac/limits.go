// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Tenanted is the value of [tenant.ScopeAnnotation] that limits the rules of a binding to the
// objects of the caller's own tenant.
const Tenanted = "Tenanted"

// limits specify to which tenants' objects the rules of a binding apply, and when the binding
// expires. The zero value allows no tenant's objects.
type limits struct {
	allTenants bool
	ownTenant  bool // the rules apply to objects of the caller's own tenant
	tenants    []tenant.ID
	until      time.Time // zero if it does not expire
}

// limitsOf reads the annotations of a binding. It returns nil if the annotations contain no limit,
// so that the rules apply everywhere and do not expire. With an invalid annotation, the rules never
// apply. The scope annotation is ignored on a RoleBinding, because a RoleBinding is limited to its
// namespace.
func limitsOf(b metav1.Object) *limits {
	annotations := b.GetAnnotations()
	expires, hasExpiry := annotations[tenant.ExpiresAnnotation]
	scope, limited := annotations[tenant.ScopeAnnotation]
	limited = limited && b.GetNamespace() == ""
	if !hasExpiry && !limited {
		return nil
	}
	l := &limits{allTenants: !limited}
	if hasExpiry {
		at, err := time.Parse(time.RFC3339, expires)
		if err != nil || at.IsZero() {
			at = time.Unix(0, 0)
		}
		l.until = at
	}
	if limited {
		if scope == Tenanted {
			l.ownTenant = true
		} else {
			l.tenants = tenantsOf(scope)
		}
	}
	return l
}

// tenantsOf parses a list of tenants. If one of them is invalid, the list is empty.
func tenantsOf(text string) []tenant.ID {
	var all []tenant.ID
	for name := range strings.SplitSeq(text, ",") {
		id, err := tenant.Parse(strings.TrimSpace(name))
		if err != nil {
			return nil
		}
		all = append(all, id)
	}
	return all
}

// Expired reports whether a binding has expired at the given time, according to its annotation.
func Expired(b metav1.Object, now time.Time) bool {
	l := limitsOf(b)
	return l != nil && l.expired(now)
}

// Applies reports whether the rules of a binding apply at the given time, according to the
// binding's annotations. caller is the tenant of the caller. owner is the tenant that owns the
// requested objects, or zero if no tenant or several tenants own them.
func Applies(b metav1.Object, caller, owner tenant.ID, now time.Time) bool {
	l := limitsOf(b)
	return l == nil ||
		!l.expired(now) &&
			(l.allTenants || !owner.IsZero() && (l.ownTenant && caller == owner || slices.Contains(l.tenants, owner)))
}

// expired reports whether the binding has expired at the given time.
func (l *limits) expired(now time.Time) bool { return !l.until.IsZero() && !now.Before(l.until) }

// applies reports whether the rules apply to a request of u.
func (l *limits) applies(ctx context.Context, o *Options, u user.Info, a authorizer.Attributes) bool {
	if l.expired(o.now()) {
		return false
	}
	switch {
	case l.allTenants:
		return true
	case !l.ownTenant && len(l.tenants) == 0:
		return false
	}
	owner, err := o.Owner(ctx, a)
	if err != nil || owner.IsZero() {
		return false
	}
	if !l.ownTenant {
		return slices.Contains(l.tenants, owner)
	}
	caller, err := o.Subject(ctx, u)
	return err == nil && caller == owner
}
