// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/authz/rbac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/tenant"
)

// RBAC is a server's RBAC in both evaluators: the configuration chooses.
type RBAC struct {
	// Index follows the server's roles and bindings.
	Index *rbac.Index
	// Upstream and UpstreamRules are the server's own evaluator. Nil: the index decides, whatever the
	// configuration says.
	Upstream      authorizer.Authorizer
	UpstreamRules authorizer.RuleResolver
	// Synced reports whether the index holds all that there is. Nil: it does.
	Synced func() bool
	// AskedAgain says that the server asks its own evaluator where the index allows nothing. What only
	// a binding limited by its annotation would allow is denied then, and everything while the index
	// has not synced: the server does not know limits.
	AskedAgain bool
}

// Authorization is what a server has of its own to authorize with.
type Authorization struct {
	// Authorizer is asked where the boundary delegates, after RBAC where that is
	// lent. Nil has no opinion.
	Authorizer authorizer.Authorizer
	// RuleResolver lists the rules of Authorizer. Nil lists none.
	RuleResolver authorizer.RuleResolver
	// RBAC is the server's, to be asked before Authorizer. Nil where Authorizer holds it.
	RBAC *RBAC
	// Grantors says what a grantor may do itself. Nil asks the Stack's own Authorizer, which knows it
	// where all of the server's authorizers are lent.
	Grantors authorizer.Authorizer
	// ReviewsElsewhere says that the server answers reviews of rules, of tokens and of subjects
	// itself: they are closed to tenants.
	ReviewsElsewhere bool
	// Reviewed decides about subjects that tenants' callers review. Nil: the
	// Stack's own Authorizer does.
	Reviewed authorizer.Authorizer
}

// authorizationParts are what a boundary is made with.
type authorizationParts struct {
	Authorization
	cluster *clusterParts
	names   *tenant.SystemNames
	limits  tenant.Limits // for the identities of tenants' callers
	// qualified says that names are qualified by the tenant, ownPrefixes that nothing but a tenant's
	// own stands under its prefix, accountsInGroup that service accounts are authenticated into the
	// groups of their tenants.
	qualified, ownPrefixes, accountsInGroup bool
	// revoked is nil where nothing is.
	revoked func() *authn.Revocations
	// sourceTenant returns a tenant as revocations name it.
	sourceTenant func(tenant.ID) tenant.ID
	report       reload.Report
	observe      func(context.Context, authz.Outcome)
	// exceptionsChanged ends what exceptions have let in.
	exceptionsChanged func()
}

// newBoundary returns the boundary with its exceptions, grants before lines of the policy
// file, and with what it delegates to: the policy's lines for the own space, RBAC, and
// what else the server had.
func newBoundary(
	ctx context.Context, p *authorizationParts, config *configv1alpha1.Authorization,
) (*authz.Boundary, error) {
	o := authz.Options{
		Subjects: &authz.Subjects{
			Names:            p.names,
			SystemNamespaces: config.SystemNamespaces,
			FromGroups:       config.Subject.FromGroups,
			Owners:           p.cluster.owners,
			Lineage:          p.cluster.lineage(),
		},
		Owners:         p.cluster.owners,
		Scopes:         authz.Scopes{Custom: p.cluster.resources.Scope},
		UnboundPaths:   config.UnboundAllow.Paths,
		UnboundObjects: objectVerbs(config.UnboundAllow.Resources),
		Shared:         groupResources(config.SharedClusterResources),
		Labelled:       p.cluster.resources.Labeled,
		Selectable:     groupResources(config.SelectableResources),
		Stale:          p.cluster.stale,
		Shadow:         config.Mode == configv1alpha1.ModeShadow,
		Observe:        p.observe,

		Limits:         p.limits,
		QualifiedNames: p.qualified,
		OwnPrefixes:    p.ownPrefixes,

		AccountsInGroup:  p.accountsInGroup,
		ReviewsElsewhere: p.ReviewsElsewhere,
		Reviews:          config.DelegatedReviews && !p.ReviewsElsewhere,
		IsAbout:          p.cluster.isAbout,
		ObjectField:      p.cluster.objectField,
		OwnWritable:      OwnWritable(),
		Access:           p.cluster.access(ctx, config.RequireTenant),
	}
	if p.revoked != nil {
		o.Revoked = func(id tenant.ID, u user.Info) bool {
			return !isLoopback(u) && p.revoked().Covers(p.sourceTenant(id), u)
		}
	}
	if p.cluster.grants != nil && *config.Grants.Enabled {
		o.Exceptions = append(o.Exceptions, authz.Exception{Reason: authz.ReasonGrant, Allows: p.cluster.grants.Allows},
			authz.Exception{Reason: authz.ReasonAnnounced, Whole: true, Allows: grant.Announced})
	}
	chain := &delegates{}
	if config.ABAC != nil {
		lines, err := p.openPolicyFile(ctx, config.ABAC.Path, chain)
		if err != nil {
			return nil, fmt.Errorf("authorization.abac: %w", err)
		}
		o.Exceptions = append(o.Exceptions, authz.Exception{Reason: authz.ReasonABAC, Allows: lines.except})
		chain.add("abac", authorizer.AuthorizerFunc(lines.authorize), lines)
	}
	p.addRBAC(ctx, config, &o, chain)
	chain.add(serverDelegate, p.Authorizer, p.RuleResolver)
	delegate, err := chain.delegate()
	if err != nil {
		return nil, err
	}
	chain.boundary = authz.New(o, delegate, union.NewRuleResolvers(chain.rules...))
	return chain.boundary, nil
}

