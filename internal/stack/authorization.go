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
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/authz/rbac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/tenant"
)

// RBAC contains the two RBAC evaluators of a server. The configuration selects one of them.
type RBAC struct {
	// Index follows the server's roles and bindings.
	Index *rbac.Index
	// Upstream and UpstreamRules are the server's own evaluator. If Upstream is nil, Index is used,
	// whatever the configuration selects.
	Upstream      authorizer.Authorizer
	UpstreamRules authorizer.RuleResolver
	// Synced reports whether the index is complete. If nil, the index is always complete.
	Synced func() bool
	// ServerFallback reports whether the server calls its own evaluator if the index allows
	// nothing. The server's evaluator ignores the scope and the expiry in the annotations of
	// bindings. In Enforce mode, requests that only a binding with one of these annotations would
	// allow are therefore denied, and so are all requests until the index has synced.
	ServerFallback bool
}

// Authorization configures the authorization of a server.
type Authorization struct {
	// Authorizer is called for requests that the boundary delegates. If RBAC is set, RBAC is called
	// first. It may be nil.
	Authorizer authorizer.Authorizer
	// RuleResolver lists the rules of Authorizer. If nil, there are none.
	RuleResolver authorizer.RuleResolver
	// RBAC is called before Authorizer. It MUST be nil if Authorizer includes RBAC.
	RBAC *RBAC
	// GrantorAuthorizer decides whether the author of a write has the rights that the write gives
	// to other users. Defaults to the Stack's own Authorizer, which is sufficient if the Stack
	// calls all authorizers of the server.
	GrantorAuthorizer authorizer.Authorizer
	// ServerAnswersReviews reports whether the server answers reviews of rules, tokens and subjects
	// without the Stack. The boundary then denies these reviews to callers of tenants.
	ServerAnswersReviews bool
	// ReviewAuthorizer authorizes the subjects of the SubjectAccessReviews that callers of tenants
	// create. Defaults to the Stack's own Authorizer.
	ReviewAuthorizer authorizer.Authorizer
}

// authorizationParts contains the dependencies of a boundary.
type authorizationParts struct {
	Authorization
	cluster *clusterParts
	names   *tenant.SystemNames
	limits  tenant.Limits // limits of the identities of tenants' callers
	// qualified reports whether user names are qualified by the tenant. ownPrefixes reports
	// whether a namespace whose name has a tenant's prefix always belongs to that tenant.
	// accountsInGroup reports whether authenticated service accounts are in the groups of their
	// tenants.
	qualified, ownPrefixes, accountsInGroup bool
	// revoked is nil if there are no revocations.
	revoked func() *authn.Revocations
	// sourceTenant returns the tenant ID that the revocation file uses for a tenant of this
	// server. See [Authentication.SourceTenant].
	sourceTenant func(tenant.ID) tenant.ID
	report       reload.Report
	observe      func(context.Context, authz.Outcome)
	// exceptionsChanged ends the sessions that exceptions have allowed, because the exceptions
	// may have changed.
	exceptionsChanged func()
}

