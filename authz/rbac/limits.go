package rbac

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// tenanted limits a binding's rules to the caller's own space.
const tenanted = "Tenanted"

// limits say in whose spaces the rules of a ClusterRoleBinding hold. The zero value: in none.
type limits struct {
	own     bool // in the caller's own
	tenants []tenant.ID
}

// limitsOf reads the annotation. Nil: there is none, and the rules hold everywhere. One that cannot be
// understood leaves no space.
func limitsOf(b *rbacv1.ClusterRoleBinding) *limits {
	text, limited := b.Annotations[tenant.ScopeAnnotation]
	switch {
	case !limited:
		return nil
	case text == tenanted:
		return &limits{own: true}
	}
	l := &limits{}
	for name := range strings.SplitSeq(text, ",") {
		id, err := tenant.Parse(strings.TrimSpace(name))
		if err != nil {
			return &limits{}
		}
		l.tenants = append(l.tenants, id)
	}
	return l
}

// hold reports whether the rules hold for a request of u.
func (l *limits) hold(ctx context.Context, o *Options, u user.Info, a authorizer.Attributes) bool {
	if l == nil {
		return true
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
