// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package accessgrant lets callers of one tenant access objects in a namespace of another tenant. An
// authorized user of the other tenant must have granted the access.
//
// [Index] finds the grants that may apply to a request. A matching grant is read again from the
// server before it applies. The removal or change of a grant therefore takes effect with the next
// request, even if the index is outdated.
package accessgrant

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Grant is a valid, accepted AccessGrant. It must not be changed after its first use.
type Grant struct {
	Namespace, Name string
	UID             types.UID
	// Owner is the tenant that owned the namespace when the grant was created. The grant applies only
	// while that tenant owns the namespace.
	Owner tenant.ID
	// Tenant is the tenant whose callers may use the grant. A caller must be one of Users or be in one
	// of Groups.
	Tenant        tenant.ID
	Users, Groups []string
	// GranteeSeal is the seal of the Tenant object that had the grantee's name when the grant was
	// created, see [tenant.Seal].
	GranteeSeal string
	Rules       []Rule
	// Expires is the end of the grant. Zero means that it does not expire.
	Expires time.Time
}

// Rule lists verbs, API groups and resources by name. "*" has no special meaning.
type Rule struct {
	APIGroups, Resources, Verbs []string
	// ResourceNames limits the rule to objects with these names. If empty, the rule applies to all
	// objects.
	ResourceNames []string
}

// allows reports whether the grant allows a request of u for objects of owner at the given time.
func (g *Grant) allows(u user.Info, owner tenant.ID, a authorizer.Attributes, now time.Time) bool {
	switch {
	case g.Owner.IsZero() || g.Owner != owner:
		return false
	case !g.Expires.IsZero() && !now.Before(g.Expires):
		return false
	case !slices.Contains(g.Users, u.GetName()) &&
		!slices.ContainsFunc(u.GetGroups(), func(group string) bool { return slices.Contains(g.Groups, group) }):
		return false
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	for _, r := range g.Rules {
		if slices.Contains(r.Verbs, a.GetVerb()) &&
			slices.Contains(r.APIGroups, a.GetAPIGroup()) && slices.Contains(r.Resources, resource) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName())) {
			return true
		}
	}
	return false
}
