// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package stack builds the authenticator, the authorizer and the admission plugins of a server from
// a TenancyConfiguration. It reloads the configuration file and the files that the configuration
// names. A new version of the configuration replaces the old one as a whole.
//
// Package kubetenant is the public API of this package.
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

// Server contains the parts of a server that its [Stack] uses.
type Server struct {
	Authentication Authentication
	Authorization  Authorization
	// Cluster is the state of the cluster. It is required.
	Cluster lookup.Cluster
	// Stale reports whether the state of the cluster is too old to decide requests of tenants. See
	// [authz.Options]. If nil, the state is never too old.
	Stale func() bool

	// Observe is called for each decision of the boundary. See [authz.Options]. It may be nil.
	Observe func(context.Context, authz.Outcome)
	// ObserveLimit is called for each request that exceeds a limit, with the tenant and the name of
	// the limit. If nil, the Stack records the request in its own metrics.
	ObserveLimit func(id tenant.ID, limit string)
	// ObserveStream records a watch or another stream of a tenant until ended is called. Set it,
	// together with Observe and ObserveLimit, if another Stack records the usage of tenants. If
	// nil, this Stack records the usage.
	ObserveStream func(id tenant.ID) (ended func())
	// Exists reports whether a tenant exists. Only tenants that exist get their own metrics. If
	// nil, a tenant exists if Cluster contains its Tenant object or one of its namespaces. Set it
	// for a Stack that records the decisions of other Stacks ([Stack.RecordDecision]).
	Exists func(tenant.ID) bool
	// Register registers metrics, as legacyregistry.Register does. If nil, no metrics are
	// registered.
	Register func(metrics.Registerable) error
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Authentication configures the authentication of a server.
type Authentication struct {
	// Credentials specifies which credentials callers present to the stack.
	Credentials Credentials
	// Authenticator is the server's own authenticator. It is called after all sources. It may be
	// nil.
	Authenticator authenticator.Request
	// APIAudiences are the audiences of the server.
	APIAudiences authenticator.Audiences
	// RequestHeader configures the front proxies that the server trusts. It may be nil.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA contains the client CAs of the server. It may be nil.
	ClientCA dynamiccertificates.CAContentProvider
	// ServiceAccountIssuers are the issuers of the server's own service account tokens. An oidc or
	// webhook source cannot have one of them. If the list is not empty, a serviceAccount source
	// must have one of them.
	ServiceAccountIssuers []string
	// TokenObjects returns the live objects that service account tokens are bound to. If nil, a
	// bound token is valid until it expires, even if its objects are deleted.
	TokenObjects serviceaccount.Objects
	// Accepts reports whether a credential can belong to the tenant. See [authn.Chain]. The Tenants
	// of Cluster must also accept the credential. Set it for a server that authenticates callers
	// for several clusters. If nil, only the Tenants of Cluster are checked.
	//
	// [authn.Chain]: https://pkg.go.dev/github.com/kubetenant/kubetenant/authn#Chain
	Accepts func(ctx context.Context, id tenant.ID, issued time.Time) bool
	// Revocations returns the revocations of another Stack, so that all Stacks of a server use
	// the same list. The server MUST call [Stack.EndRevoked] for each new version. If nil, the
	// Stack follows the revocation file of its configuration.
	Revocations func() *authn.Revocations
	// RevocationsChanged is called after a new version of the revocations has taken effect and the
	// Stack has ended the sessions of revoked callers. It is also called after a change of the
	// configuration, if the new configuration has a revocation file. It may be nil.
	RevocationsChanged func(*authn.Revocations)
	// SourceTenant returns the tenant ID that the revocation file uses for a tenant of this
	// server. The IDs differ if a gateway maps tenants to other names in a cluster. If nil, both
	// IDs are the same.
	SourceTenant func(tenant.ID) tenant.ID
	// ReviewAuthenticator authenticates the tokens in TokenReviews of tenants' callers. Defaults to the
	// Stack's own Authenticator.
	ReviewAuthenticator authenticator.Request
	// LegacyTokenUsed is called with the Secret of each legacy token that is used. It may be nil.
	LegacyTokenUsed func(ctx context.Context, secret *corev1.Secret)
}

// Stack contains the authentication, authorization and admission of a server. It is safe for
// concurrent use.
type Stack struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	RuleResolver  authorizer.RuleResolver
	// GrantorAuthorizer decides whether the author of a write has the rights that the write gives
	// to other users.
	GrantorAuthorizer authorizer.Authorizer
	// Admission contains the plugins in their order.
	Admission []Plugin
	// ClientCA contains the authorities of the x509 sources, for TLS handshakes.
	ClientCA dynamiccertificates.CAContentProvider

	current atomic.Pointer[snapshot]
	shared  *shared
}

