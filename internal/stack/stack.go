// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package stack builds what a server uses from a TenancyConfiguration: an authenticator, an
// authorizer and admission plugins that know tenants. It follows the configuration file and the
// files that it names, and replaces its snapshot of the configuration as a whole.
//
// Package kubetenant is the public part of it.
package stack

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/publication"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/plugins/policy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Server is what a server lends to the stack, by concern.
type Server struct {
	Authentication Authentication
	Authorization  Authorization
	// Cluster is the state of the cluster (required).
	Cluster lookup.Cluster
	// Stale reports whether the state of the cluster is too old to decide requests of tenants, see
	// [authz.Options]. If nil, it never is.
	Stale func() bool

	// Observe is told of each decision of the boundary, see [authz.Options]. Nil for nobody.
	Observe func(context.Context, authz.Outcome)
	// Refused receives the tenant of each request that exceeds a limit, and the name of the limit. If nil,
	// the metrics of the Stack contain the request.
	Refused func(id tenant.ID, limit string)
	// Streams records a watch or another stream of a tenant until ended is called, if another Stack records
	// the usage of tenants for this one. Set it with Observe and Refused.
	Streams func(id tenant.ID) (ended func())
	// Exists reports whether a tenant exists. Metrics name only tenants that exist. If nil, the Tenants
	// and namespaces of Cluster decide. Set it with Decided.
	Exists func(tenant.ID) bool
	// Register registers metrics, as legacyregistry.Register does. Nil for none.
	Register func(metrics.Registerable) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Authentication is what a server has of its own to authenticate with.
type Authentication struct {
	// Credentials are those that the stack is shown.
	Credentials Credentials
	// Authenticator is the server's own chain, asked last. Nil for none.
	Authenticator authenticator.Request
	// APIAudiences are the server's own.
	APIAudiences authenticator.Audiences
	// RequestHeader is the server's trust in front proxies. Nil for none.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA are the server's own client authorities. Nil for none.
	ClientCA dynamiccertificates.CAContentProvider
	// ServiceAccountIssuers are the server's own, which no other source may claim.
	ServiceAccountIssuers []string
	// TokenObjects are the live objects that tokens of service accounts are bound to. Nil: such tokens
	// count until they expire, whatever becomes of the objects.
	TokenObjects serviceaccount.Objects
	// Accepts is asked beside Cluster.Tenants whether a credential counts, see [authn.Chain]: by who
	// authenticates for several clusters. Nil accepts all.
	//
	// [authn.Chain]: https://pkg.go.dev/github.com/kubetenant/kubetenant/authn#Chain
	Accepts func(ctx context.Context, id tenant.ID, issued time.Time) bool
	// Revocations are what another Stack follows, which calls EndRevoked on this one for each new
	// version of them: a caller whom that one knows no more must not be known here a moment longer,
	// nor the other way round. Nil: the Stack follows the file of its configuration.
	Revocations func() *authn.Revocations
	// RevocationsChanged is told of each version of the file that the Stack follows, and of another
	// file's, when it counts and the Stack's own sessions have ended. Nil for nobody.
	RevocationsChanged func(*authn.Revocations)
	// SourceTenant returns the tenant as revocations name it that this server knows by
	// another name. Nil: by the same.
	SourceTenant func(tenant.ID) tenant.ID
	// Reviewed knows whose the tokens are that tenants' callers review. Nil: the
	// Stack's own Authenticator does.
	Reviewed authenticator.Request
	// LegacyTokenUsed is told of the Secret of each legacy token that is used. Nil for nobody.
	LegacyTokenUsed func(ctx context.Context, secret *corev1.Secret)
}

// Stack is what a server puts in place of its own. It is safe for concurrent use.
type Stack struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	RuleResolver  authorizer.RuleResolver
	// Grantors says what a grantor may do itself.
	Grantors authorizer.Authorizer
	// Admission are the plugins, in their order.
	Admission []Plugin
	// ClientCA are the authorities of the x509 sources, to be advertised in TLS handshakes.
	ClientCA dynamiccertificates.CAContentProvider

	current atomic.Pointer[generation]
	shared  *shared
}

