// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authn/oidc"
	authnx509 "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// snapshot contains everything that is built from one version of the configuration. A new version
// replaces the whole snapshot.
type snapshot struct {
	authenticator    authenticator.Request
	boundary         *authz.Boundary
	olderTenantPaths bool // the server accepts /api/v1/tenants/<id>/...
	derivesRights    bool // see [Stack.DerivesRights]
	plugins          []Plugin
	pluginParts      []pluginParts             // the mutating and the validating parts of plugins
	defaultQuota     corev1.ResourceList       // the quota of tenants without a TenantQuota
	clientCAs        []func() []byte           // the bundles of the x509 sources
	revoked          func() *authn.Revocations // nil if there are no revocations
	config           *configv1alpha1.Settings  // defaulted, must not be changed
	hash, mode       string                    // identify the configuration
	tenantMetrics    int                       // maximum number of tenants with their own metrics
	workloads        workload.Kinds            // kinds that contain pod templates
	bindingKinds     map[schema.GroupKind]bool // kinds for whose objects an identity is recorded
	files            *fileStates
	acceptsAdmins    bool // see the function acceptsAdmins
	stop             context.CancelFunc
}

// shared contains the state that all snapshots of a stack share.
type shared struct {
	Server
	cluster   *clusterParts
	reloads   *reloadMetrics
	counters  *authn.Metrics
	decisions *decisionMetrics
	clientCAs *clientCAs
	compiler  func() authenticationcel.Compiler
	sessions  *authz.Sessions
	fairUse   *fairuse.Meter
	// usage is nil if another Stack records the usage of tenants.
	usage *usage.Metrics
	audit *tenantaudit.Streams // nil if the server has no audit streams
	// required is authorization.requireTenant of the current snapshot. It has no lock, because
	// snapshots are built one at a time.
	required configv1alpha1.RequireTenant
	// acceptsAdmins is the field acceptsAdmins of the current snapshot.
	acceptsAdmins bool
	// startService is the section service of the first snapshot, and startSettings are all its
	// settings. Changes of the sections service, usage and audit require a restart.
	startService  *configv1alpha1.Service
	startSettings *configv1alpha1.Settings
	// grantorAuthorizer is [Stack.GrantorAuthorizer].
	grantorAuthorizer authorizer.Authorizer
	// isCurrent reports whether a snapshot is the current one.
	isCurrent func(*snapshot) bool
}