// newBoundary returns the boundary of a configuration, with its exceptions and its delegates.
// Among the exceptions, grants precede the policies of the ABAC file. The delegates are the ABAC
// file, RBAC and the server's other authorizers, in this order.
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
		Labeled:        p.cluster.resources.Labeled,
		Selectable:     groupResources(config.SelectableResources),
		Stale:          p.cluster.stale,
		Shadow:         config.Mode == configv1alpha1.ModeShadow,
		Observe:        p.observe,

		Limits:           p.limits,
		QualifiedNames:   p.qualified,
		PrefixesReserved: p.ownPrefixes,

		ServiceAccountsInTenantGroup: p.accountsInGroup,
		RulesReviewsBypassBoundary:   p.ServerAnswersReviews,
		Reviews:                      config.DelegatedReviews && !p.ServerAnswersReviews,
		DescribesTenant:              p.cluster.describesTenant,
		ObjectField:                  p.cluster.objectField,
		TenantWritable:               OwnWritable(),
		Access:                       p.cluster.access(ctx, config.RequireTenant),
	}
	if p.revoked != nil {
		o.Revoked = func(id tenant.ID, u user.Info) bool {
			return !isLoopback(u) && p.revoked().Covers(p.sourceTenant(id), u)
		}
	}
	if p.cluster.grants != nil && *config.Grants.Enabled {
		o.Exceptions = append(o.Exceptions, authz.Exception{Reason: authz.ReasonGrant, Allows: p.cluster.grants.Allows},
			authz.Exception{Reason: authz.ReasonAnnounced, Unpaged: true, Allows: accessgrant.AllowsAnnounced})
	}
	chain := &delegates{}
	if config.ABAC != nil {
		policies, err := p.openPolicyFile(ctx, config.ABAC.Path, chain)
		if err != nil {
			return nil, fmt.Errorf("authorization.abac: %w", err)
		}
		o.Exceptions = append(o.Exceptions, authz.Exception{Reason: authz.ReasonABAC, Allows: policies.allowsException})
		chain.add("abac", authorizer.AuthorizerFunc(policies.authorize), policies)
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

// addRBAC adds the RBAC evaluator that the configuration selects.
func (p *authorizationParts) addRBAC(
	ctx context.Context, config *configv1alpha1.Authorization, o *authz.Options, chain *delegates,
) {
	r := p.RBAC
	if r == nil {
		return
	}
	if config.RBAC.Evaluator == configv1alpha1.EvaluatorUpstream && r.Upstream != nil {
		klog.FromContext(ctx).Info("RBAC is evaluated by the server's own evaluator, which ignores the annotations " +
			tenant.ScopeAnnotation + " and " + tenant.ExpiresAnnotation)
		chain.add("rbac", r.Upstream, r.UpstreamRules)
		return
	}
	options := rbac.Options{
		Subject:     o.Subjects.TenantOf,
		Owner:       chain.ownerOf,
		DenyLimited: r.ServerFallback && !o.Shadow,
		Synced:      r.Synced,
	}
	if p.derivesRights(config) {
		options.DerivedRoles = p.cluster.rights
	}
	evaluator := rbac.New(r.Index, options)
	chain.add("rbac", evaluator, evaluator)
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

// derivesRights reports whether callers of tenants have rights that follow from their Tenant,
// without a binding. The configuration must select the index as the RBAC evaluator and must not use
// Shadow mode. The server must not call its own evaluator too.
func (p *authorizationParts) derivesRights(config *configv1alpha1.Authorization) bool {
	return p.RBAC != nil && !p.RBAC.ServerFallback && config.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed &&
		config.Mode != configv1alpha1.ModeShadow
}

// delegates are the authorizers to which a boundary delegates. They use the boundary to find the
// owner of the requested objects.
type delegates struct {
	boundary    *authz.Boundary
	authorizers []union.NamedAuthorizer
	rules       []authorizer.RuleResolver
}

// delegate returns a union of all authorizers in their order. It returns a single authorizer
// without a union, because a union would add the name of the authorizer to its reasons. It
// returns nil if there are no authorizers.
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

// serverDelegate is the name of [Authorization.Authorizer] in a union.
const serverDelegate = "server"

// flatUnion is a union whose reasons have the form and the order of the server's reasons. The
// server's authorizers already include their names in their reasons. RBAC is called before these
// authorizers, but its reason follows theirs, as in kube-apiserver.
type flatUnion struct {
	authorizer.Authorizer
	authorizers []union.NamedAuthorizer
}

// Authorize implements [authorizer.Authorizer].
func (f *flatUnion) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var reasons, serverReasons []string
	var errs []error
	for _, each := range f.authorizers {
		decision, reason, err := each.Authorizer.Authorize(ctx, a)
		if decision != authorizer.DecisionNoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason == "" {
			continue
		}
		if each.AuthorizerName == serverDelegate {
			serverReasons = append(serverReasons, reason)
			continue
		}
		reasons = append(reasons, each.AuthorizerName+": "+reason)
	}
	return authorizer.DecisionNoOpinion, strings.Join(
			append(serverReasons, reasons...),
			"\n",
		), utilerrors.NewAggregate(
			errs,
		)
}

func (d *delegates) add(name string, a authorizer.Authorizer, r authorizer.RuleResolver) {
	if a != nil {
		d.authorizers = append(d.authorizers, union.NamedAuthorizer{AuthorizerName: name, Authorizer: a})
	}
	if r != nil {
		d.rules = append(d.rules, r)
	}
}

// ownerOf returns the tenant that owns the objects of a request. It returns the zero ID if there is
// not exactly one owner, and for callers in system:masters.
func (d *delegates) ownerOf(ctx context.Context, a authorizer.Attributes) (tenant.ID, error) {
	if isPrivileged(a.GetUser()) {
		return tenant.ID{}, nil
	}
	owner, err := d.boundary.ObjectOwnerOf(ctx, a)
	return owner.ID, err
}

// openPolicyFile opens the ABAC file and follows it until ctx ends.
func (p *authorizationParts) openPolicyFile(ctx context.Context, path string, chain *delegates) (*policyFile, error) {
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
	return &policyFile{file, chain}, nil
}

// policyFile is the ABAC file. A policy that allows cross-tenant requests is an exception from the
// boundary. All other policies apply to requests that the boundary delegates.
type policyFile struct {
	file      *reload.File[*abac.Policy]
	delegates *delegates
}

func (p *policyFile) allowsException(_ context.Context, c *authz.CrossTenantRequest) (bool, time.Time) {
	return (*p.file.Load()).Allows(c.Caller, c.Owner, c), time.Time{}
}

func (p *policyFile) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	boundary := p.delegates.boundary
	id, err := boundary.Options().Subjects.TenantOf(ctx, a.GetUser())
	if err != nil || isPrivileged(a.GetUser()) {
		return authorizer.DecisionNoOpinion, "", nil // no policy applies to this user
	}
	owner, err := boundary.ObjectOwnerOf(ctx, a)
	if err != nil || owner.ID != id && !id.IsSystem() || !(*p.file.Load()).Allows(id, owner, a) {
		return authorizer.DecisionNoOpinion, "", nil // no policy applies to this object
	}
	return authorizer.DecisionAllow, authz.ReasonABAC.String(), nil
}

