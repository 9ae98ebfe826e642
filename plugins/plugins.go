// Package plugins holds what the admission plugins have in common. Each plugin has a folder of its
// own and knows the caller's tenant and the owner of a namespace through function values only.
//
// Aggregated API servers never pass through kube-apiserver's admission: what they store is not
// governed by these plugins.
package plugins

import (
	"context"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// SubjectFunc returns the tenant of an admission request's user. An error, whatever it is, means
// that the tenant is not known: such a caller MUST NOT be taken for the system tenant's.
type SubjectFunc func(context.Context, user.Info) (tenant.ID, error)

// OwnerFunc returns the tenant that owns a namespace: the system tenant where it has no label, the
// zero ID where it is nobody's or does not exist. An error means that it is not known: the
// request MUST be refused.
type OwnerFunc func(ctx context.Context, namespace string) (tenant.ID, error)

// IsSystem reports whether u is known to be the system tenant's.
func (subject SubjectFunc) IsSystem(ctx context.Context, u user.Info) bool {
	id, err := subject(ctx, u)
	return err == nil && id.IsSystem()
}