// newShared returns the state that the snapshots of stack share.
func newShared(server Server, stack *Stack) (*shared, error) {
	if server.Cluster == nil || server.Cluster.Owners() == nil {
		return nil, errors.New("kubetenant: Config.Cluster is required")
	}
	parts := partsOf(server.Cluster, server.Stale)
	exists := server.Exists
	if exists == nil {
		exists = parts.exists
	}
	state := &shared{
		Server:            server,
		cluster:           parts,
		reloads:           newReloadMetrics(),
		counters:          authn.NewMetrics(),
		decisions:         newDecisionMetrics(exists),
		clientCAs:         &clientCAs{},
		compiler:          sync.OnceValue(authenticationcel.NewDefaultCompiler),
		sessions:          &authz.Sessions{},
		grantorAuthorizer: server.Authorization.GrantorAuthorizer,
		isCurrent:         func(g *snapshot) bool { return stack.current.Load() == g },
	}
	now := server.Now
	if now == nil {
		now = time.Now
	}
	state.fairUse = fairuse.New(now)
	if server.ObserveStream == nil {
		state.decisions.usage, state.usage = usage.NewRecorder(now, exists, parts.uid), usage.NewMetrics()
	}
	if state.grantorAuthorizer == nil {
		state.grantorAuthorizer = (*stackAuthorizer)(stack)
	}
	if ca := server.Authentication.ClientCA; ca != nil {
		if err := frontproxy.CheckAuthorities(server.Authentication.RequestHeader, ca.CurrentCABundleContent()); err != nil {
			return nil, err
		}
	}
	if server.Register != nil {
		all := slices.Concat(state.counters.Registerables(), state.decisions.registerables(), state.reloads.registerables())
		if state.usage != nil {
			all = append(all, state.usage.Registerables()...)
		}
		for _, m := range all {
			if err := server.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return state, nil
}

// observe records an outcome in the metrics and calls [Server.Observe].
func (s *shared) observe(ctx context.Context, o authz.Outcome) {
	s.decisions.observe(ctx, o)
	if s.Observe != nil {
		s.Observe(ctx, o)
	}
}

// authorizationParts returns the dependencies of the boundary of a snapshot.
func (s *shared) authorizationParts(
	config *configv1alpha1.Settings, g *snapshot, names *tenant.SystemNames, report reload.Report,
) *authorizationParts {
	isServiceAccountSource := func(source configv1alpha1.Source) bool { return source.ServiceAccount != nil }
	return &authorizationParts{
		Authorization: s.Authorization,
		cluster:       s.cluster,
		names:         names,
		limits:        tenant.Limits(config.Authentication.Limits),
		qualified:     config.Authentication.QualifyNames,
		accountsInGroup: s.Authentication.Credentials != BearerTokens &&
			slices.ContainsFunc(config.Authentication.Sources, isServiceAccountSource),
		ownPrefixes:       config.Admission.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired,
		revoked:           g.revoked,
		sourceTenant:      s.sourceTenant,
		report:            report,
		observe:           s.observe,
		exceptionsChanged: func() { s.sessions.EndExcepted("") },
	}
}

// newSnapshot returns the snapshot of a valid configuration. It follows the files of the
// configuration until ctx ends or the snapshot is stopped.
func newSnapshot(ctx context.Context, state *shared, config *configv1alpha1.Settings) (_ *snapshot, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	g := &snapshot{
		stop:             stop,
		files:            newFileStates(),
		config:           config,
		olderTenantPaths: config.Authorization.OlderTenantPaths,
		mode:             string(config.Authorization.Mode),
		tenantMetrics:    *config.Service.TenantMetrics,
		workloads:        workloadKinds(config.Admission.Workloads),
		bindingKinds:     bindingKinds(config.Admission.Binding.Kinds),
	}
	if g.hash, err = hashOf(config); err != nil {
		return nil, err
	}
	// A setting that does not change locks out no additional tenant.
	if required := config.Authorization.RequireTenant; required != state.required {
		if err = state.cluster.checkRequired(required); err != nil {
			return nil, err
		}
	}
	names := systemNames(config)
	report := state.report(ctx, g.files)
	if g.revoked = state.Authentication.Revocations; g.revoked == nil && config.Authentication.Revocation != nil {
		changed := func(revoked *authn.Revocations) {
			if state.isCurrent(g) { // otherwise, swap reports the list when g becomes current
				state.revocationsChanged(revoked)
			}
		}
		g.revoked, err = followRevocations(ctx, config.Authentication.Revocation.Path, report, changed)
		if err != nil {
			return nil, err
		}
	}
	authorization := state.authorizationParts(config, g, names, report)
	if g.boundary, err = newBoundary(ctx, authorization, &config.Authorization); err != nil {
		return nil, err
	}
	g.derivesRights = authorization.derivesRights(&config.Authorization)
	if err = g.authenticate(ctx, state, names, report); err != nil {
		return nil, err
	}
	if ca := state.Authentication.ClientCA; ca != nil {
		g.acceptsAdmins = acceptsAdmins(ca.CurrentCABundleContent(), config.Authentication.Sources, g.clientCAs)
	}
	if state.acceptsAdmins && !g.acceptsAdmins { // false at the start, where a lockout may be intended
		return nil, errLockedOut
	}
	admission := &admissionParts{
		cluster:           state.cluster,
		subject:           g.boundary.Options().Subjects.TenantOf,
		names:             names,
		now:               state.Now,
		grantorAuthorizer: state.grantorAuthorizer,
		gateDenials:       state.decisions.gateDenials,
		denies: func(ctx context.Context, a authorizer.Attributes) string {
			return g.boundary.DenialReason(ctx, a).String()
		},
	}
	if g.plugins, err = newPlugins(admission, config); err != nil {
		return nil, err
	}
	g.pluginParts = pluginPartsOf(g.plugins)
	if *config.Admission.Quota.Enabled {
		g.defaultQuota = config.Admission.Quota.Default
	}
	state.warn(ctx, config)
	return g, nil
}

// warn logs settings that may not have the intended effect, and changes that require a restart.
func (s *shared) warn(ctx context.Context, config *configv1alpha1.Settings) {
	for _, text := range config.Warnings() {
		klog.FromContext(ctx).Info("The configuration may not have the intended effect", "warning", text)
	}
	if service := servingSettings(config); s.startService == nil {
		s.startService = service
	} else if !equality.Semantic.DeepEqual(s.startService, service) {
		klog.FromContext(ctx).Info("The section service of the configuration is not the one at the start: " +
			"restart kubetenant-webhook and kubetenant-gateway for the change to take effect")
	}
	if s.startSettings == nil {
		s.startSettings = config
	}
	for section, same := range map[string]bool{
		"usage": equality.Semantic.DeepEqual(s.startSettings.Usage, config.Usage),
		"audit": equality.Semantic.DeepEqual(s.startSettings.Audit, config.Audit),
	} {
		if !same {
			klog.FromContext(ctx).Info("The section " + section + " of the configuration is not the one at the start: " +
				"restart the server for the change to take effect")
		}
	}
}

// servingSettings returns the settings of the section service that a process reads only when it
// starts.
func servingSettings(config *configv1alpha1.Settings) *configv1alpha1.Service {
	service := config.Service
	service.TenantMetrics = nil
	return &service
}

// authenticate sets the authenticator and the client CAs of a snapshot. The boundary and the
// revocations of the snapshot MUST be set before.
func (g *snapshot) authenticate(
	ctx context.Context, state *shared, names *tenant.SystemNames, report reload.Report,
) error {
	config := &g.config.Authentication
	sources := &sourceParts{
		Authentication:  state.Authentication,
		names:           names,
		settings:        config,
		report:          report,
		revoked:         g.revoked,
		now:             state.Now,
		certificates:    authnx509.NewVerifier(state.Now),
		compiler:        state.compiler,
		claimsCompiler:  sync.OnceValue(func() authenticationcel.Compiler { return oidc.NewCompiler(state.compiler()) }),
		issuers:         &oidc.Clients{},
		serviceAccounts: g.boundary.Options().Subjects.ServiceAccountTenant,
		caChanged:       state.clientCAs.notify,
	}
	chain := authn.Chain{
		Audiences: state.Authentication.APIAudiences,
		BuiltIn:   state.Authentication.Authenticator,
		Revoked:   g.revoked,
		Subject:   g.boundary.Options().Subjects.TenantOf,
		Accepts:   state.accepts(),
		Metrics:   state.counters,
		Limits:    tenant.Limits(config.Limits),
		Now:       state.Now,
	}
	if ca := state.Authentication.ClientCA; ca != nil {
		chain.BuiltInChains = func(presented []*x509.Certificate) [][]*x509.Certificate {
			options, known := ca.VerifyOptions()
			if !known {
				return nil
			}
			return authnx509.Chains(presented, options)
		}
	}
	if err := addSources(ctx, sources, config.Sources, &chain); err != nil {
		return err
	}
	g.authenticator = authn.New(chain)
	g.clientCAs = sources.clientCAs
	return nil
}

// revocationsChanged is called after a new list of revocations has taken effect.
func (s *shared) revocationsChanged(revoked *authn.Revocations) {
	s.endRevoked(revoked)
	if s.Authentication.RevocationsChanged != nil {
		s.Authentication.RevocationsChanged(revoked)
	}
}

// endRevoked ends the sessions of revoked callers. A caller that is not revoked can reconnect.
func (s *shared) endRevoked(revoked *authn.Revocations) {
	s.sessions.EndRevoked(func(c *authz.Caller) bool {
		if c.Impersonator != nil {
			id, err := tenant.Of(c.Impersonator)
			if err != nil {
				id = c.Tenant // a service account, which can only impersonate users of its own tenant
			}
			if revoked.MayCover(s.sourceTenant(id), c.Impersonator) {
				return true
			}
		}
		if c.MappedFrom != nil {
			// Even if the user has no tenant, its credential may be revoked.
			if id, _ := tenant.Of(c.MappedFrom); revoked.MayCover(id, c.MappedFrom) {
				return true
			}
		}
		return revoked.MayCover(s.sourceTenant(c.Tenant), c.User) ||
			slices.ContainsFunc(c.Certificates, revoked.HasCertificate)
	})
}

// sourceTenant returns the tenant ID that the revocation file uses for a tenant of this server.
func (s *shared) sourceTenant(id tenant.ID) tenant.ID {
	if s.Authentication.SourceTenant == nil {
		return id
	}
	return s.Authentication.SourceTenant(id)
}

// accepts returns the function for [authn.Chain.Accepts], or nil if all credentials are accepted.
func (s *shared) accepts() func(context.Context, tenant.ID, time.Time) bool {
	clusterAccepts := s.cluster.accepts()
	serverAccepts := s.Authentication.Accepts
	switch {
	case serverAccepts == nil:
		return clusterAccepts
	case clusterAccepts == nil:
		return serverAccepts
	}
	return func(ctx context.Context, id tenant.ID, issued time.Time) bool {
		return clusterAccepts(ctx, id, issued) && serverAccepts(ctx, id, issued)
	}
}

// systemNames returns the names that only callers of the system tenant may have. It includes the
// names of all sources, because no source may assert a name that another source reserves for the
// system tenant.
func systemNames(config *configv1alpha1.Settings) *tenant.SystemNames {
	names := config.Authorization.SystemSubjects.Names()
	for _, src := range config.Authentication.Sources {
		if src.X509 != nil {
			names.Organizations = append(names.Organizations, src.X509.SystemOrganizations...)
			names.CommonNames = append(names.CommonNames, src.X509.SystemUsers...)
		}
	}
	return names
}

func groupResources(list []configv1alpha1.GroupResource) []schema.GroupResource {
	out := make([]schema.GroupResource, 0, len(list))
	for _, r := range list {
		out = append(out, schema.GroupResource{Group: r.Group, Resource: r.Resource})
	}
	return out
}

// Published returns the effective configuration, which [cluster.PublishConfiguration] publishes.
// It returns an error if it cannot read the revocation file or the ABAC policy file.
//
// [cluster.PublishConfiguration]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster#PublishConfiguration
func (s *Stack) Published() (*configv1alpha1.Published, error) {
	g := s.current.Load()
	settings, err := g.config.Complete() // a copy
	if err != nil {
		return nil, err
	}
	if s.shared.Authorization.RBAC == nil { // the server uses its own RBAC evaluator
		settings.Authorization.RBAC.Evaluator = configv1alpha1.EvaluatorUpstream
	}
	p := &configv1alpha1.Published{Hash: g.hash, Settings: *settings}
	read := func(into *string, path string) {
		data, failed := os.ReadFile(path) // #nosec G304 -- the configuration names it
		if failed != nil {
			err = failed
		}
		*into = string(data)
	}
	if r := settings.Authentication.Revocation; r != nil {
		read(&p.Revocation, r.Path)
	}
	if a := settings.Authorization.ABAC; a != nil {
		read(&p.Policy, a.Path)
	}
	return p, err
}