// New returns the stack of a configuration, which it defaults and validates. The files that it
// names are followed until ctx ends. The error says which source, file, line or field is wrong.
func New(ctx context.Context, config *configv1alpha1.Settings, server Server) (*Stack, error) {
	complete, err := config.Complete()
	if err != nil {
		return nil, err
	}
	stack := &Stack{}
	of, err := newShared(server, stack)
	if err != nil {
		return nil, err
	}
	g, err := newGeneration(ctx, of, complete)
	if err != nil {
		return nil, err
	}
	return stack.begin(of, g), nil
}

// Open is [New] with the configuration file at path, which is followed too: a new version takes
// effect as a whole or, where anything in it is wrong, not at all.
func Open(ctx context.Context, path string, server Server) (*Stack, error) {
	stack := &Stack{}
	of, err := newShared(server, stack)
	if err != nil {
		return nil, err
	}
	file, err := reload.Open(path, func(data []byte) (*generation, error) {
		config, err := configv1alpha1.Decode(data)
		if err != nil {
			return nil, err
		}
		config.ResolvePaths(filepath.Dir(path))
		g, err := newGeneration(ctx, of, &config.Settings)
		if err == nil && stack.shared != nil {
			stack.swap(g)
		}
		return g, err
	}, of.report(ctx, nil))
	if err != nil {
		return nil, err
	}
	of.reloads.follows(path, nil)
	stack.begin(of, *file.Load())
	go file.Run(ctx)
	return stack, nil
}

// Prepare is for who holds several stacks by one configuration: it returns what makes a new version
// of that, which is complete, count in this one. Of commit and discard one MUST be called, once,
// and no other Prepare before.
func (s *Stack) Prepare(ctx context.Context, config *configv1alpha1.Settings) (commit, discard func(), err error) {
	g, err := newGeneration(ctx, s.shared, config)
	if err != nil {
		return nil, nil, err
	}
	return func() { s.swap(g) }, g.stop, nil
}

// Check reads the configuration at path and every file that it names, as [Open] would, and follows
// none of them; or a file of kind Revocation by itself. What the server itself must bring is not
// looked at, and no identity provider is asked anything.
func Check(ctx context.Context, path string) error {
	if _, is, err := configv1alpha1.LoadRevocation(path); is {
		return err
	}
	config, err := configv1alpha1.Load(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	of, err := newShared(Server{
		Cluster:        NoCluster(),
		Authentication: Authentication{RequestHeader: noProxy()},
	}, &Stack{})
	if err != nil {
		return err
	}
	g, err := newGeneration(ctx, of, &config.Settings)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	g.stop()
	return nil
}

// noProxy stands in for a server's trust in front proxies.
func noProxy() *authenticatorfactory.RequestHeaderConfig {
	anybody := headerrequest.StaticStringSlice{"-"}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   &clientCAs{},
		AllowedClientNames:  anybody,
		UsernameHeaders:     anybody,
		UIDHeaders:          anybody,
		GroupHeaders:        anybody,
		ExtraHeaderPrefixes: anybody,
	}
}

// begin makes s the stack of its first generation.
func (s *Stack) begin(of *shared, g *generation) *Stack {
	s.shared, s.ClientCA, s.Grantors = of, of.clientCAs, of.grantors
	s.swap(g)
	s.Authenticator = authenticator.RequestFunc(s.authenticate)
	s.Authorizer, s.RuleResolver = (*stackAuthorizer)(s), (*stackAuthorizer)(s)
	s.Admission = s.reloadablePlugins(g.plugins)
	return s
}

// ServiceAccountTenant returns the tenant of the service accounts of a namespace, for
// whoever issues their tokens. The error wraps [tenant.ErrInvalid] where they are nobody's,
// or says that the lookup failed.
func (s *Stack) ServiceAccountTenant(ctx context.Context, namespace string) (tenant.ID, error) {
	return s.current.Load().boundary.Subjects.OfServiceAccounts(ctx, namespace)
}

// Subject returns the tenant of an authenticated user and the rule by which it is, see
// [authz.Subjects.ByRule]. It is for whoever explains a decision.
func (s *Stack) Subject(ctx context.Context, u user.Info) (tenant.ID, authz.SubjectRule, error) {
	return s.current.Load().boundary.Subjects.ByRule(ctx, u)
}

