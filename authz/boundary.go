// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
)

// ObjectVerb is one verb on one object.
type ObjectVerb struct {
	Verb, Namespace, Name string
	Resource              schema.GroupResource
}

// Options configure a [Boundary]. Subjects and Owners are required.
type Options struct {
	Subjects *Subjects
	Owners   *Owners
	Scopes   Scopes
	// UnboundPaths and UnboundObjects specify the only requests that callers without a tenant may
	// make. Callers of tenants may access these paths too.
	UnboundPaths   []string
	UnboundObjects []ObjectVerb
	// Shared specifies the cluster-scoped resources that every tenant may read.
	Shared []schema.GroupResource
	// DescribesTenant reports whether a cluster-scoped object of the project's own kinds is about a tenant.
	// The callers of this tenant may get the object. It also reports true if no object has the name
	// and the name is reserved for the tenant, so that these callers get a 404. It MUST report false
	// if that is unknown, and for other resources. If nil, no object is about a tenant.
	DescribesTenant func(resource schema.GroupResource, name string, id tenant.ID) bool
	// ObjectField returns a field, and the value that the field has in the objects about a tenant and
	// in no other object. Lists and watches of these objects are limited by it. It MUST return
	// metadata.name only if an object of that name can never be about another tenant. The field is
	// empty for other resources, and if it is unknown. If nil, there are no such objects.
	ObjectField func(resource schema.GroupResource, id tenant.ID) (field, value string)
	// TenantWritable specifies resources. A tenant may create, update, patch and delete the object that
	// is about it. A create request may have no name yet. Admission MUST therefore check the object's
	// tenant.
	TenantWritable []schema.GroupResource
	// ServiceAccountsInTenantGroup specifies that the server adds service accounts to the group of their tenant
	// when it authenticates them. A reviewed or impersonated service account then gets the group too.
	ServiceAccountsInTenantGroup bool
	// Labeled reports whether all objects of a tenant and no other objects have its label. It is
	// called for namespaced resources. If true, a list over all namespaces may be limited to the
	// label. If nil, such lists are denied.
	Labeled func(schema.GroupResource, tenant.ID) bool
	// Selectable specifies namespaced resources of aggregated servers that honor label selectors.
	// Their objects have the tenant's label.
	Selectable []schema.GroupResource
	// Access returns the access level of a tenant's callers. It MUST return quickly and be safe for
	// concurrent use. When the level becomes stricter, the active requests of these callers MUST be
	// ended ([Sessions.EndTenants]). If nil, every tenant has [AccessOpen].
	Access func(tenant.ID) Access
	// Exceptions are evaluated in this order before the boundary decides.
	Exceptions []Exception
	// Stale reports whether the caches behind Owners and Scopes are outdated. If they are, callers of
	// tenants are denied. If nil, the caches are always current.
	Stale func() bool
	// Shadow records a denial and delegates the request. Lists over all namespaces are not limited.
	// Even in shadow mode, the boundary denies revoked callers, callers of deleted tenants, and
	// requests that exceed [AccessClosed] or [AccessReadOnly].
	Shadow bool
	// Revoked reports whether a caller is revoked. It covers the callers that authentication does not
	// check: impersonated users and, if the server authenticates requests itself, every caller. If
	// nil, no caller is revoked.
	Revoked func(tenant.ID, user.Info) bool
	// Limits apply to the identities of tenants' callers. The zero value means tenant.DefaultLimits.
	Limits tenant.Limits
	// QualifiedNames specifies that the names of a tenant's callers begin with the tenant and a colon.
	// A tenant's caller may not impersonate other names.
	QualifiedNames bool
	// PrefixesReserved specifies that a namespace whose name begins with a tenant's prefix never belongs to
	// another tenant. A tenant's caller may then request a missing namespace with its own prefix, so
	// that the server can report that it does not exist.
	PrefixesReserved bool
	// RulesReviewsBypassBoundary specifies that the server answers reviews of rules without [Boundary.RulesFor].
	// Tenants may then not create them, because the answers would contain roles of other tenants.
	RulesReviewsBypassBoundary bool
	// Reviews lets tenants' callers create reviews of other callers. The handler of the reviews MUST
	// answer a tenant only from what that tenant may know. The handler of an API server does not.
	Reviews bool
	// Observe is called for each decision. It MUST return quickly and be safe for concurrent use. If
	// nil, decisions are not reported.
	Observe func(context.Context, Outcome)
}

// An Outcome is the boundary's decision about one request.
type Outcome struct {
	// Caller is zero if the caller has no tenant. Owner is zero if no tenant owns the object, or if
	// the owner was not looked up.
	Caller, Owner tenant.ID
	Verdict       Verdict
	// Reason is [ReasonNone] if the verdict is Delegated. Rule is set only if the verdict is
	// Delegated.
	Reason Reason
	Rule   Rule
}

// A Verdict is the kind of the boundary's decision.
type Verdict string

