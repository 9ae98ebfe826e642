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
	// make. Callers of tenants may access UnboundPaths too.
	UnboundPaths   []string
	UnboundObjects []ObjectVerb
	// Shared specifies the cluster-scoped resources that every tenant may read.
	Shared []schema.GroupResource
	// DescribesTenant reports whether the named object of a cluster-scoped resource describes
	// tenant id, as its Tenant object does. The callers of that tenant may get the object. It
	// also reports true for a missing object whose name is reserved for the tenant, so that these
	// callers get a 404 response. It MUST report false for resources of other projects, and if
	// the object's tenant cannot be determined. If nil, no object describes a tenant.
	DescribesTenant func(resource schema.GroupResource, name string, id tenant.ID) bool
	// ObjectField returns a field and a value. The objects that describe tenant id, and no other
	// objects, have the value in the field. The boundary limits the tenant's lists and watches of
	// the resource by this field. ObjectField MUST return metadata.name only if an object with
	// that name can never describe another tenant. It returns an empty field if the field is
	// unknown, and for resources whose objects do not describe tenants. If nil, these lists and
	// watches are denied.
	ObjectField func(resource schema.GroupResource, id tenant.ID) (field, value string)
	// TenantWritable specifies the resources in which a tenant's callers may create, update,
	// patch and delete the object that describes their tenant. A create request may not contain
	// the object's name yet. Admission MUST therefore check the tenant of the new object.
	TenantWritable []schema.GroupResource
	// ServiceAccountsInTenantGroup specifies that the server adds a service account to the group of
	// its tenant when it authenticates the account. The boundary then adds a reviewed or
	// impersonated service account to the group too.
	ServiceAccountsInTenantGroup bool
	// Labeled reports whether all objects of a tenant, and no other objects, have the tenant's
	// label. It is called for namespaced resources. If true, the boundary may limit a list over all
	// namespaces by the label. If nil, it denies such a list.
	Labeled func(schema.GroupResource, tenant.ID) bool
	// Selectable specifies the namespaced resources of aggregated servers that tenants may list
	// over all namespaces. These servers MUST honor label selectors, and exactly the objects of a
	// tenant MUST have the tenant's label.
	Selectable []schema.GroupResource
	// Access returns the access level of a tenant's callers. It MUST return quickly and be safe for
	// concurrent use. When the level becomes stricter, the program MUST end the active requests of
	// these callers ([Sessions.EndTenants]). If nil, every tenant has [AccessOpen].
	Access func(tenant.ID) Access
	// Exceptions are evaluated in this order before the rules of the boundary.
	Exceptions []Exception
	// Stale reports whether the caches behind Owners and Scopes are outdated. If they are, the
	// boundary denies callers of tenants. It also denies service accounts that belong to the
	// system tenant only because of their namespace's label. If nil, the caches are always
	// current.
	Stale func() bool
	// Shadow specifies that the boundary records a denial but delegates the request. It then limits
	// no lists. Even in shadow mode, the boundary denies revoked callers, callers of deleted
	// tenants, undated credentials that may belong to a deleted tenant, and requests that exceed
	// [AccessClosed] or [AccessReadOnly].
	Shadow bool
	// Revoked reports whether a caller is revoked. It is called for every caller with a tenant.
	// Authentication does not check impersonated users, and it checks no caller if the server
	// authenticates requests itself. If nil, no caller is revoked.
	Revoked func(tenant.ID, user.Info) bool
	// Limits are the maximum sizes of the identities of tenants' callers. Defaults to
	// [tenant.DefaultLimits].
	Limits tenant.Limits
	// QualifiedNames specifies that the user and group names of a tenant's callers begin with the
	// tenant and a colon. A tenant's caller may then impersonate no other users and groups,
	// except the tenant's own group.
	QualifiedNames bool
	// PrefixesReserved specifies that a namespace whose name begins with a tenant's prefix never
	// belongs to another tenant. The boundary then delegates some requests of a tenant's caller in
	// a missing namespace with the tenant's prefix, so that the server can report that the
	// namespace does not exist.
	PrefixesReserved bool
	// RulesReviewsBypassBoundary specifies that the server answers a SelfSubjectRulesReview without
	// [Boundary.RulesFor]. The boundary then denies these reviews to tenants, because the answers
	// would contain roles of other tenants.
	RulesReviewsBypassBoundary bool
	// Reviews allows tenants' callers to create a TokenReview, SubjectAccessReview or
	// LocalSubjectAccessReview. The handler of these reviews MUST reveal to a tenant only facts
	// about that tenant. The handlers of kube-apiserver do not have this limit.
	Reviews bool
	// Observe is called for each decision except those of [Boundary.DenialReason]. It MUST return
	// quickly and be safe for concurrent use. If nil, it is not called.
	Observe func(context.Context, Outcome)
}

// An Outcome is the boundary's decision about one request.
type Outcome struct {
	// Caller is zero if the caller has no tenant or an unknown tenant. Owner is zero if no tenant
	// owns the object, or if the owner was not looked up.
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
	ShadowDenied Verdict = "shadow-deny" // delegated only because of shadow mode
)