// addRBAC adds the evaluator of RBAC that the configuration chooses.
func (p *authorizationParts) addRBAC(
	ctx context.Context, config *configv1alpha1.Authorization, o *authz.Options, chain *delegates,
) {
	r := p.RBAC
	switch {
	case r == nil:
	case config.RBAC.Evaluator == configv1alpha1.EvaluatorUpstream && r.Upstream != nil:
		klog.FromContext(ctx).Info("RBAC is evaluated by the server's own evaluator, which ignores the annotations " +
			tenant.ScopeAnnotation + " and " + tenant.ExpiresAnnotation)
		chain.add("rbac", r.Upstream, r.UpstreamRules)
	default:
		options := rbac.Options{
			Subject:     o.Subjects.Of,
			Space:       chain.space,
			DenyLimited: r.AskedAgain && !o.Shadow,
			Synced:      r.Synced,
		}
		if p.derivesRights(config) {
			options.Derive = p.cluster.rights
		}
		evaluator := rbac.New(r.Index, options)
		chain.add("rbac", evaluator, evaluator)
	}
}

func objectVerbs(resources []configv1alpha1.ObjectVerb) (out []authz.ObjectVerb) {
	for _, r := range resources {
		out = append(out, authz.ObjectVerb{
			Verb:      r.Verb,
			Namespace: r.Namespace,
			Name:      r.Name,
			Resource:  schema.GroupResource{Group: r.Group, Resource: r.Resource},
		})
	}
	return out
}

// derivesRights reports whether callers of tenants have rights that follow from their Tenant: the
// index alone evaluates RBAC, and the boundary is enforced.
func (p *authorizationParts) derivesRights(config *configv1alpha1.Authorization) bool {
	return p.RBAC != nil && !p.RBAC.AskedAgain && config.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed &&
		config.Mode != configv1alpha1.ModeShadow
}

// delegates are what a boundary delegates to, and ask it where requests belong.
type delegates struct {
	boundary    *authz.Boundary
	authorizers []union.NamedAuthorizer
	rules       []authorizer.RuleResolver
}

// delegate is all authorizers in their order; one alone needs no union, which would put its name
// before its reasons.
func (d *delegates) delegate() (authorizer.Authorizer, error) {
	switch len(d.authorizers) {
	case 0:
		return nil, nil
	case 1:
		return d.authorizers[0].Authorizer, nil
	}
	all, err := union.New(d.authorizers...)
	return &flatUnion{all, d.authorizers}, err
}

// serverDelegate names what the server had of its own.
const serverDelegate = "server"

// flatUnion is a union whose refusals read as the server's own would: its authorizers name
// themselves in their reasons, and RBAC, which is asked before them here, stands behind them there.
type flatUnion struct {
	authorizer.Authorizer
	all []union.NamedAuthorizer
}

// Authorize implements [authorizer.Authorizer].
func (f *flatUnion) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var ours, servers []string
	var errs []error
	for _, each := range f.all {
		decision, reason, err := each.Authorizer.Authorize(ctx, a)
		if decision != authorizer.DecisionNoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		switch {
		case reason == "":
		case each.AuthorizerName == serverDelegate:
			servers = append(servers, reason)
		default:
			ours = append(ours, each.AuthorizerName+": "+reason)
		}
	}
	return authorizer.DecisionNoOpinion, strings.Join(append(servers, ours...), "\n"), utilerrors.NewAggregate(errs)
}

