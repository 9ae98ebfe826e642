// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package abac

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// Allows reports whether a policy line allows a request from a caller of tenant id for objects
// with the given owner. It never allows a caller without a tenant, or a request for unowned
// objects. A request for objects of several tenants matches only lines whose space is "*".
//
// Allows never allows impersonation. A readonly line does not allow connections, because a get of
// pods/exec or nodes/proxy is not a read.
func (p *Policy) Allows(id tenant.ID, owner authz.ObjectOwner, a authorizer.Attributes) bool {
	return p.Line(id, owner, a) > 0
}

// Line returns the number of a line that allows the request, counted from 1. If several lines
// allow it, Line does not necessarily return the first. It returns 0 if no line allows the
// request, see [Policy.Allows].
func (p *Policy) Line(id tenant.ID, owner authz.ObjectOwner, a authorizer.Attributes) int {
	u := a.GetUser()
	if u == nil || id.IsZero() || strings.HasPrefix(a.GetVerb(), "impersonate") {
		return 0
	}
	r := request{
		Attributes: a,
		owner:      owner,
		groups:     u.GetGroups(),
		isResource: a.IsResourceRequest(),
	}
	if r.isResource {
		r.group, r.resource, r.namespace = a.GetAPIGroup(), a.GetResource(), a.GetNamespace()
	} else {
		r.path = a.GetPath()
	}
	for _, callers := range [...]tenantMatcher{{id: id}, {any: true}} {
		if callers.any && !p.anyTenant {
			continue
		}
		if number := p.matchingLine(subject{callers, u.GetName(), false}, &r); number > 0 {
			return number
		}
		for _, group := range r.groups {
			if number := p.matchingLine(subject{callers, group, true}, &r); number > 0 {
				return number
			}
		}
	}
	return 0
}

// request is a request that is compared with policy lines.
type request struct {
	authorizer.Attributes
	owner                            authz.ObjectOwner
	groups                           []string
	isResource                       bool
	group, resource, namespace, path string
}

// matchingLine returns the number of a line with the given subject that allows the request, or 0
// if no such line exists.
func (p *Policy) matchingLine(key subject, r *request) int {
	lines := p.subjects[key]
	if lines == nil {
		return 0
	}
	if r.isResource && r.namespace != wildcard {
		if i := slices.IndexFunc(lines[r.namespace], r.allowedBy); i >= 0 {
			return lines[r.namespace][i].number
		}
	}
	if i := slices.IndexFunc(lines[wildcard], r.allowedBy); i >= 0 {
		return lines[wildcard][i].number
	}
	return 0
}

// allowedBy reports whether a line allows the request. The caller has already compared the
// namespace, and the user or the group.
func (r *request) allowedBy(l *line) bool {
	switch {
	case l.user != "" && l.group != "" && !slices.Contains(r.groups, l.group):
		return false
	case !l.owner.any && !l.owner.matches(r.owner.ID), l.owner.any && r.owner.ID.IsZero() && !r.owner.All:
		return false
	case l.readonly && (!r.IsReadOnly() || connects(r.GetSubresource())):
		return false
	case !r.isResource:
		return l.matchesPath(r.path)
	}
	return (l.resource == wildcard || l.resource == r.resource) && (l.apiGroup == wildcard || l.apiGroup == r.group) &&
		l.resource != ""
}

// connects reports whether a subresource connects the client to a backend.
func connects(subresource string) bool {
	switch subresource {
	case "proxy", "exec", "attach", "portforward":
		return true
	}
	return false
}

// LineSubject is the subject of a policy line.
type LineSubject struct {
	// Number is the number of the line, from 1.
	Number int
	// User and Group must both match the caller if both are set.
	User, Group string
	// Tenant is the tenant of the caller. The zero ID means any tenant.
	Tenant tenant.ID
}

// Subjects returns the subjects of the lines, in the order of the file.
func (p *Policy) Subjects() []LineSubject {
	var all []LineSubject
	for _, namespaces := range p.subjects {
		for _, lines := range namespaces {
			for _, l := range lines {
				all = append(all, LineSubject{l.number, l.user, l.group, l.tenant.id})
			}
		}
	}
	slices.SortFunc(all, func(a, b LineSubject) int { return cmp.Compare(a.Number, b.Number) })
	// A line for resources and paths is indexed twice.
	return slices.CompactFunc(all, func(a, b LineSubject) bool { return a.Number == b.Number })
}

// LinesFor returns the numbers of the lines that apply to u, a caller of tenant id, in the order of
// the file.
func (p *Policy) LinesFor(id tenant.ID, u user.Info) []int {
	var numbers []int
	for _, key := range subjectsOf(id, u) {
		for _, lines := range p.subjects[key] {
			for _, l := range lines {
				if l.appliesTo(u) {
					numbers = append(numbers, l.number)
				}
			}
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// RulesFor returns the rules by which the lines allow requests from u, a caller of tenant id, in
// a namespace with the given owner. It omits lines that a rule cannot express, and then sets
// incomplete to true. A rule cannot express a readonly line for all resources, because the rule
// would include connections such as pods/exec. A rule cannot express a line for another tenant's
// objects either, because the rule would include cluster-scoped resources.
func (p *Policy) RulesFor(
	id tenant.ID, owner authz.ObjectOwner, u user.Info, namespace string,
) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool) {
	if u == nil || id.IsZero() {
		return nil, nil, true
	}
	for _, key := range subjectsOf(id, u) {
		for _, l := range slices.Concat(p.subjects[key][namespace], p.subjects[key][wildcard]) {
			if !l.appliesTo(u) {
				continue
			}
			allows := l.resource != "" && l.owner.matches(owner.ID)
			expressible := (l.resource != wildcard || !l.readonly) && l.owner.matches(id)
			if allows && !expressible {
				incomplete = true
			}
			if allows && expressible {
				resources = append(resources, &authorizer.DefaultResourceRuleInfo{
					Verbs:     l.verbs(),
					APIGroups: []string{l.apiGroup},
					Resources: []string{l.resource},
				})
			}
			if l.path != "" && (l.owner.any || l.owner.id.IsSystem()) {
				paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: l.verbs(), NonResourceURLs: []string{l.path}})
			}
		}
	}
	return resources, paths, incomplete
}

// subjectsOf returns the subjects that match u, a caller of tenant id.
func subjectsOf(id tenant.ID, u user.Info) (all []subject) {
	for _, callers := range [...]tenantMatcher{{id: id}, {any: true}} {
		all = append(all, subject{callers, u.GetName(), false})
		for _, group := range u.GetGroups() {
			all = append(all, subject{callers, group, true})
		}
	}
	return all
}

// appliesTo reports whether a line applies to u. The caller has found the line by a user name or
// a group of u, but the line may name both.
func (l *line) appliesTo(u user.Info) bool {
	return l.user == "" || l.group == "" || slices.Contains(u.GetGroups(), l.group)
}

func (l *line) verbs() []string {
	if l.readonly {
		return []string{"get", "list", "watch"}
	}
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
}
