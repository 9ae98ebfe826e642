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

// Tenanted is the value of [tenant.ScopeAnnotation] that limits the rules of a binding to objects
// of the caller's own tenant.
const Tenanted = "Tenanted"

// limits specify the tenants to whose objects the rules of a binding apply, and until when. The zero
// value means no tenant.
type limits struct {
	anywhere bool
	own      bool // the rules apply to objects of the caller's own tenant
	tenants  []tenant.ID
	until    time.Time // zero if it does not expire
}

// limitsOf reads the annotations of a binding. It returns nil if there are none, so that the rules
// apply everywhere and do not expire. With an invalid annotation, the rules never apply. The scope
// annotation applies only to ClusterRoleBindings, because a RoleBinding is limited to its
// namespace.
func limitsOf(b metav1.Object) *limits {
	annotations := b.GetAnnotations()
	end, ends := annotations[tenant.ExpiresAnnotation]
	scope, limited := annotations[tenant.ScopeAnnotation]
	limited = limited && b.GetNamespace() == ""
	if !ends && !limited {
		return nil
	}
	l := &limits{anywhere: !limited}
	if ends {
		at, err := time.Parse(time.RFC3339, end)
		if err != nil || at.IsZero() {
			at = time.Unix(0, 0)
		}
		l.until = at
	}
	if limited {
		if scope == Tenanted {
			l.own = true
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

// Ended reports whether a binding has expired at a time, according to its annotation.
func Ended(b metav1.Object, now time.Time) bool {
	l := limitsOf(b)
	return l != nil && l.ended(now)
}

// Holds reports whether the annotations of a binding let its rules apply at a time. The caller
// belongs to one tenant and requests objects that space owns. A zero space means that the objects
// do not belong to a single tenant.
func Holds(b metav1.Object, caller, space tenant.ID, now time.Time) bool {
	l := limitsOf(b)
	return l == nil ||
		!l.ended(now) && (l.anywhere || !space.IsZero() && (l.own && caller == space || slices.Contains(l.tenants, space)))
}

// ended reports whether the binding has expired at a time.
func (l *limits) ended(now time.Time) bool { return !l.until.IsZero() && !now.Before(l.until) }

// hold reports whether the rules apply to a request of u.
func (l *limits) hold(ctx context.Context, o *Options, u user.Info, a authorizer.Attributes) bool {
	if l.ended(o.now()) {
		return false
	}
	switch {
	case l.anywhere:
		return true
	case !l.own && len(l.tenants) == 0:
		return false
	}
	space, err := o.Space(ctx, a)
	if err != nil || space.IsZero() {
		return false
	}
	if !l.own {
		return slices.Contains(l.tenants, space)
	}
	caller, err := o.Subject(ctx, u)
	return err == nil && caller == space
}
