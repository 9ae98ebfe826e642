// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// namespacedVerbs replace the verb "*" of a rule about resources.
var namespacedVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// RulesFor implements [authorizer.RuleResolver]. It returns only those rules of the delegate that
// the boundary does not deny. For a tenant's caller, it lists no rules in a namespace that the
// tenant does not own, and no rules that reach outside the tenant. It lists no wildcard resources
// and no wildcard verbs of resources. If it omits or reduces a rule, incomplete is true and the error gives the reason,
// which a SelfSubjectRulesReview shows next to the rules. In shadow mode, it returns all rules of
// the delegate, or none if the tenant's access level denies requests in shadow mode too.
func (b *Boundary) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if b.rules == nil {
		return nil, nil, true, errNoRules
	}
	c := b.resolve(ctx, nil, &requestAttributes{user: u})
	id := c.tenant
	access := b.accessOf(id)
	switch {
	case access == AccessClosed, access == AccessRetired:
		return nil, nil, true, errors.New(access.denialReason(&requestAttributes{}).String())
	case b.options.Shadow && access == AccessReadOnly: // shadow mode does not reduce rules, so none are listed
		return nil, nil, true, errors.New(ReasonReadOnly.String())
	case b.options.Shadow:
		return b.rules.RulesFor(ctx, u, namespace)
	case c.denied != ReasonNone:
		return nil, nil, true, errors.New(c.denied.String())
	case id.IsZero():
		return nil, nil, true, errors.New(ReasonNoTenant.String())
	case id.IsSystem():
		return b.rules.RulesFor(ctx, u, namespace)
	case b.options.Stale != nil && b.options.Stale():
		return nil, nil, true, errors.New(ReasonStale.String())
	}
	switch access {
	case AccessOpen, AccessReadOnly:
	case AccessNone:
		return nil, nil, true, errors.New(ReasonNoTenantObject.String())
	default:
		return nil, nil, true, errors.New(ReasonStale.String())
	}
	if owned := b.decideOwned(ctx, id, &requestAttributes{}, namespace); !owned.delegate {
		return nil, nil, true, errors.New(owned.reason.String())
	}
	resources, paths, incomplete, err := b.rules.RulesFor(ctx, u, namespace)
	filter := ruleFilter{boundary: b, readOnly: access == AccessReadOnly}
	var outResources []authorizer.ResourceRuleInfo
	for _, r := range resources {
		outResources = append(outResources, filter.resource(r)...)
	}
	var outPaths []authorizer.NonResourceRuleInfo
	for _, r := range paths {
		outPaths = append(outPaths, filter.paths(r)...)
	}
	if filter.omitted && err == nil {
		err = errRulesOmitted
	}
	return outResources, outPaths, incomplete || filter.omitted, err
}

var (
	errNoRules      = errors.New("tenant boundary: this server cannot list the caller's rules")
	errRulesOmitted = errors.New("tenant boundary: rules that apply outside the tenant are omitted")
)

// ruleFilter reduces rules to those that apply to a tenant's caller in a namespace of its tenant.
type ruleFilter struct {
	boundary *Boundary
	readOnly bool // the tenant has [AccessReadOnly]
	omitted  bool // a rule or a part of a rule was omitted
}

// resource returns the remaining rules of r, one for each remaining pair of group and resource.
func (c *ruleFilter) resource(r authorizer.ResourceRuleInfo) []authorizer.ResourceRuleInfo {
	var left []authorizer.ResourceRuleInfo
	for _, group := range r.GetAPIGroups() {
		for _, resource := range r.GetResources() {
			verbs := c.verbs(schema.GroupResource{Group: group, Resource: resource}, r.GetVerbs())
			if len(verbs) == 0 {
				c.omitted = true
				continue
			}
			left = append(left, &authorizer.DefaultResourceRuleInfo{
				Verbs:         verbs,
				APIGroups:     []string{group},
				Resources:     []string{resource},
				ResourceNames: r.GetResourceNames(),
			})
		}
	}
	return left
}

// verbs returns the remaining verbs on the resource.
func (c *ruleFilter) verbs(full schema.GroupResource, verbs []string) []string {
	if slices.Contains(verbs, "*") {
		c.omitted = true
		verbs = namespacedVerbs
	}
	base, subresource, _ := strings.Cut(full.Resource, "/")
	resource := schema.GroupResource{Group: full.Group, Resource: base}
	var left []string
	for _, verb := range verbs {
		self := isSelfReview(resource) && verb == "create" && subresource == ""
		shared := isRead(verb) && subresource == "" && c.boundary.isShared(resource)
		namespaced := c.boundary.options.Scopes.Of(resource) == ScopeNamespaced && subresource != "*" &&
			!strings.HasPrefix(verb, "impersonate") && verb != "finalize" && !isReview(resource)
		if self || (shared || namespaced) && (!c.readOnly || allowedReadOnly(verb, subresource)) {
			left = append(left, verb)
		} else {
			c.omitted = true
		}
	}
	return left
}

// paths returns the remaining part of a rule about non-resource paths.
func (c *ruleFilter) paths(r authorizer.NonResourceRuleInfo) []authorizer.NonResourceRuleInfo {
	var left []string
	for _, p := range r.GetNonResourceURLs() {
		if prefix, wild := strings.CutSuffix(p, "/*"); c.boundary.decidePath(p).delegate &&
			(!wild || c.boundary.decidePath(prefix+"/x").delegate) {
			left = append(left, p)
		} else {
			c.omitted = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	verbs := r.GetVerbs()
	if c.readOnly {
		if slices.Contains(verbs, "*") {
			c.omitted = true
			verbs = []string{"get", "head"}
		}
		all := len(verbs)
		verbs = slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool { return !allowedReadOnly(verb, "") })
		c.omitted = c.omitted || len(verbs) < all
	}
	if len(verbs) == 0 {
		return nil
	}
	return []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: verbs, NonResourceURLs: left}}
}
