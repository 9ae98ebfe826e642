// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// The reasons for denials with [Options.DenyLimited].
const (
	ReasonLimited   = "tenant scope: the scope of the binding does not include this tenant"
	ReasonExpired   = "tenant scope: the binding has expired"
	ReasonNotSynced = "tenant scope: the role bindings are not known yet"
)

// Options supplies the facts for the limits of bindings. Subject and Owner are required. They are
// called for limited bindings. If DerivedRoles is set, Subject is also called for callers whose
// bindings do not allow the request, and for reviews of rules.
type Options struct {
	// Subject returns the tenant of a user. With an error, the tenant is unknown. No binding that is
	// limited to the caller's own tenant then applies.
	Subject func(context.Context, user.Info) (tenant.ID, error)
	// Owner returns the tenant that owns the requested objects, or the zero ID if no tenant or
	// several tenants own them. With an error, the owner is unknown, and no binding that is limited
	// to tenants applies.
	Owner func(context.Context, authorizer.Attributes) (tenant.ID, error)
	// DerivedRoles returns the roles that callers of a tenant have without a binding. It is never
	// called for the system tenant. If nil, no such roles exist. Callers MUST set it only if the
	// boundary is not in shadow mode. A derived role applies in the whole cluster, and only the
	// boundary confines the role to the tenant's namespaces.
	DerivedRoles func(tenant.ID) []DerivedRole
	// DenyLimited specifies that the evaluator denies a request that no binding allows, if a
	// limited binding would allow it without its limits. Set it if the server next calls another
	// evaluator that ignores these limits.
	DenyLimited bool
	// Synced reports whether the index contains all bindings. Until then, an evaluator with
	// DenyLimited denies every request. If nil, the index is always complete.
	Synced func() bool
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Evaluator is an [authorizer.Authorizer] and [authorizer.RuleResolver] over an [Index]. It allows
// a request or has no opinion. It denies a request only with DenyLimited. It is safe for concurrent
// use.
type Evaluator struct {
	index *Index
	Options
}

var (
	_ authorizer.Authorizer   = (*Evaluator)(nil)
	_ authorizer.RuleResolver = (*Evaluator)(nil)
)

// New returns the evaluator of an index.
func New(index *Index, o Options) *Evaluator { return &Evaluator{index, o} }

// request is a request that is compared with rules.
type request struct {
	user                                     user.Info
	isResource                               bool
	verb, group, resource, subresource, name string
	namespace, path                          string
	mask                                     mask
}

func newRequest(a authorizer.Attributes) request {
	if r, ok := a.(*authorizer.AttributesRecord); ok {
		// The methods of AttributesRecord have value receivers, so each call through the interface
		// would copy the whole struct.
		return request{
			user:        r.User,
			isResource:  r.ResourceRequest,
			verb:        r.Verb,
			group:       r.APIGroup,
			resource:    r.Resource,
			subresource: r.Subresource,
			name:        r.Name,
			namespace:   r.Namespace,
			path:        r.Path,
		}
	}
	return request{
		user:        a.GetUser(),
		isResource:  a.IsResourceRequest(),
		verb:        a.GetVerb(),
		group:       a.GetAPIGroup(),
		resource:    a.GetResource(),
		subresource: a.GetSubresource(),
		name:        a.GetName(),
		namespace:   a.GetNamespace(),
		path:        a.GetPath(),
	}
}

// Authorize implements [authorizer.Authorizer].
func (e *Evaluator) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r := newRequest(a)
	if r.user == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if e.DenyLimited && e.Synced != nil && !e.Synced() {
		return authorizer.DecisionDeny, ReasonNotSynced, nil
	}
	if r.isResource {
		r.mask = e.index.masks.request(&r)
	}
	allowing, limited, dangling := e.index.find(&r)
	for _, b := range limited {
		if allowing == nil && b.limits.applies(ctx, &e.Options, r.user, a) {
			allowing = b
		}
	}
	if allowing != nil {
		return authorizer.DecisionAllow, allowing.reason(&r), nil
	}
	if reason, ok := e.allowDerived(ctx, &r); ok {
		return authorizer.DecisionAllow, reason, nil
	}
	if len(limited) > 0 && e.DenyLimited {
		return authorizer.DecisionDeny, limitedReason(limited, e.now()), nil
	}
	reason := ""
	if dangling {
		reason = fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(e.index.missingRoleErrors(&r)))
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer].
func (e *Evaluator) ConditionsAwareAuthorize(
	ctx context.Context, a authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(e.Authorize(ctx, a))
}