// The verdicts. The delegate decides about a delegated request.
const (
	Delegated    Verdict = "delegate"
	Excepted     Verdict = "allow"
	Denied       Verdict = "deny"
	ShadowDenied Verdict = "shadow-deny" // denied if not in shadow mode, and delegated
)

// Boundary denies a request that reaches objects of another tenant, and delegates every other
// request. It implements [authorizer.Authorizer] and, by [Boundary.RulesFor],
// [authorizer.RuleResolver]. The zero value is not usable. A Boundary is safe for concurrent use.
//
// Except for its [Exception]s, it never allows a request itself. It never returns NoOpinion itself,
// so that another authorizer of a union cannot override its denial. A denial has a [Reason] and no
// error, because kube-apiserver would print the error in a 500 response. Errors are logged.
type Boundary struct {
	Options
	delegate authorizer.Authorizer
	rules    authorizer.RuleResolver
}

var (
	_ authorizer.Authorizer   = (*Boundary)(nil)
	_ authorizer.RuleResolver = (*Boundary)(nil)
)

// New returns a boundary in front of delegate and rules. If delegate is nil, the boundary returns
// NoOpinion for delegated requests. If rules is nil, it lists no rules.
func New(o Options, delegate authorizer.Authorizer, rules authorizer.RuleResolver) *Boundary {
	if delegate == nil {
		delegate = authorizer.AuthorizerFunc(func(
			context.Context, authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
	return &Boundary{Options: o, delegate: delegate, rules: rules}
}

// Authorize implements [authorizer.Authorizer].
func (b *Boundary) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	delegated, decision, reason := b.check(ctx, a)
	if delegated == nil {
		return decision, reason.String(), nil
	}
	return b.delegate.Authorize(ctx, delegated)
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]. It makes the same check as
// [Boundary.Authorize] and then calls the delegate.
func (b *Boundary) ConditionsAwareAuthorize(
	ctx context.Context, a authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	delegated, decision, reason := b.check(ctx, a)
	if delegated == nil {
		return authorizer.ConditionsAwareDecisionFromParts(decision, reason.String(), nil)
	}
	return b.delegate.ConditionsAwareAuthorize(ctx, delegated)
}

// EvaluateConditions implements [authorizer.Authorizer]. Only the delegate returns conditions.
func (b *Boundary) EvaluateConditions(
	ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return b.delegate.EvaluateConditions(ctx, d, data)
}

// DenialReason returns why the boundary denies a request that did not pass the filters of the server. It
// returns [ReasonNone] if the boundary does not deny it. Shadow mode does not apply, and Observe is
// not called.
func (b *Boundary) DenialReason(ctx context.Context, a authorizer.Attributes) Reason {
	strict := &Boundary{Options: b.Options}
	strict.Shadow, strict.Observe = false, nil
	delegated, decision, reason := strict.check(ctx, a)
	if delegated != nil || decision == authorizer.DecisionAllow {
		return ReasonNone
	}
	return reason
}

func userName(u user.Info) string {
	if u == nil {
		return ""
	}
	return u.GetName()
}

// verdict is the boundary's decision about one request. The zero value denies.
type verdict struct {
	delegate bool
	excepted bool      // an exception allows the request
	reason   Reason    // the reason of a denial or an exception
	rule     Rule      // the rule that delegates the request
	err      error     // the error to log
	owner    tenant.ID // the owner of the object; zero if unowned or not looked up
	limits   *limits   // set for limited lists and for exceptions, otherwise nil
}

// limits restrict a request that the boundary lets through. The zero value limits nothing.
type limits struct {
	selector labels.Requirements // label selector to apply
	name     string              // name of the only object that a list may return
	fields   fields.Selector     // field selector of a list of objects about a tenant
	until    time.Time           // end of the exception; zero if it has none
}

// limitsOrZero returns the limits of a verdict, or the zero value if it has none.
func (v *verdict) limitsOrZero() limits {
	if v.limits == nil {
		return limits{}
	}
	return *v.limits
}

// check decides about a request. It resolves the caller, evaluates the exceptions, decides, and
// limits a request over all namespaces. It returns the attributes for the delegate. If these are
// nil, the decision and its reason are final.
func (b *Boundary) check(
	ctx context.Context, a authorizer.Attributes,
) (authorizer.Attributes, authorizer.Decision, Reason) {
	state := requestStateFrom(ctx)
	attrs := readAttributes(a)
	c := b.resolve(ctx, state, &attrs)
	if state == nil && !c.tenant.IsSystem() {
		b.normalizeReview(&attrs)
	}
	v := b.evaluate(ctx, state, &c, &attrs)
	out := Outcome{
		Caller:  c.tenant,
		Owner:   v.owner,
		Verdict: b.verdictOf(&v),
		Reason:  v.reason,
		Rule:    v.rule,
	}
	b.report(ctx, &attrs, &v, &out)
	// Only the request's own attributes are annotated, because the event has one value for each key.
	if state != nil && !attrs.isImpersonation() {
		annotate(ctx, state.path, out)
		b.recordDecision(state, &c, &v)
	}
	switch {
	case v.excepted:
		return nil, authorizer.DecisionAllow, v.reason
	case out.Verdict == Denied:
		return nil, authorizer.DecisionDeny, v.reason
	case b.Shadow:
		return a, authorizer.DecisionNoOpinion, ReasonNone
	case c.user == attrs.user && v.limits == nil:
		return attrs.Attributes, authorizer.DecisionNoOpinion, ReasonNone
	}
	return &attributes{attrs.Attributes, c.user, v.limits}, authorizer.DecisionNoOpinion, ReasonNone
}

// evaluate returns the verdict about a request. It checks the caller and the access of its tenant
// first. Then, an exception applies, or the boundary decides.
func (b *Boundary) evaluate(ctx context.Context, state *requestState, c *caller, attrs *requestAttributes) verdict {
	access := b.accessOf(c.tenant)
	accessReason := access.denialReason(attrs)
	switch {
	case c.denied == ReasonRevoked:
		return verdict{reason: c.denied, err: c.err}
	case access == AccessRetired && c.denied == ReasonNone:
		return b.decideWithoutAccess(attrs, accessReason)
	case accessReason.deniesInShadowMode():
		return verdict{reason: accessReason, err: c.err} // in shadow mode too
	case c.denied != ReasonNone:
		return verdict{reason: c.denied, err: c.err}
	case b.Stale != nil && b.dependsOnCaches(c) && b.Stale():
		return verdict{reason: ReasonStale, err: c.err}
	case access == AccessNone:
		return b.decideWithoutAccess(attrs, accessReason)
	case accessReason != ReasonNone:
		return verdict{reason: accessReason, err: c.err}
	}
	if v := b.except(ctx, state, c, attrs); v.excepted {
		return v
	}
	return b.decide(ctx, state, c, attrs)
}

// decideWithoutAccess decides as for a caller without a tenant. Its denials have the given reason.
func (b *Boundary) decideWithoutAccess(attrs *requestAttributes, reason Reason) verdict {
	v := b.decideUnbound(attrs)
	if !v.delegate {
		v.reason = reason
	}
	return v
}

// recordDecision records the decision in the request state, for the innermost filter.
func (b *Boundary) recordDecision(state *requestState, c *caller, v *verdict) {
	l := v.limitsOrZero()
	state.handlerUser, state.selector, state.name, state.fields = c.user, l.selector, l.name, l.fields
	state.session = session{Caller: Caller{Tenant: c.tenant, User: c.user, MappedFrom: state.mappedFrom}}
	if c.user != nil && !state.isAuthenticatedUser(c.user) {
		state.session.Impersonator = state.authenticated
	}
	if b.Shadow {
		state.selector, state.name, state.fields = nil, "", nil
	} else if !c.tenant.IsSystem() {
		state.session.owner, state.session.excepted, state.session.until = v.owner, v.excepted, l.until
		if v.rule == RuleMissing {
			state.session.owner = c.tenant // ends when another tenant creates the namespace
		}
	}
}

// report logs errors and denials in shadow mode, and calls Observe.
func (b *Boundary) report(ctx context.Context, attrs *requestAttributes, v *verdict, out *Outcome) {
	if v.err != nil || out.Verdict == ShadowDenied {
		message := "Denied by the tenant boundary"
		if b.Shadow {
			message = "Would be denied by the tenant boundary"
		}
		klog.FromContext(ctx).Info(message, "code", v.reason.Code(), "reason", v.reason.String(), "err", v.err,
			"user", userName(attrs.user), "tenant", out.Caller,
			"verb", attrs.verb, "resource", attrs.resource.String(), "namespace", attrs.namespace)
	}
	if b.Observe != nil {
		b.Observe(ctx, *out)
	}
}

// verdictOf returns the verdict constant for v.
func (b *Boundary) verdictOf(v *verdict) Verdict {
	switch {
	case v.excepted:
		return Excepted
	case v.delegate:
		return Delegated
	case b.Shadow && !v.reason.deniesInShadowMode():
		return ShadowDenied
	}
	return Denied
}

// attributes are the attributes of a request with another user, or limited to a tenant by a label
// selector or by a field selector.
type attributes struct {
	authorizer.Attributes
	user   user.Info
	limits *limits // nil if the request is not limited
}

func (a *attributes) GetUser() user.Info { return a.user }

func (a *attributes) GetName() string {
	if a.limits != nil && a.limits.name != "" {
		return a.limits.name
	}
	return a.Attributes.GetName()
}

func (a *attributes) GetFieldSelector() (fields.Requirements, error) {
	if a.limits != nil && a.limits.fields != nil {
		return a.limits.fields.Requirements(), nil
	}
	return a.Attributes.GetFieldSelector()
}

func (a *attributes) GetLabelSelector() (labels.Requirements, error) {
	if a.limits != nil && a.limits.selector != nil {
		return a.limits.selector, nil
	}
	return a.Attributes.GetLabelSelector()
}