// New builds a stack from a defaulted and validated copy of config. The stack follows the files
// that the configuration names until ctx ends. The error contains the name of the invalid source,
// file, line or field.
func New(ctx context.Context, config *configv1alpha1.Settings, server Server) (*Stack, error) {
	complete, err := config.Complete()
	if err != nil {
		return nil, err
	}
	stack := &Stack{}
	state, err := newShared(server, stack)
	if err != nil {
		return nil, err
	}
	g, err := newSnapshot(ctx, state, complete)
	if err != nil {
		return nil, err
	}
	return stack.start(state, g), nil
}

// Open is like [New], but reads the configuration from the file at path, and also follows this
// file. A new version takes effect as a whole. A version with an error has no effect.
func Open(ctx context.Context, path string, server Server) (*Stack, error) {
	stack := &Stack{}
	state, err := newShared(server, stack)
	if err != nil {
		return nil, err
	}
	file, err := reload.Open(path, func(data []byte) (*snapshot, error) {
		config, err := configv1alpha1.Decode(data)
		if err != nil {
			return nil, err
		}
		config.ResolvePaths(filepath.Dir(path))
		g, err := newSnapshot(ctx, state, &config.Settings)
		if err == nil && stack.shared != nil {
			stack.swap(g)
		}
		return g, err
	}, state.report(ctx, nil))
	if err != nil {
		return nil, err
	}
	state.reloads.setFollowed(path, nil)
	stack.start(state, *file.Load())
	go file.Run(ctx)
	return stack, nil
}

// Prepare prepares a new version of a configuration that several stacks share. The configuration
// MUST be complete. commit makes the version take effect in this stack, and discard drops it. The
// caller MUST call exactly one of them, once, before the next Prepare.
func (s *Stack) Prepare(ctx context.Context, config *configv1alpha1.Settings) (commit, discard func(), err error) {
	g, err := newSnapshot(ctx, s.shared, config)
	if err != nil {
		return nil, nil, err
	}
	return func() { s.swap(g) }, g.stop, nil
}

// Check checks the configuration file at path and every file that the configuration names, as
// [Open] does. The file at path may also be of kind Revocation. Check does not check the settings
// of the server, and sends no requests to identity providers.
func Check(ctx context.Context, path string) error {
	if _, ok, err := configv1alpha1.LoadRevocation(path); ok {
		return err
	}
	config, err := configv1alpha1.Load(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state, err := newShared(Server{
		Cluster:        NoCluster(),
		Authentication: Authentication{RequestHeader: noProxy()},
	}, &Stack{})
	if err != nil {
		return err
	}
	g, err := newSnapshot(ctx, state, &config.Settings)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	g.stop()
	return nil
}

// noProxy returns placeholder settings for front proxies, with which the configuration of a
// frontProxy source can be checked without a server.
func noProxy() *authenticatorfactory.RequestHeaderConfig {
	placeholder := headerrequest.StaticStringSlice{"-"}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   &clientCAs{},
		AllowedClientNames:  placeholder,
		UsernameHeaders:     placeholder,
		UIDHeaders:          placeholder,
		GroupHeaders:        placeholder,
		ExtraHeaderPrefixes: placeholder,
	}
}

// start sets the fields of s from its first snapshot.
func (s *Stack) start(state *shared, g *snapshot) *Stack {
	s.shared, s.ClientCA, s.GrantorAuthorizer = state, state.clientCAs, state.grantorAuthorizer
	s.swap(g)
	s.Authenticator = authenticator.RequestFunc(s.authenticate)
	s.Authorizer, s.RuleResolver = (*stackAuthorizer)(s), (*stackAuthorizer)(s)
	s.Admission = s.reloadablePlugins(g.plugins)
	return s
}

// ServiceAccountTenant returns the tenant of the service accounts in a namespace, for the issuer
// of their tokens. The error wraps [tenant.ErrInvalid] if the service accounts have no tenant.
// Any other error means that the lookup failed.
func (s *Stack) ServiceAccountTenant(ctx context.Context, namespace string) (tenant.ID, error) {
	return s.current.Load().boundary.Options().Subjects.ServiceAccountTenant(ctx, namespace)
}