// EvaluateConditions implements [authorizer.Authorizer]. The evaluator returns no conditions.
func (e *Evaluator) EvaluateConditions(
	context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// limitedReason returns the reason of a denial if only limited bindings match the request and none
// applies.
func limitedReason(limited []*binding, now time.Time) string {
	if slices.ContainsFunc(limited, func(b *binding) bool { return !b.limits.expired(now) }) {
		return ReasonLimited
	}
	return ReasonExpired
}

// find returns a binding without limits that allows the request. If there is none, it returns the
// limited bindings that would allow the request, and reports in dangling whether the role of a
// matching binding does not exist.
func (x *Index) find(r *request) (allowing *binding, limited []*binding, dangling bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for key := range r.keys {
		for _, b := range x.subjects[key] {
			if b.role == nil || b.role.content == nil {
				dangling = true
				continue
			}
			if !b.role.allows(r) {
				continue
			}
			if b.limits == nil {
				return b, nil, false
			}
			limited = append(limited, b)
		}
	}
	return nil, limited, dangling
}

// keys yields the keys of the subjects that match the request.
func (r *request) keys(yield func(subjectKey) bool) {
	name := r.user.GetName()
	groups := r.user.GetGroups()
	for i, namespace := range [...]string{"", r.namespace} {
		if i > 0 && namespace == "" {
			return
		}
		if !yield(subjectKey{namespace, name, false}) {
			return
		}
		for _, group := range groups {
			if !yield(subjectKey{namespace, group, true}) {
				return
			}
		}
	}
}

// bindingsFor returns the bindings whose subjects match the request, each once.
func (x *Index) bindingsFor(r *request) []*binding {
	var all []*binding
	seen := map[*binding]bool{}
	for key := range r.keys {
		for _, b := range x.subjects[key] {
			if !seen[b] {
				seen[b] = true
				all = append(all, b)
			}
		}
	}
	return all
}

// missingRoleErrors returns an error for each matching binding whose role does not exist, with
// the same text as upstream's listers.
func (x *Index) missingRoleErrors(r *request) []error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var errs []error
	for _, b := range x.bindingsFor(r) {
		if b.role == nil || b.role.content == nil {
			errs = append(errs, b.missingRoleError())
		}
	}
	return errs
}

func (b *binding) missingRoleError() error {
	switch ref := b.roleRef(); ref.Kind {
	case "Role":
		return apierrors.NewNotFound(rbacv1.Resource("role"), ref.Name)
	case "ClusterRole":
		return apierrors.NewNotFound(rbacv1.Resource("clusterrole"), ref.Name)
	default:
		return fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
}

// RulesFor implements [authorizer.RuleResolver]. It omits the rules of bindings that are limited to
// listed tenants or to the caller's own tenant, because a rule cannot express this limit. The
// result is then incomplete. It ignores expired bindings.
func (e *Evaluator) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if u == nil {
		return nil, nil, true, nil
	}
	rules := e.derivedRules(ctx, u)
	var errs []error
	incomplete := false
	x := e.index
	now := e.now()
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, b := range x.bindingsFor(&request{user: u, namespace: namespace}) {
		switch {
		case b.limits != nil && b.limits.expired(now):
			continue
		case b.role == nil || b.role.content == nil:
			errs = append(errs, b.missingRoleError())
			continue
		case b.limits != nil && !b.limits.allTenants:
			incomplete = true
			continue
		}
		rules.add(b.role.content)
	}
	return rules.resources, rules.paths, incomplete, utilerrors.NewAggregate(errs)
}

// reasonCap is large enough for most reasons, in bytes.
const reasonCap = 192

// reason returns the reason why the binding allows a request, in the format that upstream writes
// to audit events. It does not use fmt, because it runs for every allowed request.
func (b *binding) reason(r *request) string {
	text := make([]byte, 0, reasonCap)
	if b.namespaced != nil {
		text = append(text, "RBAC: allowed by RoleBinding "...)
		text = strconv.AppendQuote(text, b.namespaced.Name+"/"+b.namespaced.Namespace)
	} else {
		text = append(text, "RBAC: allowed by ClusterRoleBinding "...)
		text = strconv.AppendQuote(text, b.cluster.Name)
	}
	ref := b.roleRef()
	text = append(append(append(text, " of "...), ref.Kind...), ' ')
	text = append(strconv.AppendQuote(text, ref.Name), " to "...)
	return string(b.appendSubject(text, r))
}

// appendSubject appends the first subject that matches the user of the request.
func (b *binding) appendSubject(text []byte, r *request) []byte {
	subjects := b.subjects()
	namespace := b.namespace()
	for i := range subjects {
		s := &subjects[i]
		key, ok := keyOf(s, namespace)
		if !ok || !r.hasSubject(key) {
			continue
		}
		return appendSubject(text, s, namespace)
	}
	return text
}

// appendSubject appends a subject of a binding in a namespace, in the format of upstream.
func appendSubject(text []byte, s *rbacv1.Subject, namespace string) []byte {
	text = append(append(text, s.Kind...), ' ')
	if s.Kind != rbacv1.ServiceAccountKind {
		return strconv.AppendQuote(text, s.Name)
	}
	return strconv.AppendQuote(text, s.Name+"/"+cmp.Or(s.Namespace, namespace))
}

func (r *request) hasSubject(want subjectKey) bool {
	for key := range r.keys {
		if key == want {
			return true
		}
	}
	return false
}
