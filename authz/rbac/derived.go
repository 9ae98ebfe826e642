// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// DerivedRole is a ClusterRole that callers of one tenant have in the whole cluster without a
// binding. It is not stored as an object, so no caller has the role on a server without kubetenant.
type DerivedRole struct {
	// Source specifies what provides the role, such as `Tenant "acme"`.
	Source string
	// ClusterRole is the name of the role. If no such ClusterRole exists, the DerivedRole allows
	// nothing.
	ClusterRole string
	// Subjects are the callers of the tenant that have the role.
	Subjects []rbacv1.Subject
	// EveryCaller grants the role to every caller of the tenant, regardless of Subjects.
	EveryCaller bool
}

// includes reports whether the caller of a request, which belongs to the tenant, has the role.
func (d *DerivedRole) includes(r *request) bool {
	_, ok := d.subject(r)
	return ok || d.EveryCaller
}

// subject returns the subject that matches the caller of a request. ok is false if no subject
// matches.
func (d *DerivedRole) subject(r *request) (s *rbacv1.Subject, ok bool) {
	for i := range d.Subjects {
		if key, valid := keyOf(&d.Subjects[i], ""); valid && r.hasSubject(key) {
			return &d.Subjects[i], true
		}
	}
	return nil, false
}

// derivedRoles returns the roles that u has without a binding. A caller of the system tenant, or
// of an unknown tenant, has none.
func (e *Evaluator) derivedRoles(ctx context.Context, u user.Info) []DerivedRole {
	if e.DerivedRoles == nil {
		return nil
	}
	id, err := e.Subject(ctx, u)
	if err != nil || id.IsZero() || id.IsSystem() {
		return nil
	}
	r := request{user: u}
	return slices.DeleteFunc(e.DerivedRoles(id), func(d DerivedRole) bool { return !d.includes(&r) })
}

// allowDerived returns the reason for which a derived role allows the request. ok is false if no
// derived role allows it.
func (e *Evaluator) allowDerived(ctx context.Context, r *request) (reason string, ok bool) {
	for _, d := range e.derivedRoles(ctx, r.user) {
		if role := e.index.clusterRole(d.ClusterRole); role != nil && role.allows(r) {
			return d.reason(r), true
		}
	}
	return "", false
}

// derivedRules returns the rules of all roles that u has without a binding.
func (e *Evaluator) derivedRules(ctx context.Context, u user.Info) (rules ruleList) {
	for _, d := range e.derivedRoles(ctx, u) {
		if role := e.index.clusterRole(d.ClusterRole); role != nil {
			rules.add(role)
		}
	}
	return rules
}

// clusterRole returns the content of a ClusterRole, or nil if the ClusterRole does not exist.
func (x *Index) clusterRole(name string) *content {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.roles[objectKey{name: name}]; r != nil {
		return r.content
	}
	return nil
}

// reason returns the reason for which the derived role allows a request.
func (d *DerivedRole) reason(r *request) string {
	text := append(make([]byte, 0, reasonCap), "RBAC: allowed by "...)
	text = append(append(text, d.Source...), " of ClusterRole "...)
	text = append(strconv.AppendQuote(text, d.ClusterRole), " to "...)
	if s, ok := d.subject(r); ok {
		return string(appendSubject(text, s, ""))
	}
	return string(append(text, "every caller of the tenant"...))
}

// ruleList collects rules in the form of a SelfSubjectRulesReview.
type ruleList struct {
	resources []authorizer.ResourceRuleInfo
	paths     []authorizer.NonResourceRuleInfo
}

func (l *ruleList) add(role *content) {
	for _, rule := range role.rules {
		if len(rule.Resources) > 0 {
			l.resources = append(l.resources, &authorizer.DefaultResourceRuleInfo{
				Verbs:         rule.Verbs,
				APIGroups:     rule.APIGroups,
				Resources:     rule.Resources,
				ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			l.paths = append(l.paths,
				&authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
}