// Subject returns the tenant of an authenticated user and the rule that determined the tenant. See
// [authz.Subjects.TenantWithRule]. Use it to explain a decision.
func (s *Stack) Subject(ctx context.Context, u user.Info) (tenant.ID, authz.SubjectRule, error) {
	return s.current.Load().boundary.Options().Subjects.TenantWithRule(ctx, u)
}

// NamespaceOwner returns the tenant that owns a namespace. It returns the system tenant if the
// namespace has no tenant label or is a system namespace. It returns the zero ID if the label is
// invalid or the namespace does not exist. An error means that the owner is unknown. Use it in
// admission and controllers. The namespace MUST come from a request that was already authorized,
// because the lookups have no rate limit.
func (s *Stack) NamespaceOwner(ctx context.Context, namespace string) (tenant.ID, error) {
	return s.current.Load().boundary.Options().Owners.OfUnthrottled(ctx, namespace)
}

// WithRequestState is the outermost filter. See [authz.WithRequestState].
func (s *Stack) WithRequestState(next http.Handler) http.Handler {
	return authz.WithRequestState(withFairUseState(next), func(r schema.GroupResource) bool {
		g := s.current.Load()
		return g.olderTenantPaths && g.boundary.Options().Scopes.Of(r) != authz.ScopeUnknown &&
			g.boundary.Options().Scopes.Of(schema.GroupResource{Group: r.Group, Resource: "tenants"}) == authz.ScopeUnknown
	})
}

// WithTenant is the innermost filter. See [authz.WithTenant]. It also applies the limits of fair
// use, unless [Stack.AdmitRequest] has already applied them to the request.
func (s *Stack) WithTenant(next http.Handler) http.Handler {
	return s.withFairUse(authz.WithTenant(s.withAudit(s.withPlugins(s.withReviews(next))), s.shared.sessions))
}

// FollowNamespaces returns the handler that a Namespace informer must call. When the owner of a
// namespace changes, the handler ends the sessions of tenants in this namespace.
func (s *Stack) FollowNamespaces() cache.ResourceEventHandler {
	return &namespaceEvents{s.shared.sessions.NamespaceHandler(s.shared.cluster.owners.OwnerOf), s.shared.decisions.forget}
}

// GrantChanged must be called after the permissions of the grants in a namespace change. It ends
// the sessions that the grants had allowed.
func (s *Stack) GrantChanged(namespace string) { s.shared.sessions.EndExcepted(namespace) }

// ReadsContent reports whether plugins read more than the metadata of the objects of a kind. The
// kind must not be built into Kubernetes. If the result is false, a cache needs to store only the
// metadata.
func (s *Stack) ReadsContent(kind schema.GroupKind) bool {
	g := s.current.Load()
	_, described := g.workloads[kind]
	_, governed := g.bindingKinds[kind]
	return described || governed || g.isPublished(kind) || policy.Reads(kind) ||
		kind.Group == v1alpha1.SchemeGroupVersion.Group
}

// DerivesRights reports whether the server grants callers of tenants the rights that follow from
// their Tenant, without a binding. If true, the ClusterRoles that contain these rights must exist.
func (s *Stack) DerivesRights() bool { return s.current.Load().derivesRights }

// SharedClusterResources returns the cluster-scoped resources that every tenant may read. The
// caller MUST NOT change the slice.
func (s *Stack) SharedClusterResources() []schema.GroupResource {
	return s.current.Load().boundary.Options().Shared
}

// SyncedKeystone returns the Keystone source whose projects the controller synchronizes, or nil
// if there is none. The caller MUST NOT change the result.
func (s *Stack) SyncedKeystone() *configv1alpha1.Source {
	return s.current.Load().config.SyncedKeystone()
}

// PublicationRules returns the rules that specify what Publications may copy.
func (s *Stack) PublicationRules() *publication.Rules {
	return publication.RulesOf(&s.current.Load().config.Admission.Publication, s.shared.cluster.isNamespaced)
}

// DefaultQuota returns the limits of tenants without their own quota. It is empty if these
// tenants have no limits.
func (s *Stack) DefaultQuota() corev1.ResourceList { return s.current.Load().defaultQuota }

