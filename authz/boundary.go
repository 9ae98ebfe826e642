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

// Options say what the boundary knows. Subjects and Owners are required.
type Options struct {
	Subjects *Subjects
	Owners   *Owners
	Scopes   Scopes
	// UnboundPaths and UnboundObjects are all that callers without a tenant may ask for; tenants may
	// ask for the paths too.
	UnboundPaths   []string
	UnboundObjects []ObjectVerb
	// Shared are the cluster-scoped resources that every tenant may read.
	Shared []schema.GroupResource
	// IsAbout reports whether a cluster-scoped object of the project's own kinds is about a tenant.
	// The callers of this tenant may get the object. It also reports true if no object has the name and
	// the name is reserved for the tenant, so that these callers get a 404. It MUST report false if
	// that is unknown, and for other resources. If nil, no object is about a tenant.
	IsAbout func(resource schema.GroupResource, name string, id tenant.ID) bool
	// ObjectField returns a field, and the value that only the objects about a tenant have in it. Lists
	// and watches of these objects are limited by it. A name MUST be returned only if no object of that
	// name can be about another tenant, ever. The field is empty if it is unknown, and for other
	// resources. If nil, there are no such objects.
	ObjectField func(resource schema.GroupResource, id tenant.ID) (field, value string)
	// OwnWritable are resources of which a tenant may create, update, patch and delete the object that
	// is about it. A creation may not have the name yet: admission MUST check the object's tenant.
	OwnWritable []schema.GroupResource
	// AccountsInGroup says that the server puts service accounts into the groups of their tenants when
	// it authenticates them, so that whoever reviews or impersonates one finds it there.
	AccountsInGroup bool
	// Labelled reports whether, of a namespaced resource, all objects of a tenant and no others carry
	// its label, so that a list over all namespaces may be limited to it. Nil knows of none.
	Labelled func(schema.GroupResource, tenant.ID) bool
	// Selectable are namespaced resources of aggregated servers that honour label selectors and
	// whose objects carry the tenant's label.
	Selectable []schema.GroupResource
	// Access returns how far the callers of a tenant may go. It MUST be quick and safe for
	// concurrent use. What a tenant's callers have open MUST be ended ([Sessions.EndTenants]) when
	// it becomes less. Nil: all the way.
	Access func(tenant.ID) Access
	// Exceptions are asked, in this order, before the boundary decides.
	Exceptions []Exception
	// Stale reports that the caches behind Owners and Scopes are not to be relied on; tenants' callers
	// are denied meanwhile. Nil: they always are.
	Stale func() bool
	// Shadow denies nothing but who is Revoked, and what Access closes: what else would be denied goes
	// to the delegate, and is only recorded. Lists over all namespaces are not limited then.
	Shadow bool
	// Revoked reports callers that count no longer: impersonated ones, which nobody authenticates, and
	// all where the server authenticates by itself. Nil for nobody.
	Revoked func(tenant.ID, user.Info) bool
	// Limits of the identities of tenants' callers. The zero value means tenant.DefaultLimits.
	Limits tenant.Limits
	// QualifiedNames says that the names of a tenant's callers begin with the tenant and a colon:
	// nobody else's may be impersonated.
	QualifiedNames bool
	// OwnPrefixes says that no namespace whose name begins with a tenant's prefix can come to be
	// another's: a tenant's caller is told which under its own do not exist.
	OwnPrefixes bool
	// ReviewsElsewhere says that reviews of rules are answered by somebody who does not ask
	// [Boundary.RulesFor]: they are closed to tenants, whom they would tell of others' roles.
	ReviewsElsewhere bool
	// Reviews lets tenants' callers create reviews of others. Who serves them MUST answer those of
	// tenants by what their own tenant may know: an API server's own handler does not.
	Reviews bool
	// Observe is told of each decision. It MUST be quick and safe for concurrent use. Nil for nobody.
	Observe func(context.Context, Outcome)
}

// An Outcome is what the boundary did with one request.
type Outcome struct {
	// Caller is zero for nobody's, Owner where it was not looked up or is nobody.
	Caller, Owner tenant.ID
	Verdict       Verdict
	// Reason of anything but Delegated, Rule of that.
	Reason Reason
	Rule   Rule
}

// A Verdict is what the boundary did.
type Verdict string

// The verdicts. A delegated request is decided by what stands behind the boundary.
const (
	Delegated    Verdict = "delegate"
	Excepted     Verdict = "allow"
	Denied       Verdict = "deny"
	ShadowDenied Verdict = "shadow-deny" // would have been denied, and was delegated
)

// Boundary denies what would cross from one tenant's space into another's, and leaves everything
// else to its delegate. It implements [authorizer.Authorizer] and, by [Boundary.RulesFor],
// [authorizer.RuleResolver]. The zero value is not usable; a Boundary is safe for concurrent use.
//
// It never allows of its own, but for its [Exception]s, and never answers NoOpinion of its
// own, so that a union of authorizers around it cannot turn its denial into anything else. A
// denial carries a [Reason] and no error: kube-apiserver would print the error in a 500. What
// went wrong goes to the log.
type Boundary struct {
	Options
	delegate authorizer.Authorizer
	rules    authorizer.RuleResolver
}

var (
	_ authorizer.Authorizer   = (*Boundary)(nil)
	_ authorizer.RuleResolver = (*Boundary)(nil)
)

// New returns the boundary before delegate and rules. A nil delegate has no opinion; nil rules list
// none.
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
	through, decision, reason := b.check(ctx, a)
	if through == nil {
		return decision, reason.String(), nil
	}
	return b.delegate.Authorize(ctx, through)
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]: the delegate's answer after the
// same check.
func (b *Boundary) ConditionsAwareAuthorize(
	ctx context.Context, a authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	through, decision, reason := b.check(ctx, a)
	if through == nil {
		return authorizer.ConditionsAwareDecisionFromParts(decision, reason.String(), nil)
	}
	return b.delegate.ConditionsAwareAuthorize(ctx, through)
}

