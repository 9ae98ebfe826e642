// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package grant lets callers of one tenant reach named objects in a namespace of another, where
// somebody who may do so himself has granted it.
//
// [Index] finds the grants that a request might use. One that matches is read again, live,
// before it counts: removing or changing a grant takes effect with the next request,
// whatever the index still holds.
package grant

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Grant is one AccessGrant that was understood and accepted. It must not be
// changed once it is in use.
type Grant struct {
	Namespace, Name string
	UID             types.UID
	// Owner is whose the namespace was when the grant was made. It counts for nobody else's.
	Owner tenant.ID
	// Tenant is whose callers may use it: those who are one of the users or in one of the groups.
	Tenant        tenant.ID
	Users, Groups []string
	// Grantee is the seal of the Tenant that Tenant had when the grant was made, see [tenant.Seal].
	Grantee string
	Rules   []Rule
	// Expires is when it ends; zero for never.
	Expires time.Time
}

// Rule lists what may be done to what: every verb, group and resource by its
// name, "*" means nothing.
type Rule struct {
	APIGroups, Resources, Verbs []string
	// ResourceNames limits the rule to these objects; empty for all.
	ResourceNames []string
}

// allows reports whether the grant allows a request of u in a space of owner at a time.
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
