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

// Tenanted is the [tenant.ScopeAnnotation] that limits a binding's rules to the caller's own space.
const Tenanted = "Tenanted"

// limits say in whose spaces the rules of a binding hold, and until when. The zero value: in none.
type limits struct {
	anywhere bool
	own      bool // in the caller's own
	tenants  []tenant.ID
	until    time.Time // zero for no end
}

// limitsOf reads the annotations of a binding. Nil: there are none, and the rules hold everywhere
// and for good. One that cannot be understood leaves no space. Spaces are for ClusterRoleBindings:
// another is in a space already.
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

// tenantsOf reads a list of tenants; one of which not all are is nobody's.
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

// Ended reports whether a binding counts no more at a time, by its annotation.
func Ended(b metav1.Object, now time.Time) bool {
	l := limitsOf(b)
	return l != nil && l.ended(now)
}

// Holds reports whether the annotations of a binding let its rules hold for a caller of a tenant in
// the space of one, at a time. The zero ID is a space that is no single tenant's.
func Holds(b metav1.Object, caller, space tenant.ID, now time.Time) bool {
	l := limitsOf(b)
	return l == nil ||
		!l.ended(now) && (l.anywhere || !space.IsZero() && (l.own && caller == space || slices.Contains(l.tenants, space)))
}

// ended reports whether the binding counts no more at a time.
func (l *limits) ended(now time.Time) bool { return !l.until.IsZero() && !now.Before(l.until) }

// hold reports whether the rules hold for a request of u.
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