// Boundary denies a request that may reach outside the caller's tenant, and delegates every other
// request. It implements [authorizer.Authorizer] and, with [Boundary.RulesFor],
// [authorizer.RuleResolver]. The zero value is not usable. A Boundary is safe for concurrent use.
//
// Except for its [Exception]s, it never allows a request itself. It denies with DecisionDeny and
// not with NoOpinion, so that another authorizer of a union cannot override the denial. A denial
// has a [Reason] and no error, because kube-apiserver would print the error in a 500 response.
// Errors are logged.
type Boundary struct {
	options  Options
	delegate authorizer.Authorizer
	rules    authorizer.RuleResolver
}

var (
	_ authorizer.Authorizer   = (*Boundary)(nil)
	_ authorizer.RuleResolver = (*Boundary)(nil)
)

// New returns a boundary in front of delegate and rules. If delegate is nil, the boundary returns
// NoOpinion for delegated requests. If rules is nil, [Boundary.RulesFor] returns no rules and an
// error.
func New(o Options, delegate authorizer.Authorizer, rules authorizer.RuleResolver) *Boundary {
	if delegate == nil {
		delegate = authorizer.AuthorizerFunc(func(
			context.Context, authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
	return &Boundary{options: o, delegate: delegate, rules: rules}
}

// Options returns a copy of the options with which the boundary was created.
func (b *Boundary) Options() Options { return b.options }

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

// DenialReason returns the reason for which the boundary denies a request, or [ReasonNone] if the
// boundary does not deny it. It is for requests that have not passed the filters of the server,
// such as reviewed requests. It ignores shadow mode and does not call Observe.
func (b *Boundary) DenialReason(ctx context.Context, a authorizer.Attributes) Reason {
	strict := &Boundary{options: b.options}
	strict.options.Shadow, strict.options.Observe = false, nil
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

// verdict is the boundary's decision about one request. The zero value is a denial.
type verdict struct {
	delegate bool
	excepted bool      // an exception allows the request
	reason   Reason    // the reason of a denial or an exception
	rule     Rule      // the rule that delegates the request
	err      error     // the error to log
	owner    tenant.ID // the owner of the object; zero if unowned or not looked up
	limits   *limits   // set for limited lists and for exceptions, otherwise nil
}

// limits restrict a request that the boundary delegates or allows. The zero value limits nothing.
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

// check decides about a request. It resolves the caller, evaluates the exceptions, applies the
// rules of the boundary, and limits a request over all namespaces. It returns the attributes for
// the delegate. If these are nil, the decision and its reason are final.
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
	// The audit event has one value for each key, so only the decision about the request itself is
	// annotated.
	if state != nil && !attrs.isImpersonation() {
		annotate(ctx, state.path, out)
		b.recordDecision(state, &c, &v)
	}
	switch {
	case v.excepted:
		return nil, authorizer.DecisionAllow, v.reason
	case out.Verdict == Denied:
		return nil, authorizer.DecisionDeny, v.reason
	case b.options.Shadow:
		return a, authorizer.DecisionNoOpinion, ReasonNone
	case c.user == attrs.user && v.limits == nil:
		return attrs.Attributes, authorizer.DecisionNoOpinion, ReasonNone
	}
	return &attributes{attrs.Attributes, c.user, v.limits}, authorizer.DecisionNoOpinion, ReasonNone
}

// evaluate returns the verdict about a request. It first checks the caller and the access level
// of its tenant. Then, an exception applies, or the boundary decides.
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
	case b.options.Stale != nil && b.dependsOnCaches(c) && b.options.Stale():
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
	if b.options.Shadow {
		state.selector = nil
		state.name = ""
		state.fields = nil
	} else if !c.tenant.IsSystem() {
		state.session.owner, state.session.excepted, state.session.until = v.owner, v.excepted, l.until
		if v.rule == RuleMissing {
			state.session.owner = c.tenant // the session ends if another tenant creates the namespace
		}
	}
}

// report logs errors and shadow denials, and calls [Options.Observe].
func (b *Boundary) report(ctx context.Context, attrs *requestAttributes, v *verdict, out *Outcome) {
	if v.err != nil || out.Verdict == ShadowDenied {
		message := "Denied by the tenant boundary"
		if b.options.Shadow {
			message = "Would be denied by the tenant boundary"
		}
		klog.FromContext(ctx).Info(message, "code", v.reason.Code(), "reason", v.reason.String(), "err", v.err,
			"user", userName(attrs.user), "tenant", out.Caller,
			"verb", attrs.verb, "resource", attrs.resource.String(), "namespace", attrs.namespace)
	}
	if b.options.Observe != nil {
		b.options.Observe(ctx, *out)
	}
}

// verdictOf returns the verdict constant for v.
func (b *Boundary) verdictOf(v *verdict) Verdict {
	switch {
	case v.excepted:
		return Excepted
	case v.delegate:
		return Delegated
	case b.options.Shadow && !v.reason.deniesInShadowMode():
		return ShadowDenied
	}
	return Denied
}

// attributes are the attributes of a request for the delegate, with another user or with selectors
// or a name that limit the request to a tenant.
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
