// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// liveTimeout is the timeout of the read of a matching grant, for which the request waits.
const liveTimeout = 2 * time.Second

// Index finds grants by tenant and namespace. The zero value is not usable, see [NewIndex]. It is
// safe for concurrent use.
type Index struct {
	mu     sync.RWMutex
	grants map[key][]*Grant
	byName map[name]*Grant
}

type key struct {
	tenant    tenant.ID
	namespace string
}

type name struct{ namespace, name string }

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{grants: map[key][]*Grant{}, byName: map[name]*Grant{}} }

// Set adds g, or replaces the grant with the same namespace and name.
func (x *Index) Set(g *Grant) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(name{g.Namespace, g.Name})
	k := key{g.Tenant, g.Namespace}
	x.byName[name{g.Namespace, g.Name}] = g
	x.grants[k] = append(x.grants[k], g)
}

// Delete removes a grant.
func (x *Index) Delete(namespace, grant string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(name{namespace, grant})
}

func (x *Index) remove(n name) {
	g, known := x.byName[n]
	if !known {
		return
	}
	delete(x.byName, n)
	k := key{g.Tenant, g.Namespace}
	left := slices.DeleteFunc(slices.Clone(x.grants[k]), func(other *Grant) bool { return other == g })
	if len(left) == 0 {
		delete(x.grants, k)
		return
	}
	x.grants[k] = left
}

// grantsFor returns the grants that apply to a tenant's callers in a namespace. Later changes of
// the index do not change the result.
func (x *Index) grantsFor(id tenant.ID, namespace string) []*Grant {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.grants[key{id, namespace}])
}

// Grants decides whether the grants of an index allow a request. All fields except Lineage and Used
// are required.
type Grants struct {
	Index *Index
	// Live reads the current version of a grant. by is the caller's tenant, whose rate limit
	// applies to the read. If Live returns an error or nil, the grant does not allow the request.
	// Nil means that the grant no longer applies.
	Live func(ctx context.Context, by tenant.ID, namespace, name string) (*Grant, error)
	// Lineage returns the current and the earlier tenants of a name. It MUST return quickly and be
	// safe for concurrent use. If nil, a name alone identifies a tenant.
	Lineage func(tenant.ID) tenant.Lineage
	// Now is the clock.
	Now func() time.Time
	// Used is called for each grant that allows a request. It MUST NOT block. If nil, it is not
	// called.
	Used func(*Grant)
}

// Allows reports whether a grant allows a cross-tenant request, and when the permission expires.
// A zero time means that it does not expire. A grant allows only requests in a namespace. Grants
// never allow impersonation or access to Namespace objects.
func (g *Grants) Allows(ctx context.Context, c *authz.CrossTenantRequest) (allowed bool, until time.Time) {
	namespace := c.GetNamespace()
	if !c.IsResourceRequest() || namespace == "" || c.Caller.IsSystem() || c.Owner.All || c.Owner.ID.IsZero() {
		return false, time.Time{}
	}
	candidates := g.Index.grantsFor(c.Caller, namespace)
	if len(candidates) == 0 || c.GetResource() == "namespaces" && c.GetAPIGroup() == "" ||
		strings.HasPrefix(c.GetVerb(), "impersonate") {
		return false, time.Time{}
	}
	for _, candidate := range candidates {
		if !candidate.allows(c.User, c.Owner.ID, c, g.Now()) || !g.isCurrent(candidate) {
			continue
		}
		if live := g.stillAllows(ctx, candidate, c); live != nil {
			return true, live.Expires
		}
	}
	return false, time.Time{}
}

// isCurrent reports whether the tenants of a grant are still the same. It returns false if the
// owner was deleted or is being deleted, or if the grantee is no longer the tenant to which the
// access was granted.
func (g *Grants) isCurrent(candidate *Grant) bool {
	if g.Lineage == nil {
		return true
	}
	owner, grantee := g.Lineage(candidate.Owner), g.Lineage(candidate.Tenant)
	return !owner.HasEnded() && grantee.AcceptsSeal(candidate.GranteeSeal)
}

// stillAllows reads the grant again. It returns the current version of the grant if that version
// allows the request, otherwise nil.
func (g *Grants) stillAllows(ctx context.Context, candidate *Grant, c *authz.CrossTenantRequest) *Grant {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveTimeout)
	defer cancel()
	live, err := g.Live(ctx, c.Caller, candidate.Namespace, candidate.Name)
	if err != nil {
		klog.FromContext(ctx).Info("Denied a request because the matching grant could not be read",
			"namespace", candidate.Namespace,
			"grant", candidate.Name, "err", err)
		return nil
	}
	if live == nil || live.Tenant != c.Caller || live.Namespace != c.GetNamespace() ||
		!live.allows(c.User, c.Owner.ID, c, g.Now()) || !g.isCurrent(live) {
		return nil
	}
	if g.Used != nil {
		g.Used(live)
	}
	return live
}
