package authz

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
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
	// About returns the tenant that a cluster-scoped object of the project's own kinds is about, the zero
	// ID where that is not known: its tenant may get it. Nil knows of none.
	ObjectTenant func(resource schema.GroupResource, name string) tenant.ID
	// Labelled reports whether, of a namespaced resource, all objects of a tenant and no others carry its
	// label, so that a list over all namespaces may be limited to it. Nil knows of none.
	Labelled func(schema.GroupResource, tenant.ID) bool
	// Selectable are namespaced resources of aggregated servers that honour label selectors and
	// whose objects carry the tenant's label.
	Selectable []schema.GroupResource
	// Exceptions are asked, in this order, before the boundary decides.
	Exceptions []Exception
	// Stale reports that the caches behind Owners and Scopes are not to be relied on; tenants' callers
	// are denied meanwhile. Nil: they always are.
	Stale func() bool
	// Shadow denies nothing but who is Revoked: what else would be denied goes to the delegate, and is only recorded. Lists over
	// all namespaces are not limited then.
	Shadow bool
	// Revoked reports callers that count no longer, where that is not held when they are authenticated.
	// Nil for nobody.
	Revoked func(tenant.ID, user.Info) bool
	// RulesElsewhere says that reviews of rules are answered by somebody who does not ask
	// [Boundary.RulesFor]: they are closed to tenants, whom they would tell of others' roles.
	RulesElsewhere bool
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
// It never allows of its own, but for its [Exception]s, and never answers NoOpinion of its own, so that
// a union of authorizers around it cannot turn its denial into anything else. A denial carries a
// [Reason] and no error: kube-apiserver would print the error in a 500. What went wrong goes to the log.
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
		delegate = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})
	}
	return &Boundary{Options: o, delegate: delegate, rules: rules}
}

// Authorize implements [authorizer.Authorizer].
func (b *Boundary) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	through, decision, reason := b.check(ctx, a)
	if through == nil {
		return decision, string(reason), nil
	}
	return b.delegate.Authorize(ctx, through)
}

// ConditionsAwareAuthorize implements [authorizer.Authorizer]: the delegate's answer after the
// same check.
func (b *Boundary) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	through, decision, reason := b.check(ctx, a)
	if through == nil {
		return authorizer.ConditionsAwareDecisionFromParts(decision, string(reason), nil)
	}
	return b.delegate.ConditionsAwareAuthorize(ctx, through)
}

// EvaluateConditions implements [authorizer.Authorizer]: only the delegate has conditions.
func (b *Boundary) EvaluateConditions(ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return b.delegate.EvaluateConditions(ctx, d, data)
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
	rule     Rule                // by which it is delegated
	reason   Reason              // why it is denied
	err      error               // what went wrong, for the log
	owner    tenant.ID           // whose object it is, where that was looked up and is somebody's
	selector labels.Requirements // the selector that the request must go on with
	excepted bool                // an exception allows it, for the reason
	until    time.Time           // when the exception ends; zero for never
}

// check returns the attributes for the delegate, or nil, the decision and its reason.
func (b *Boundary) check(ctx context.Context, a authorizer.Attributes) (authorizer.Attributes, authorizer.Decision, Reason) {
	c := requestStateFrom(ctx)
	attrs := readAttributes(a)
	id, u, v := b.caller(ctx, c, &attrs)
	if v.delegate && b.Stale != nil && b.isLookedUp(id, u) && b.Stale() {
		v = verdict{reason: ReasonStale}
	}
	if v.delegate {
		if v = b.except(ctx, c, id, u, &attrs); !v.excepted {
			v = b.decide(ctx, c, id, &attrs)
		}
	}
	out := Outcome{Caller: id, Owner: v.owner, Verdict: b.name(&v), Reason: v.reason, Rule: v.rule}
	if v.err != nil || out.Verdict == ShadowDenied {
		message := "Denied by the tenant boundary"
		if b.Shadow {
			message = "Would be denied by the tenant boundary"
		}
		klog.FromContext(ctx).Info(message, "reason", v.reason, "err", v.err, "user", nameOf(attrs.user), "tenant", id,
			"verb", attrs.verb, "resource", attrs.resource.String(), "namespace", attrs.namespace)
	}
	if b.Observe != nil {
		b.Observe(ctx, out)
	}
	// Only the request's own question is annotated: the event has one place for each key.
	if own := c != nil && !attrs.isImpersonation(); own {
		annotate(ctx, c.path, out)
		c.bound, c.selector, c.session = u, v.selector, session{}
		if b.Shadow {
			c.selector = nil
		} else if !id.IsSystem() {
			c.session = session{owner: v.owner, excepted: v.excepted, until: v.until}
		}
	}
	switch {
	case v.excepted:
		return nil, authorizer.DecisionAllow, v.reason
	case out.Verdict == Denied:
		return nil, authorizer.DecisionDeny, v.reason
	case b.Shadow || u == attrs.user && v.selector == nil:
		return a, authorizer.DecisionNoOpinion, ""
	}
	return &attributes{Attributes: a, user: u, selector: v.selector}, authorizer.DecisionNoOpinion, ""
}

// isLookedUp reports whether what a caller may do hangs on the caches: a tenant's, and a service account
// that is the system tenant's because its namespace says so.
func (b *Boundary) isLookedUp(id tenant.ID, u user.Info) bool {
	if !id.IsSystem() {
		return !id.IsZero()
	}
	namespace, isAccount := tenant.ServiceAccountNamespace(u.GetName())
	return isAccount && !slices.Contains(b.Subjects.SystemNamespaces, namespace)
}

