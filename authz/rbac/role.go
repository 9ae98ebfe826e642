// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"hash/maphash"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A mask is a 64-bit summary of verbs (16 bits), API groups (16 bits) and resources (32 bits),
// each represented by a bit that its hash selects. A rule can match a request only if the rule's
// mask contains all bits of the request's mask. Otherwise, the rest of the rule need not be
// compared.
type mask uint64

const (
	allVerbs     mask = 1<<16 - 1
	allGroups    mask = (1<<16 - 1) << 16
	allResources mask = (1<<32 - 1) << 32
)

// masks computes masks. Its seed is random, so that clients cannot choose names with the same hash.
type masks struct{ seed maphash.Seed }

func (m masks) verb(s string) mask  { return 1 << (maphash.String(m.seed, s) & 15) }
func (m masks) group(s string) mask { return 1 << (16 + maphash.String(m.seed, s)&15) }

// resource hashes the part before the first slash, for requests and for rules.
func (m masks) resource(s string) mask {
	base, _, _ := strings.Cut(s, "/")
	return 1 << (32 + maphash.String(m.seed, base)&31)
}

func (m masks) request(r *request) mask {
	return m.verb(r.verb) | m.group(r.group) | m.resource(r.resource)
}

func (m masks) rule(r *rbacv1.PolicyRule) mask {
	var out mask
	for _, verb := range r.Verbs {
		if verb == rbacv1.VerbAll {
			out |= allVerbs
		}
		out |= m.verb(verb)
	}
	for _, group := range r.APIGroups {
		if group == rbacv1.APIGroupAll {
			out |= allGroups
		}
		out |= m.group(group)
	}
	for _, resource := range r.Resources {
		if strings.HasPrefix(resource, rbacv1.ResourceAll) {
			out |= allResources
		}
		out |= m.resource(resource)
	}
	return out
}

// role is a Role or ClusterRole to which bindings refer. An update replaces its whole content.
type role struct {
	*content
	bindings int // the number of bindings that refer to it
}

// content is the content of a role. It is nil if the role does not exist.
type content struct {
	mask  mask // the union of the masks of all rules
	rules []compiled
}

type compiled struct {
	mask mask
	*rbacv1.PolicyRule
}

func (m masks) compile(rules []rbacv1.PolicyRule) *content {
	c := &content{rules: make([]compiled, len(rules))}
	for i := range rules {
		c.rules[i] = compiled{m.rule(&rules[i]), &rules[i]}
		c.mask |= c.rules[i].mask
	}
	return c
}

// Allows reports whether one of the rules of a role allows a request. It ignores the caller, the
// namespace and the bindings.
func Allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	r := newRequest(a)
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		if !r.isResource {
			return verbMatches(&rule, r.verb) && pathMatches(&rule, r.path)
		}
		return matches(&rule, &r)
	})
}

// allows reports whether a rule allows the request (RuleAllows in the upstream package). The role
// must exist. The function is short enough for inlining. The mask alone denies most requests.
func (c *content) allows(r *request) bool {
	return (!r.isResource || c.mask&r.mask == r.mask) && c.ruleAllows(r)
}

func (c *content) ruleAllows(r *request) bool {
	if !r.isResource {
		for i := range c.rules {
			if rule := c.rules[i].PolicyRule; verbMatches(rule, r.verb) && pathMatches(rule, r.path) {
				return true
			}
		}
		return false
	}
	for i := range c.rules {
		if c.rules[i].mask&r.mask == r.mask && matches(c.rules[i].PolicyRule, r) {
			return true
		}
	}
	return false
}

// The functions below are those of evaluation_helpers.go in the upstream package pkg/apis/rbac/v1,
// v1.37.1.

func matches(rule *rbacv1.PolicyRule, r *request) bool {
	return verbMatches(rule, r.verb) && groupMatches(rule, r.group) && resourceMatches(rule, r) &&
		nameMatches(rule, r.name)
}

func verbMatches(rule *rbacv1.PolicyRule, verb string) bool {
	for _, v := range rule.Verbs {
		if v == rbacv1.VerbAll || v == verb {
			return true
		}
	}
	return false
}

func groupMatches(rule *rbacv1.PolicyRule, group string) bool {
	for _, g := range rule.APIGroups {
		if g == rbacv1.APIGroupAll || g == group {
			return true
		}
	}
	return false
}

func resourceMatches(rule *rbacv1.PolicyRule, r *request) bool {
	for _, resource := range rule.Resources {
		if resource == rbacv1.ResourceAll || resourceEquals(resource, r) {
			return true
		}
		// "*/scale" means the subresource scale of any resource.
		if subresource, found := strings.CutPrefix(resource, "*/"); found && r.subresource != "" &&
			subresource == r.subresource {
			return true
		}
	}
	return false
}

// resourceEquals reports whether a rule's resource equals the request's resource, including its
// subresource.
func resourceEquals(resource string, r *request) bool {
	if r.subresource == "" {
		return resource == r.resource
	}
	rest, found := strings.CutPrefix(resource, r.resource)
	return found && len(rest) == 1+len(r.subresource) && rest[0] == '/' && rest[1:] == r.subresource
}

func nameMatches(rule *rbacv1.PolicyRule, name string) bool {
	if len(rule.ResourceNames) == 0 {
		return true
	}
	for _, n := range rule.ResourceNames {
		if n == name {
			return true
		}
	}
	return false
}

func pathMatches(rule *rbacv1.PolicyRule, path string) bool {
	for _, p := range rule.NonResourceURLs {
		if p == rbacv1.NonResourceAll || p == path {
			return true
		}
		if strings.HasSuffix(p, "*") && strings.HasPrefix(path, strings.TrimRight(p, "*")) {
			return true
		}
	}
	return false
}