// RecordDecision records, in the metrics of this Stack, a decision of another Stack. The outcome
// MUST contain the tenant ID that the caller has in the configuration of this Stack.
func (s *Stack) RecordDecision(ctx context.Context, o authz.Outcome) {
	s.shared.decisions.observe(ctx, o)
}

// RecordLimit records, in the metrics of this Stack, a request that another Stack rejected because
// of a limit. id MUST be the tenant ID in the configuration of this Stack.
func (s *Stack) RecordLimit(id tenant.ID, limit string) { s.shared.decisions.recordLimit(id, limit) }

// RecordStream records, in the usage of this Stack, a watch or other stream that another Stack
// serves. The stream is counted until ended is called. id MUST be the tenant ID in the
// configuration of this Stack.
func (s *Stack) RecordStream(id tenant.ID) (ended func()) { return s.shared.stream(id) }

// HasTenant reports whether the cluster has a Tenant object or a namespace of a tenant. It returns
// true if this is unknown.
func (s *Stack) HasTenant(id tenant.ID) bool { return s.shared.cluster.exists(id) }

// ForgetTenants deletes the metrics of tenants that no longer exist. A Stack without a Namespace
// informer does not notice that a tenant was deleted. Its owner must call ForgetTenants from time
// to time.
func (s *Stack) ForgetTenants() { s.shared.decisions.forget() }

// TenantChanged must be called after the access of a tenant's callers was reduced, or after its
// Tenant was deleted. It ends the sessions of these callers. Clients that still have access can
// reconnect.
func (s *Stack) TenantChanged(id tenant.ID) {
	s.shared.sessions.EndTenants(func(other tenant.ID) bool { return other == id })
	s.shared.decisions.forget()
	if s.shared.decisions.usage != nil {
		s.shared.decisions.usage.Check(id)
	}
}

// Revocations returns the current revocations, or nil if the configuration has none.
func (s *Stack) Revocations() *authn.Revocations {
	if revoked := s.current.Load().revoked; revoked != nil {
		return revoked()
	}
	return nil
}

// EndRevoked ends the sessions of revoked callers, including sessions that are about to begin. If
// [Authentication.Revocations] is set, the server MUST call EndRevoked for each new version.
func (s *Stack) EndRevoked(revoked *authn.Revocations) { s.shared.endRevoked(revoked) }

// EndSessions ends all sessions. Clients that still have access can reconnect.
func (s *Stack) EndSessions() { s.shared.sessions.EndAll() }

// swap replaces the current snapshot with g. The old snapshot then stops following its files.
func (s *Stack) swap(g *snapshot) {
	old := s.current.Swap(g)
	s.shared.clientCAs.set(g.clientCAs)
	for _, name := range s.shared.cluster.owners.Reserve(g.config.Authorization.SystemNamespaces) {
		s.shared.sessions.EndOtherTenants(name, tenant.System())
	}
	if old != nil {
		s.endDenied(old, g)
	}
	s.shared.required, s.shared.acceptsAdmins = g.config.Authorization.RequireTenant, g.acceptsAdmins
	s.shared.reloads.setSnapshot(g)
	s.shared.decisions.setMax(g.tenantMetrics)
	if old != nil {
		old.stop()
		s.shared.sessions.EndExcepted("") // the new snapshot may have other exceptions
		if g.revoked != nil {
			s.shared.revocationsChanged(g.revoked())
		}
	}
}

// endDenied ends the sessions that the old snapshot allowed and g may deny.
func (s *Stack) endDenied(old, g *snapshot) {
	if old.boundary.Options().Shadow && !g.boundary.Options().Shadow { // Shadow mode only recorded denials
		s.shared.sessions.EndTenants(func(tenant.ID) bool { return true })
		return
	}
	required := g.config.Authorization.RequireTenant
	if required == configv1alpha1.RequireTenantAlways && s.shared.required != required {
		s.shared.sessions.EndTenants(func(id tenant.ID) bool {
			return !id.IsZero() && g.boundary.Options().Access(id) == authz.AccessNone
		})
	}
}

func (s *Stack) authenticate(req *http.Request) (*authenticator.Response, bool, error) {
	resp, ok, err := s.current.Load().authenticator.AuthenticateRequest(req)
	if err != nil || !ok {
		return resp, ok, err
	}
	noted := *resp
	noted.User = authz.RecordCaller(req.Context(), resp.User)
	return &noted, true, nil
}

// stackAuthorizer delegates to the boundary of the current snapshot.
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