// name returns what is done with a request of this verdict.
func (b *Boundary) name(v *verdict) Verdict {
	switch {
	case v.excepted:
		return Excepted
	case v.delegate:
		return Delegated
	case b.Shadow && v.reason != ReasonRevoked: // elsewhere authentication refuses them, in the shadow too
		return ShadowDenied
	}
	return Denied
}

// caller returns whose the request is, and the user to go on with. Whether somebody may be
// impersonated is always asked by the real caller, of whom the question may hold a changed copy.
func (b *Boundary) caller(ctx context.Context, c *requestState, attrs *requestAttributes) (tenant.ID, user.Info, verdict) {
	u := attrs.user
	if u == nil {
		return tenant.ID{}, nil, verdict{reason: ReasonNoTenant}
	}
	var id tenant.ID
	var err error
	if c.isReal(u) || attrs.isImpersonation() {
		id, err = b.Subjects.Of(ctx, c.realOr(u))
	} else {
		var real tenant.ID
		real, err = b.Subjects.Of(ctx, c.real)
		if err == nil {
			id, err = b.Subjects.impersonated(ctx, real, u)
		}
		if errors.Is(err, ErrDisagree) {
			return tenant.ID{}, nil, verdict{reason: ReasonImpersonation}
		}
		if err == nil {
			u = bind(u, id)
		}
	}
	switch {
	case errors.Is(err, tenant.ErrUnbound):
		return tenant.ID{}, u, verdict{delegate: true}
	case err != nil:
		return tenant.ID{}, nil, verdict{reason: ReasonBadTenant, err: err}
	case b.Revoked != nil && b.Revoked(id, u):
		return id, nil, verdict{reason: ReasonRevoked}
	case !id.IsSystem() && inForeignSystemGroup(u):
		return id, nil, verdict{reason: ReasonSystemGroup}
	}
	return id, u, verdict{delegate: true}
}

// decide is the table of the boundary: a caller of tenant id, zero for none, and what it asks for.
func (b *Boundary) decide(ctx context.Context, c *requestState, id tenant.ID, attrs *requestAttributes) verdict {
	switch {
	case id.IsZero():
		return b.decideUnbound(attrs)
	case c != nil && c.path != (tenantPath{}) && !attrs.isImpersonation():
		return b.decideOnTenantPath(ctx, c, id, attrs)
	case id.IsSystem():
		return verdict{delegate: true, rule: RuleSystem}
	}
	return b.decideTenant(ctx, c, id, attrs)
}

func (b *Boundary) decideUnbound(attrs *requestAttributes) verdict {
	open := slices.Contains(b.UnboundPaths, attrs.path)
	if attrs.isResource {
		open = attrs.subresource == "" && slices.Contains(b.UnboundObjects, ObjectVerb{attrs.verb, attrs.namespace, attrs.name, attrs.resource})
	}
	if !open {
		return verdict{reason: ReasonNoTenant}
	}
	return verdict{delegate: true, rule: RuleUnbound}
}

// decideOnTenantPath narrows a request to the tenant that its path names.
func (b *Boundary) decideOnTenantPath(ctx context.Context, c *requestState, id tenant.ID, attrs *requestAttributes) verdict {
	switch {
	case c.path.all && (!id.IsSystem() || !attrs.isPlainRead()):
		return verdict{reason: ReasonTenantPathAll}
	case c.path.all, id.IsSystem() && c.path.id.IsSystem():
		return verdict{delegate: true, rule: RuleSystem}
	case !id.IsSystem() && c.path.id != id:
		return verdict{reason: ReasonTenantPath}
	case id.IsSystem() && b.isClusterRead(attrs):
		return verdict{delegate: true, rule: RuleClusterRead}
	case id.IsSystem() && attrs.verb == "create" && attrs.resource == namespaces:
		return verdict{reason: ReasonCluster} // admission would not know whose to make it
	}
	return b.decideTenant(ctx, c, c.path.id, attrs)
}

// isClusterRead reports whether attrs only reads what belongs to no space: the paths and the
// cluster-scoped resources, which a narrowed caller of the system tenant keeps.
func (b *Boundary) isClusterRead(attrs *requestAttributes) bool {
	return attrs.isPlainRead() && (!attrs.isResource || attrs.resource != namespaces && b.Scopes.Of(attrs.resource) == ScopeCluster)
}

// annotate writes into the audit event what was decided about the request itself.
func annotate(ctx context.Context, path tenantPath, o Outcome) {
	const domain = "authorization.kubetenant.dev/"
	kv := []string{domain + "decision", string(o.Verdict)}
	if o.Reason != "" {
		kv = append(kv, domain+"reason", string(o.Reason))
	}
	if !o.Caller.IsZero() {
		kv = append(kv, domain+"caller-tenant", o.Caller.String())
	}
	if !o.Owner.IsZero() {
		kv = append(kv, domain+"owner-tenant", o.Owner.String())
	}
	if path != (tenantPath{}) { // the event's own URI has lost it
		kv = append(kv, domain+"path-tenant", path.String())
	}
	audit.AddAuditAnnotations(ctx, kv...)
}

// attributes are a request's with another user, or limited to a tenant by a selector.
type attributes struct {
	authorizer.Attributes
	user     user.Info
	selector labels.Requirements
}

func (a *attributes) GetUser() user.Info { return a.user }

func (a *attributes) GetLabelSelector() (labels.Requirements, error) {
	if a.selector != nil {
		return a.selector, nil
	}
	return a.Attributes.GetLabelSelector()
}