// NamespaceOwner returns the tenant that owns a namespace: the system tenant where it has no
// label, the zero ID where it is nobody's or does not exist. An error means that it is not
// known. It is for admission and controllers, who ask for namespaces that are named by
// requests already authorized.
func (s *Stack) NamespaceOwner(ctx context.Context, namespace string) (tenant.ID, error) {
	return s.current.Load().boundary.Owners.Certain(ctx, namespace)
}

// WithRequestState is the outermost filter, see [authz.WithRequestState].
func (s *Stack) WithRequestState(next http.Handler) http.Handler {
	return authz.WithRequestState(withFairUseNote(next), func(r schema.GroupResource) bool {
		g := s.current.Load()
		return g.olderPaths && g.boundary.Scopes.Of(r) != authz.ScopeUnknown &&
			g.boundary.Scopes.Of(schema.GroupResource{Group: r.Group, Resource: "tenants"}) == authz.ScopeUnknown
	})
}

// WithTenant is the innermost filter, see [authz.WithTenant]. It also applies the limits of fair use
// that [Stack.AdmitRequest] has not applied to a request.
func (s *Stack) WithTenant(next http.Handler) http.Handler {
	return s.withFairUse(authz.WithTenant(s.withAudit(s.withPlugins(s.withReviews(next))), s.shared.sessions))
}

// FollowNamespaces returns the handler that a Namespace informer must call, so that what tenants
// have open in a namespace ends with its owner.
func (s *Stack) FollowNamespaces() cache.ResourceEventHandler {
	return &namespaceEvents{s.shared.sessions.Follow(s.shared.cluster.owners.OwnerOf), s.shared.decisions.forget}
}

// GrantChanged must be called when a grant in a namespace allows something else than before, so
// that what it has let in ends.
func (s *Stack) GrantChanged(namespace string) { s.shared.sessions.EndExcepted(namespace) }

// ReadsContent reports whether plugins look at more of the objects of a kind than their metadata,
// where the kind is none of Kubernetes' own: for who gives room to what they are read into.
func (s *Stack) ReadsContent(kind schema.GroupKind) bool {
	g := s.current.Load()
	_, described := g.described[kind]
	_, governed := g.governed[kind]
	return described || governed || g.isPublished(kind) || policy.Reads(kind) ||
		kind.Group == v1alpha1.SchemeGroupVersion.Group
}

// DerivesRights reports whether this server gives callers of tenants rights that follow from their
// Tenant, without a binding. If it does, the ClusterRoles of those rights must exist.
func (s *Stack) DerivesRights() bool { return s.current.Load().derivesRights }

// SharedClusterResources returns the cluster-scoped resources that every tenant may read. The caller
// MUST NOT change the slice.
func (s *Stack) SharedClusterResources() []schema.GroupResource {
	return s.current.Load().boundary.Shared
}

// SyncedKeystone returns the source whose projects the cluster follows, or nil if there is none. The
// caller MUST NOT change it.
func (s *Stack) SyncedKeystone() *configv1alpha1.Source {
	return s.current.Load().config.SyncedKeystone()
}

// PublicationRules returns the rules of Publications.
func (s *Stack) PublicationRules() *publication.Rules {
	return publication.RulesOf(&s.current.Load().config.Admission.Publication, s.shared.cluster.isNamespaced)
}

// DefaultQuota returns the limits of tenants that have no quota of their own; empty for none.
func (s *Stack) DefaultQuota() corev1.ResourceList { return s.current.Load().defaultQuota }

// Decided records, in the metrics of this Stack, a decision of another Stack. The outcome MUST have
// the caller's tenant by its name in the configuration of this Stack.
func (s *Stack) Decided(ctx context.Context, o authz.Outcome) { s.shared.decisions.observe(ctx, o) }

// RefusedBy records, in the metrics of this Stack, a request that another Stack refused because of a limit.
// The tenant MUST have its name in the configuration of this Stack.
func (s *Stack) RefusedBy(id tenant.ID, limit string) { s.shared.decisions.limited(id, limit) }