// isPrivileged reports whether u is in the group system:masters. The server's own client is in
// this group. When it reads a namespace, the server must not determine the owner of the
// namespace, which would cause another read.
func isPrivileged(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// isLoopback reports whether u is the server's own client. This client cannot be revoked, because
// the server does not work without it. No client can have both this name and this group, except through
// a source of the system tenant.
func isLoopback(u user.Info) bool { return u.GetName() == user.APIServerUser && isPrivileged(u) }

// RulesFor implements [authorizer.RuleResolver].
func (p *policyFile) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	boundary := p.delegates.boundary
	id, err := boundary.Options().Subjects.TenantOf(ctx, u)
	if err != nil {
		return nil, nil, true, nil
	}
	owner, err := boundary.ObjectOwnerOf(ctx, authorizer.AttributesRecord{Namespace: namespace, ResourceRequest: true})
	if err != nil {
		return nil, nil, true, nil
	}
	resources, paths, incomplete := (*p.file.Load()).RulesFor(id, owner, u, namespace)
	return resources, paths, incomplete, nil
}

// withReviews answers the reviews that callers of tenants create, if authorization.delegatedReviews
// is true and the boundary is not in Shadow mode. The server's own answers would reveal other
// tenants.
func (s *Stack) withReviews(next http.Handler) http.Handler {
	return reviews.With(next, func(r *http.Request, resource schema.GroupResource) reviews.Reviewer {
		g := s.current.Load()
		if !g.boundary.Options().Reviews || g.boundary.Options().Shadow {
			return nil
		}
		d := &reviews.Delegated{
			Subject:      g.boundary.Options().Subjects.TenantOf,
			Authenticate: g.authenticator.AuthenticateRequest,
			Authorize:    g.boundary.Authorize,
			DenyReason: func(ctx context.Context, a authorizer.Attributes) string {
				return g.boundary.DenialReason(ctx, a).String()
			},
		}
		if tokens := s.shared.Authentication.ReviewAuthenticator; tokens != nil {
			d.Authenticate = tokens.AuthenticateRequest
		}
		if subjects := s.shared.Authorization.ReviewAuthorizer; subjects != nil {
			d.Authorize = subjects.Authorize
		}
		return d.ReviewerFor(r, resource)
	})
}

// Denies returns the reason for which the boundary would deny a request that has not passed the
// filters, or "" if it would not deny the request. Shadow mode has no effect on the result.
func (s *Stack) Denies(ctx context.Context, a authorizer.Attributes) string {
	return s.current.Load().boundary.DenialReason(ctx, a).String()
}