func (d *delegates) add(name string, a authorizer.Authorizer, r authorizer.RuleResolver) {
	if a != nil {
		d.authorizers = append(d.authorizers, union.NamedAuthorizer{AuthorizerName: name, Authorizer: a})
	}
	if r != nil {
		d.rules = append(d.rules, r)
	}
}

// space returns the one tenant in whose space a request is, or the zero ID.
func (d *delegates) space(ctx context.Context, a authorizer.Attributes) (tenant.ID, error) {
	if isPrivileged(a.GetUser()) {
		return tenant.ID{}, nil
	}
	space, err := d.boundary.SpaceOf(ctx, a)
	return space.ID, err
}

// openPolicyFile follows the file of policies until ctx ends.
func (p *authorizationParts) openPolicyFile(ctx context.Context, path string, of *delegates) (*policyFile, error) {
	file, err := reload.Open(path, abac.Parse, func(path string, err error) {
		p.report(path, err)
		if err == nil {
			p.exceptionsChanged()
		}
	})
	if err != nil {
		return nil, err
	}
	go file.Run(ctx)
	return &policyFile{file, of}, nil
}

// policyFile is the file of policies. What a line allows a tenant's caller across the line between
// tenants excepts from the boundary; the rest comes after it.
type policyFile struct {
	file      *reload.File[*abac.Policy]
	delegates *delegates
}

func (p *policyFile) except(_ context.Context, c *authz.Crossing) (bool, time.Time) {
	return (*p.file.Load()).Allows(c.Caller, c.Space, c), time.Time{}
}

func (p *policyFile) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	boundary := p.delegates.boundary
	id, err := boundary.Subjects.Of(ctx, a.GetUser())
	if err != nil || isPrivileged(a.GetUser()) {
		return authorizer.DecisionNoOpinion, "", nil // nobody's: no line is about it
	}
	space, err := boundary.SpaceOf(ctx, a)
	if err != nil || space.ID != id && !id.IsSystem() || !(*p.file.Load()).Allows(id, space, a) {
		return authorizer.DecisionNoOpinion, "", nil // an owner that is not known is nobody's space
	}
	return authorizer.DecisionAllow, authz.ReasonABAC.String(), nil
}

// isPrivileged reports whether u may do everything anyway. The server's own client is, whose look
// at a namespace must not ask for another.
func isPrivileged(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// isLoopback reports whether u is the server's own client, without which the server does
// not work: whatever a list says, it is not revoked. Who else bears the name is refused
// when it is authenticated.
func isLoopback(u user.Info) bool { return u.GetName() == user.APIServerUser && isPrivileged(u) }

// RulesFor implements [authorizer.RuleResolver].
func (p *policyFile) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	boundary := p.delegates.boundary
	id, err := boundary.Subjects.Of(ctx, u)
	if err != nil {
		return nil, nil, true, nil
	}
	space, err := boundary.SpaceOf(ctx, authorizer.AttributesRecord{Namespace: namespace, ResourceRequest: true})
	if err != nil {
		return nil, nil, true, nil
	}
	resources, paths, incomplete := (*p.file.Load()).RulesFor(id, space, u, namespace)
	return resources, paths, incomplete, nil
}

// withReviews answers reviews by tenants' callers, where the configuration delegates them: the
// server would tell of everybody.
func (s *Stack) withReviews(next http.Handler) http.Handler {
	return reviews.With(next, func(r *http.Request, resource schema.GroupResource) reviews.Reviewer {
		g := s.current.Load()
		if !g.boundary.Reviews || g.boundary.Shadow {
			return nil
		}
		d := &reviews.Delegated{
			Subject:      g.boundary.Subjects.Of,
			Authenticate: g.authenticator.AuthenticateRequest,
			Authorize:    g.boundary.Authorize,
			Denies: func(ctx context.Context, a authorizer.Attributes) string {
				return g.boundary.Denies(ctx, a).String()
			},
		}
		if tokens := s.shared.Authentication.Reviewed; tokens != nil {
			d.Authenticate = tokens.AuthenticateRequest
		}
		if subjects := s.shared.Authorization.Reviewed; subjects != nil {
			d.Authorize = subjects.Authorize
		}
		return d.Of(r, resource)
	})
}

// Denies returns why the boundary denies something of which nothing was noted, "" where it
// does not: whatever its mode.
func (s *Stack) Denies(ctx context.Context, a authorizer.Attributes) string {
	return s.current.Load().boundary.Denies(ctx, a).String()
}