// StreamBegan records, in the usage of this Stack, a watch or another stream of another Stack until ended is
// called. The tenant MUST have its name in the configuration of this Stack.
func (s *Stack) StreamBegan(id tenant.ID) (ended func()) { return s.shared.stream(id) }

// HasTenant reports whether a tenant has a Tenant or a namespace. It returns true if this is unknown.
func (s *Stack) HasTenant(id tenant.ID) bool { return s.shared.cluster.exists(id) }

// ForgetTenants deletes the metrics of tenants that no longer exist. A Stack that follows no
// namespaces needs it, if Server.Exists is set.
func (s *Stack) ForgetTenants() { s.shared.decisions.forget() }

// TenantChanged must be called when the callers of a tenant may go less far than
// before, or its Tenant is gone, so that what they have open ends. Clients that may
// still ask for it open it again.
func (s *Stack) TenantChanged(id tenant.ID) {
	s.shared.sessions.EndTenants(func(other tenant.ID) bool { return other == id })
	s.shared.decisions.forget()
	if s.shared.decisions.usage != nil {
		s.shared.decisions.usage.Check(id)
	}
}

// Revocations returns what is revoked now; nil where nothing is. It is quick and
// safe for concurrent use.
func (s *Stack) Revocations() *authn.Revocations {
	if revoked := s.current.Load().revoked; revoked != nil {
		return revoked()
	}
	return nil
}

// EndRevoked ends what revoked callers have open, and what is about to be: for who lends
// Revocations to the Stack.
func (s *Stack) EndRevoked(revoked *authn.Revocations) { s.shared.endRevoked(revoked) }

// EndSessions ends all that is open. Clients that may still ask for it open it again.
func (s *Stack) EndSessions() { s.shared.sessions.EndAll() }

// swap puts g in place of the generation before it, which then stops following its files.
func (s *Stack) swap(g *generation) {
	before := s.current.Swap(g)
	s.shared.clientCAs.set(g.clientCAs)
	for _, name := range s.shared.cluster.owners.Reserve(g.config.Authorization.SystemNamespaces) {
		s.shared.sessions.EndOthers(name, tenant.System())
	}
	required := g.config.Authorization.RequireTenant
	switch {
	case before == nil:
	case before.boundary.Shadow && !g.boundary.Shadow: // what was only recorded
		s.shared.sessions.EndTenants(func(tenant.ID) bool { return true })
	case required == configv1alpha1.RequireTenantAlways && s.shared.required != required:
		s.shared.sessions.EndTenants(func(id tenant.ID) bool {
			return !id.IsZero() && g.boundary.Access(id) == authz.AccessNone
		})
	}
	s.shared.required, s.shared.acceptsAdmins = required, g.acceptsAdmins
	s.shared.reloads.inForce(g)
	s.shared.decisions.limit(g.tenantMetrics)
	if before != nil {
		before.stop()
		s.shared.sessions.EndExcepted("") // the new generation may know other exceptions
		if g.revoked != nil {
			s.shared.revocationsChanged(g.revoked())
		}
	}
}

func (s *Stack) authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := s.current.Load().authenticator.AuthenticateRequest(req)
	if err != nil || !ok {
		return resp, ok, err
	}
	noted := *resp
	noted.User = authz.NoteCaller(req.Context(), resp.User)
	return &noted, true, nil
}

// stackAuthorizer is the current generation's boundary.
type stackAuthorizer Stack

func (s *stackAuthorizer) boundary() *authz.Boundary { return s.current.Load().boundary }

func (s *stackAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return s.boundary().Authorize(ctx, a)
}

func (s *stackAuthorizer) ConditionsAwareAuthorize(
	ctx context.Context, a authorizer.Attributes,
) authorizer.ConditionsAwareDecision {
	return s.boundary().ConditionsAwareAuthorize(ctx, a)
}

func (s *stackAuthorizer) EvaluateConditions(
	ctx context.Context, d authorizer.ConditionsAwareDecision, data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	return s.boundary().EvaluateConditions(ctx, d, data)
}

func (s *stackAuthorizer) RulesFor(
	ctx context.Context, u user.Info, namespace string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return s.boundary().RulesFor(ctx, u, namespace)
}
