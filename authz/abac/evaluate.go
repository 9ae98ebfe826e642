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

// Allows reports whether a line allows a request of a caller of tenant id in a space. A caller
// without a tenant is never allowed, nor a request in nobody's space. A request over the objects of
// several tenants matches lines for any space only.
//
// Impersonation is never allowed, and a readonly line lets nobody connect: what a get of
// pods/exec or nodes/proxy does is no reading.
func (p *Policy) Allows(id tenant.ID, space authz.Space, a authorizer.Attributes) bool {
	return p.Line(id, space, a) > 0
}

// Line is [Policy.Allows], and says which line of the file allows the request, from 1; 0 for none.
func (p *Policy) Line(id tenant.ID, space authz.Space, a authorizer.Attributes) int {
	u := a.GetUser()
	if u == nil || id.IsZero() || strings.HasPrefix(a.GetVerb(), "impersonate") {
		return 0
	}
	r := request{
		Attributes: a,
		space:      space,
		groups:     u.GetGroups(),
		isResource: a.IsResourceRequest(),
	}
	if r.isResource {
		r.group, r.resource, r.namespace = a.GetAPIGroup(), a.GetResource(), a.GetNamespace()
	} else {
		r.path = a.GetPath()
	}
	for _, whose := range [...]tenants{{id: id}, {any: true}} {
		if whose.any && !p.anyBound {
			continue
		}
		if number := p.matches(subject{whose, u.GetName(), false}, &r); number > 0 {
			return number
		}
		for _, group := range r.groups {
			if number := p.matches(subject{whose, group, true}, &r); number > 0 {
				return number
			}
		}
	}
	return 0
}

// request is what lines are held against.
type request struct {
	authorizer.Attributes
	space                            authz.Space
	groups                           []string
	isResource                       bool
	group, resource, namespace, path string
}

// matches returns the number of a line of the subject that allows the request, 0 for none.
func (p *Policy) matches(key subject, r *request) int {
	lines := p.subjects[key]
	if lines == nil {
		return 0
	}
	if r.isResource && r.namespace != anything {
		if i := slices.IndexFunc(lines[r.namespace], r.allowedBy); i >= 0 {
			return lines[r.namespace][i].number
		}
	}
	if i := slices.IndexFunc(lines[anything], r.allowedBy); i >= 0 {
		return lines[anything][i].number
	}
	return 0
}

// allowedBy reports whether a line of the right user or group and namespace allows the request.
func (r *request) allowedBy(l *line) bool {
	switch {
	case l.user != "" && l.group != "" && !slices.Contains(r.groups, l.group):
		return false
	case !l.space.any && !l.space.has(r.space.ID), l.space.any && r.space.ID.IsZero() && !r.space.All:
		return false
	case l.readonly && (!r.IsReadOnly() || connects(r.GetSubresource())):
		return false
	case !r.isResource:
		return l.matchesPath(r.path)
	}
	return (l.resource == anything || l.resource == r.resource) && (l.apiGroup == anything || l.apiGroup == r.group) &&
		l.resource != ""
}

// connects reports whether a subresource reaches something behind the server.
func connects(subresource string) bool {
	switch subresource {
	case "proxy", "exec", "attach", "portforward":
		return true
	}
	return false
}

// LineSubject is whom a line of the file is about.
type LineSubject struct {
	// Number of the line, from 1.
	Number int
	// User and Group must both be the caller's, where both are given.
	User, Group string
	// Tenant of the caller; the zero ID for any.
	Tenant tenant.ID
}

// Subjects returns whom the lines are about, in the file's order.
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
	// about resources and paths
	return slices.CompactFunc(all, func(a, b LineSubject) bool { return a.Number == b.Number })
}

// Of returns the numbers of the lines that are about u, a caller of tenant id, in the file's order.
func (p *Policy) Of(id tenant.ID, u user.Info) []int {
	var numbers []int
	for _, key := range subjectsOf(id, u) {
		for _, lines := range p.subjects[key] {
			for _, l := range lines {
				if l.isAbout(u) {
					numbers = append(numbers, l.number)
				}
			}
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// RulesFor returns what the lines allow u, a caller of tenant id, in a namespace and its space.
// What a rule cannot say is left out, and incomplete is true: that reading everything is not
// connecting, and that a line for another tenant's space is not about cluster-scoped resources.
func (p *Policy) RulesFor(
	id tenant.ID, space authz.Space, u user.Info, namespace string,
) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool) {
	if u == nil || id.IsZero() {
		return nil, nil, true
	}
	for _, key := range subjectsOf(id, u) {
		for _, l := range slices.Concat(p.subjects[key][namespace], p.subjects[key][anything]) {
			if !l.isAbout(u) {
				continue
			}
			switch {
			case l.resource == "" || !l.space.has(space.ID):
			case l.resource == anything && l.readonly, !l.space.has(id):
				incomplete = true
			default:
				resources = append(resources, &authorizer.DefaultResourceRuleInfo{
					Verbs:     l.verbs(),
					APIGroups: []string{l.apiGroup},
					Resources: []string{l.resource},
				})
			}
			if l.path != "" && (l.space.any || l.space.id.IsSystem()) {
				paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: l.verbs(), NonResourceURLs: []string{l.path}})
			}
		}
	}
	return resources, paths, incomplete
}

// subjectsOf are the subjects that u is, as a caller of tenant id.
func subjectsOf(id tenant.ID, u user.Info) (all []subject) {
	for _, whose := range [...]tenants{{id: id}, {any: true}} {
		all = append(all, subject{whose, u.GetName(), false})
		for _, group := range u.GetGroups() {
			all = append(all, subject{whose, group, true})
		}
	}
	return all
}

// isAbout reports whether a line that was found by one of u's subjects is about u: one may
// name a user and a group.
func (l *line) isAbout(u user.Info) bool {
	return l.user == "" || l.group == "" || slices.Contains(u.GetGroups(), l.group)
}

func (l *line) verbs() []string {
	if l.readonly {
		return []string{"get", "list", "watch"}
	}
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
}
