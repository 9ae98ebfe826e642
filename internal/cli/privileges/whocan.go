// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Action is a request for which [Boundary.WhoCan] finds the subjects that may send it.
type Action struct {
	authorizer.AttributesRecord
	// Everywhere specifies one request in each namespace, instead of one request over all
	// namespaces.
	Everywhere bool
}

// Answer is a subject that may perform the action.
type Answer struct {
	// Cluster is the name of the cluster. It is empty unless the caller sets it.
	Cluster string `json:"cluster,omitempty"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	// Tenants contains the tenants whose callers with this name may perform the action. The name
	// alone does not identify a tenant.
	Tenants []string `json:"tenants"`
	// Scope describes where the subject may perform the action.
	Scope string `json:"scope"`
	// By is the binding, grant or policy line that allows the action. Role is the bound role.
	By   string `json:"by"`
	Role string `json:"role,omitempty"`
	// Path describes how the subject can become another identity. It is used by who-can-become.
	Path string `json:"path,omitempty"`
	// Only contains the names of the objects to which the right is limited. If empty, the right is
	// not limited.
	Only string `json:"only,omitempty"`
	// System reports whether a default binding of Kubernetes allows the action (see [IsDefault]).
	System bool `json:"system,omitempty"`
	// Across reports whether the path leads from one tenant to another. It is false for a path
	// from the system tenant.
	Across bool `json:"acrossTenants,omitempty"`
	// SystemOnly reports that only callers of the system tenant have this path to another tenant.
	SystemOnly bool `json:"systemOnly,omitempty"`
}

const wholeCluster = "the whole cluster"

// anyTenant is the entry in Answer.Tenants for callers of every tenant, if the request is outside
// namespaces.
const anyTenant = "any"

// AnyTenant is the entry in Answer.Tenants for callers of every tenant, each in the namespaces of
// its own tenant.
const AnyTenant = "any (in its own namespaces)"

// Boundary evaluates the tenant boundary. It uses the server's own authorizer with the cluster's
// namespaces, and with a delegate that allows every request.
type Boundary struct {
	stack        *stack.Stack
	snapshot     *simulator.Snapshot
	ownNamespace map[string]string // one namespace of each tenant, keyed by tenant
	lines        *abac.Policy      // lines of the policy file; may be nil
	someTenant   tenant.ID         // a tenant in ownNamespace, or zero if there is none
}

// NewBoundary returns the boundary for a configuration and a snapshot, including the AccessGrants
// in the snapshot. lines contains the lines of the policy file, and may be nil.
func NewBoundary(
	ctx context.Context, of *simulator.Snapshot, config *configv1alpha1.Settings, lines *abac.Policy,
) (*Boundary, error) {
	without := *config
	without.Authorization.ABAC = nil // byPolicy evaluates the policy file, to report the line
	all := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	bare := *of
	bare.Roles, bare.Bindings = nil, nil // the delegate allows everything
	stack, err := simulator.New(ctx, &without, &bare, all, nil)
	of = of.ForConfig(config)
	b := &Boundary{
		stack:        stack,
		snapshot:     of,
		lines:        lines,
		ownNamespace: map[string]string{},
	}
	for name := range of.Namespaces {
		owner := of.Owner(name)
		if first, ok := b.ownNamespace[owner.String()]; !owner.IsZero() && !owner.IsSystem() && (!ok || name < first) {
			b.ownNamespace[owner.String()] = name
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(b.ownNamespace)) {
		if id, err := tenant.Parse(owner); err == nil && !id.IsSystem() && b.someTenant.IsZero() {
			b.someTenant = id
		}
	}
	return b, err
}

// allows reports whether the boundary allows a caller's request. It also returns the boundary's
// reason.
func (b *Boundary) allows(ctx context.Context, u user.Info, a authorizer.AttributesRecord) (bool, string) {
	a.User = u
	decision, reason, err := b.stack.Authorizer.Authorize(simulator.WithSelfReviewRequest(ctx), &a)
	return err == nil && decision == authorizer.DecisionAllow, reason
}

// ForActions returns a selection of the objects that [Boundary.WhoCan] needs for actions in one
// namespace, or in all namespaces if namespace is empty.
func ForActions(namespace string, all []Action) Selection {
	verdicts := map[simulator.Key]bool{}
	return Selection{
		Namespace: namespace,
		Grants:    true,
		Scopes:    true,
		KeepBinding: func(p *simulator.Snapshot, b *simulator.Binding) bool {
			key := b.RoleKey()
			permits, ok := verdicts[key]
			if role := p.Roles[key]; !ok && role != nil {
				permits = slices.ContainsFunc(all, func(q Action) bool { _, allowed := q.allowedBy(role.Rules); return allowed })
			}
			verdicts[key] = permits
			return permits
		},
	}
}

// WhoCan returns the subjects that may perform an action, in a stable order.
func (b *Boundary) WhoCan(ctx context.Context, q *Action) []Answer {
	var answers []Answer
	for _, binding := range b.snapshot.Bindings {
		role := b.snapshot.Roles[binding.RoleKey()]
		if role == nil || binding.IsExpired(time.Now()) {
			continue
		}
		only, allows := q.allowedBy(role.Rules)
		if !allows {
			continue
		}
		if binding.Namespace != "" && (q.Namespace != binding.Namespace && !q.Everywhere || !q.IsResourceRequest()) {
			continue
		}
		for _, s := range binding.Subjects {
			if a, ok := b.answer(ctx, binding, SubjectOf(s, binding.Namespace), q); ok {
				a.Only, a.System = only, IsDefault(binding, s)
				answers = append(answers, a)
			}
		}
	}
	answers = append(answers, b.granted(ctx, q)...)
	answers = append(answers, b.byPolicy(q)...)
	slices.SortFunc(answers, compareAnswers)
	return answers
}

// ServerOnly returns the answer for an object that only the server may change.
func ServerOnly(namespace, source string) Answer {
	return Answer{
		Kind:    rbacv1.UserKind,
		Name:    tenant.ManagerUser,
		Tenants: []string{tenant.System().String()},
		Scope:   "namespace " + namespace,
		By:      source,
	}
}

// allowedBy reports whether rules allow the action. If the action has no object name, and the
// rules allow it only for some objects, only contains the names of these objects.
func (q *Action) allowedBy(rules []rbacv1.PolicyRule) (only string, allowed bool) {
	if rbac.Allows(rules, q.AttributesRecord) {
		return "", true
	}
	if q.Name != "" || !q.IsResourceRequest() {
		return "", false
	}
	var names []string
	for i := range rules {
		if len(rules[i].ResourceNames) == 0 {
			continue
		}
		named := q.AttributesRecord
		named.Name = rules[i].ResourceNames[0]
		if rbac.Allows(rules[i:i+1], named) {
			names = append(names, rules[i].ResourceNames...)
		}
	}
	return strings.Join(names, ", "), len(names) > 0
}

func compareAnswers(a, b Answer) int {
	return cmp.Or(
		cmp.Compare(a.Path, b.Path),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Scope, b.Scope),
		cmp.Compare(a.By, b.By),
	)
}

// answer returns the answer for a subject of a binding. It returns false if the boundary denies the
// action for every tenant.
func (b *Boundary) answer(ctx context.Context, binding *simulator.Binding, s Subject, q *Action) (Answer, bool) {
	a := Answer{
		Kind:  s.Kind,
		Name:  s.Title(),
		By:    binding.Kind() + " " + binding.Name,
		Role:  binding.RoleRef.Kind + " " + binding.RoleRef.Name,
		Scope: wholeCluster,
	}
	attrs := q.AttributesRecord
	if binding.Namespace != "" {
		a.By = binding.Kind() + " " + binding.Namespace + "/" + binding.Name
		a.Scope = "namespace " + binding.Namespace
		attrs.Namespace = binding.Namespace
	} else if q.Namespace != "" {
		a.Scope = "namespace " + q.Namespace
	}
	candidates, anybodys := s.Candidates(ctx, b.stack, b.snapshot, attrs.Namespace)
	if !binding.Derived.IsZero() {
		candidates = []tenant.ID{binding.Derived}
		anybodys = false
	}
	for _, id := range candidates {
		if b.allowsTenant(ctx, s, id, attrs, q) && b.applies(binding, id, attrs.Namespace) {
			a.Tenants = append(a.Tenants, id.String())
		}
	}
	if q.Namespace == "" && binding.Namespace == "" && anybodys && !b.someTenant.IsZero() &&
		b.allowsTenant(ctx, s, b.someTenant, attrs, q) {
		a.Tenants = append(a.Tenants, b.appliesToTenants(binding, q)...)
	}
	switch system := slices.Contains(a.Tenants, tenant.System().String()); {
	case a.Scope == wholeCluster && !system && (!binding.Derived.IsZero() || !b.isOutsideNamespaces(q)):
		a.Scope = "all namespaces of the tenant"
	case binding.Limited && system:
		a.Scope += ", limited to " + binding.Scope
	}
	return a, len(a.Tenants) > 0
}

// applies reports whether a binding applies to a tenant's caller in a namespace, according to the
// binding's annotations. If namespace is empty, it reports whether the binding applies in the
// tenant's namespaces. For the system tenant, it then only checks the expiration.
func (b *Boundary) applies(binding *simulator.Binding, id tenant.ID, namespace string) bool {
	owner := id
	switch {
	case namespace != "":
		owner = b.snapshot.Owner(namespace)
	case id.IsSystem():
		return !binding.IsExpired(time.Now())
	}
	return binding.AppliesTo(id, owner, time.Now())
}

// appliesToTenants returns the tenants to whose callers a ClusterRoleBinding applies. If the
// binding is not limited to some tenants, it returns [AnyTenant] or [anyTenant].
func (b *Boundary) appliesToTenants(binding *simulator.Binding, q *Action) []string {
	switch unlimited := !binding.Limited || binding.Scope == rbac.Tenanted; {
	case unlimited && b.isOutsideNamespaces(q):
		return []string{anyTenant}
	case unlimited:
		return []string{AnyTenant}
	}
	var some []string
	for name := range b.ownNamespace {
		if id, err := tenant.Parse(name); err == nil && !id.IsSystem() && b.applies(binding, id, "") {
			some = append(some, name)
		}
	}
	slices.Sort(some)
	return some
}

// isOutsideNamespaces reports whether the action is on a path or a cluster-scoped resource.
func (b *Boundary) isOutsideNamespaces(q *Action) bool {
	resource := schema.GroupResource{Group: q.APIGroup, Resource: q.Resource}
	return !q.IsResourceRequest() || authz.Scopes{Custom: b.snapshot.CustomScope}.Of(resource) == authz.ScopeCluster
}

// allowsTenant reports whether the boundary allows the action to a caller of a tenant. With
// Everywhere, it checks the action in one of the tenant's namespaces. It returns false if only an
// AccessGrant allows the action, because [Boundary.granted] reports that access.
func (b *Boundary) allowsTenant(
	ctx context.Context, s Subject, id tenant.ID, asked authorizer.AttributesRecord, q *Action,
) bool {
	if q.Everywhere && asked.Namespace == "" && !id.IsSystem() {
		asked.Namespace = b.ownNamespace[id.String()]
	}
	lets, reason := b.allows(ctx, s.Caller(id, asked.Namespace), asked)
	return lets && reason != authz.ReasonGrant.String()
}

// granted returns the answers for the subjects of valid AccessGrants.
func (b *Boundary) granted(ctx context.Context, q *Action) []Answer {
	var answers []Answer
	for _, u := range b.snapshot.Grants {
		if q.Namespace != "" && u.GetNamespace() != q.Namespace || q.Namespace == "" && !q.Everywhere {
			continue
		}
		g, err := accessgrant.Parse(u)
		if err != nil {
			continue // an invalid grant does not apply
		}
		id, err := tenant.Parse(g.Spec.From.Tenant)
		if err != nil {
			continue
		}
		attrs := q.AttributesRecord
		attrs.Namespace = g.Namespace
		for _, s := range SubjectsOf(g) {
			a := Answer{
				Kind:    s.Kind,
				Name:    s.Title(),
				Tenants: []string{id.String()},
				Scope:   "namespace " + g.Namespace,
				By:      "AccessGrant " + g.Namespace + "/" + g.Name,
			}
			for _, rule := range g.Spec.To {
				only, allows := q.allowedBy([]rbacv1.PolicyRule{{
					Verbs:         rule.Verbs,
					APIGroups:     rule.APIGroups,
					Resources:     rule.Resources,
					ResourceNames: rule.ResourceNames,
				}})
				if attrs.Name = q.Name; only != "" {
					attrs.Name = rule.ResourceNames[0]
				}
				if lets, reason := b.allows(ctx, s.Caller(id, ""), attrs); allows && lets && reason == authz.ReasonGrant.String() {
					a.Only = only
					answers = append(answers, a)
				}
			}
		}
	}
	return answers
}

// byPolicy returns the answers for lines of the policy file that allow the action.
func (b *Boundary) byPolicy(q *Action) []Answer {
	if b.lines == nil {
		return nil
	}
	owners := map[string]authz.ObjectOwner{q.Namespace: {ID: b.snapshot.Owner(q.Namespace)}}
	if q.Namespace == "" {
		owners = map[string]authz.ObjectOwner{"": {ID: tenant.System()}}
	}
	if q.Everywhere {
		owners = map[string]authz.ObjectOwner{}
		for ns := range b.snapshot.Namespaces {
			owners[ns] = authz.ObjectOwner{ID: b.snapshot.Owner(ns)}
		}
	}
	var answers []Answer
	for _, l := range b.lines.Subjects() {
		a := Answer{Kind: rbacv1.UserKind, Name: l.User, By: fmt.Sprintf("line %d of the policy file", l.Number)}
		if l.User == "" {
			a.Kind, a.Name = rbacv1.GroupKind, l.Group
		}
		for _, ns := range slices.Sorted(maps.Keys(owners)) {
			id := l.Tenant
			tenantName := l.Tenant.String()
			if id.IsZero() { // the line is for any tenant, so check it for the owner of the namespace
				id, tenantName = owners[ns].ID, AnyTenant
			}
			attrs := q.AttributesRecord
			attrs.Namespace, attrs.User = ns, &user.DefaultInfo{Name: cmp.Or(l.User, "somebody"), Groups: []string{l.Group}}
			if b.lines.Line(id, owners[ns], &attrs) != l.Number {
				continue
			}
			found := a
			found.Tenants = []string{tenantName}
			found.Scope = wholeCluster
			if ns != "" {
				found.Scope = "namespace " + ns
			}
			answers = append(answers, found)
		}
	}
	return answers
}
