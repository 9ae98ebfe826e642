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

// CallersOf begins a [tenant.ScopeAnnotation] that limits a binding's rules to the callers of tenants, in whatever space.
const CallersOf = "Callers:"

// limits say in whose spaces or for whose callers the rules of a binding hold, and until when. The zero value: in none.
type limits struct {
	anywhere  bool
	own       bool // in the caller's own
	tenants   []tenant.ID
	ofCallers bool // for these, anywhere
	callers   []tenant.ID
	until     time.Time // zero for no end
}

// limitsOf reads the annotations of a binding. Nil: there are none, and the rules hold everywhere and for good. One that
// cannot be understood leaves no space. Spaces are for ClusterRoleBindings: another is in a space already.
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
		names, ofCallers := strings.CutPrefix(scope, CallersOf)
		switch l.ofCallers = ofCallers; {
		case ofCallers:
			l.callers = tenantsOf(names)
		case scope == Tenanted:
			l.own = true
		default:
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

// Holds reports whether the annotations of a binding let its rules hold for a caller of a tenant in the space of one, at a
// time. The zero ID is a space that is no single tenant's.
func Holds(b metav1.Object, caller, space tenant.ID, now time.Time) bool {
	l := limitsOf(b)
	return l == nil || !l.ended(now) && (l.anywhere || slices.Contains(l.callers, caller) || !space.IsZero() && (l.own && caller == space || slices.Contains(l.tenants, space)))
}

// HoldsFor reports whether the annotations of a binding may let its rules hold for a caller of a tenant, in some space.
func HoldsFor(b metav1.Object, caller tenant.ID, now time.Time) bool {
	l := limitsOf(b)
	return l == nil || !l.ended(now) && (!l.ofCallers || slices.Contains(l.callers, caller))
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
	case l.ofCallers:
		caller, err := o.Subject(ctx, u)
		return err == nil && slices.Contains(l.callers, caller) && (o.Confined || o.isIn(ctx, a, caller))
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

// isIn reports whether a request stays in the space of a tenant.
func (o *Options) isIn(ctx context.Context, a authorizer.Attributes, id tenant.ID) bool {
	space, err := o.Space(ctx, a)
	return err == nil && !space.IsZero() && space == id
}