// EvaluateConditions implements [authorizer.Authorizer]: only the delegate has conditions.
func (b *Boundary) EvaluateConditions(
	ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return b.delegate.EvaluateConditions(ctx, d, data)
}

// Denies returns why the boundary denies a request that did not pass the filters of the server. It
// returns [ReasonNone] if the boundary does not deny it. Shadow mode does not apply, and Observe is
// not called.
func (b *Boundary) Denies(ctx context.Context, a authorizer.Attributes) Reason {
	strict := &Boundary{Options: b.Options}
	strict.Shadow, strict.Observe = false, nil
	through, decision, reason := strict.check(ctx, a)
	if through != nil || decision == authorizer.DecisionAllow {
		return ReasonNone
	}
	return reason
}

func nameOf(u user.Info) string {
	if u == nil {
		return ""
	}
	return u.GetName()
}

// verdict is what the boundary thinks of one request. The zero value denies.
type verdict struct {
	delegate bool
	excepted bool      // an exception allows it, for the reason
	reason   Reason    // why it is denied
	rule     Rule      // by which it is delegated
	err      error     // what went wrong, for the log
	owner    tenant.ID // whose object it is, where that was looked up and is somebody's
	limits   *limits   // nil but of lists that go on limited, and of exceptions
}

// limits are what a request goes on with. The zero value limits nothing.
type limits struct {
	selector labels.Requirements // that the request must go on with
	name     string              // of the one object that a list must be limited to
	fields   fields.Selector     // that a list of objects about a tenant must be limited to
	until    time.Time           // when the exception that allows it ends; zero for never
}

// within returns the limits of a verdict.
func (v *verdict) within() limits {
	if v.limits == nil {
		return limits{}
	}
	return *v.limits
}

// check returns the attributes for the delegate, or nil, the decision and its reason. It is the way
// of a request: who asks is resolved, what excepts it is asked, what it asks for is decided, and
// limited where it goes over all namespaces.
func (b *Boundary) check(
	ctx context.Context, a authorizer.Attributes,
) (authorizer.Attributes, authorizer.Decision, Reason) {
	state := requestStateFrom(ctx)
	attrs := readAttributes(a)
	c := b.resolve(ctx, state, &attrs)
	if state == nil && !c.tenant.IsSystem() {
		b.asRequested(&attrs)
	}
	v := verdict{reason: c.denied, err: c.err}
	access := b.accessOf(c.tenant)
	exceeds := access.exceededBy(&attrs)
	switch {
	case c.denied == ReasonRevoked:
	case access == AccessRetired && c.denied == ReasonNone:
		if v = b.decideUnbound(&attrs); !v.delegate {
			v.reason = exceeds
		}
	case exceeds.isFirm():
		v.reason = exceeds // in a shadow too, which lets other reasons pass
	case c.denied != ReasonNone:
	case b.Stale != nil && b.hangsOnCaches(&c) && b.Stale():
		v.reason = ReasonStale
	case access == AccessNone:
		if v = b.decideUnbound(&attrs); !v.delegate {
			v.reason = exceeds
		}
	case exceeds != ReasonNone:
		v.reason = exceeds
	default:
		if v = b.except(ctx, state, &c, &attrs); !v.excepted {
			v = b.decide(ctx, state, &c, &attrs)
		}
	}
	out := Outcome{
		Caller:  c.tenant,
		Owner:   v.owner,
		Verdict: b.name(&v),
		Reason:  v.reason,
		Rule:    v.rule,
	}
	b.tell(ctx, &attrs, &v, &out)
	// Only the request's own attributes are annotated: the event has one place for each key.
	if state != nil && !attrs.isImpersonation() {
		annotate(ctx, state.path, out)
		b.note(state, &c, &v)
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

// note tells the innermost filter how the request goes on.
func (b *Boundary) note(state *requestState, c *caller, v *verdict) {
	within := v.within()
	state.bound, state.selector, state.name, state.fields = c.user, within.selector, within.name, within.fields
	state.session = session{Caller: Caller{Tenant: c.tenant, User: c.user, Source: state.source}}
	if c.user != nil && !state.isReal(c.user) {
		state.session.Real = state.real
	}
	if b.Shadow {
		state.selector, state.name, state.fields = nil, "", nil
	} else if !c.tenant.IsSystem() {
		state.session.owner, state.session.excepted, state.session.until = v.owner, v.excepted, within.until
		if v.rule == RuleMissing {
			state.session.owner = c.tenant // it ends when another makes the namespace
		}
	}
}

// tell logs what went wrong or would be denied, and tells whoever observes.
func (b *Boundary) tell(ctx context.Context, attrs *requestAttributes, v *verdict, out *Outcome) {
	if v.err != nil || out.Verdict == ShadowDenied {
		message := "Denied by the tenant boundary"
		if b.Shadow {
			message = "Would be denied by the tenant boundary"
		}
		klog.FromContext(ctx).Info(message, "code", v.reason.Code(), "reason", v.reason.String(), "err", v.err,
			"user", nameOf(attrs.user), "tenant", out.Caller,
			"verb", attrs.verb, "resource", attrs.resource.String(), "namespace", attrs.namespace)
	}
	if b.Observe != nil {
		b.Observe(ctx, *out)
	}
}

// name returns what is done with a request of this verdict.
func (b *Boundary) name(v *verdict) Verdict {
	switch {
	case v.excepted:
		return Excepted
	case v.delegate:
		return Delegated
	case b.Shadow && !v.reason.isFirm():
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
