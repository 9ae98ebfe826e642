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

// generation is the snapshot of one version of the configuration.
type generation struct {
	authenticator authenticator.Request
	boundary      *authz.Boundary
	olderPaths    bool // the server accepts /api/v1/tenants/<id>/...
	derivesRights bool // see [Stack.DerivesRights]
	plugins       []Plugin
	halves        []halves                  // the halves of the plugins
	defaultQuota  corev1.ResourceList       // the quota of tenants without their own
	clientCAs     []func() []byte           // the bundles of the x509 sources
	revoked       func() *authn.Revocations // nil if there are no revocations
	config        *configv1alpha1.Settings  // defaulted, must not be changed
	hash, mode    string                    // identify the configuration
	tenantMetrics int                       // number of tenants with metrics of their own
	described     workload.Kinds            // kinds that contain pod templates
	governed      map[schema.GroupKind]bool // kinds with recorded identities
	files         *fileStates
	acceptsAdmins bool // see the function acceptsAdmins
	stop          context.CancelFunc
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
	audit *tenantaudit.Streams // nil if there are none
	// required is the setting of the current snapshot. Snapshots replace each other one at a time.
	required configv1alpha1.RequireTenant
	// acceptsAdmins belongs to the current snapshot too.
	acceptsAdmins bool
	// service is the section service of the configuration at the start. atStart contains the
	// section usage.
	service *configv1alpha1.Service
	atStart *configv1alpha1.Settings
	// grantors decides what a grantor may do itself.
	grantors authorizer.Authorizer
	// isInForce reports whether a snapshot is the current one.
	isInForce func(*generation) bool
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
	of := &shared{
		Server:    server,
		cluster:   parts,
		reloads:   newReloadMetrics(),
		counters:  authn.NewMetrics(),
		decisions: newDecisionMetrics(exists),
		clientCAs: &clientCAs{},
		compiler:  sync.OnceValue(authenticationcel.NewDefaultCompiler),
		sessions:  &authz.Sessions{},
		grantors:  server.Authorization.Grantors,
		isInForce: func(g *generation) bool { return stack.current.Load() == g },
	}
	now := server.Now
	if now == nil {
		now = time.Now
	}
	of.fairUse = fairuse.New(now)
	if server.Streams == nil {
		of.decisions.usage, of.usage = usage.NewRecorder(now, exists, parts.uid), usage.NewMetrics()
	}
	if of.grantors == nil {
		of.grantors = (*stackAuthorizer)(stack)
	}
	if ca := server.Authentication.ClientCA; ca != nil {
		if err := frontproxy.CheckAuthorities(server.Authentication.RequestHeader, ca.CurrentCABundleContent()); err != nil {
			return nil, err
		}
	}
	if server.Register != nil {
		all := slices.Concat(of.counters.Registerables(), of.decisions.registerables(), of.reloads.registerables())
		if of.usage != nil {
			all = append(all, of.usage.Registerables()...)
		}
		for _, m := range all {
			if err := server.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return of, nil
}

// observe records an outcome and calls the observer of the server.
func (s *shared) observe(ctx context.Context, o authz.Outcome) {
	s.decisions.observe(ctx, o)
	if s.Observe != nil {
		s.Observe(ctx, o)
	}
}

// newGeneration returns the snapshot of a valid configuration. It follows the files of the
// configuration until ctx ends or the snapshot is stopped.
func newGeneration(ctx context.Context, of *shared, config *configv1alpha1.Settings) (_ *generation, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	g := &generation{
		stop:          stop,
		files:         newFileStates(),
		config:        config,
		olderPaths:    config.Authorization.OlderTenantPaths,
		mode:          string(config.Authorization.Mode),
		tenantMetrics: *config.Service.TenantMetrics,
		described:     workloadKinds(config.Admission.Workloads),
		governed:      governedKinds(config.Admission.Binding.Kinds),
	}
	if g.hash, err = hashOf(config); err != nil {
		return nil, err
	}
	if required := config.Authorization.RequireTenant; required != of.required { // else, no further tenant is locked out
		if err = of.cluster.checkRequired(required); err != nil {
			return nil, err
		}
	}
	names, report := systemNames(config), of.report(ctx, g.files)
	if g.revoked = of.Authentication.Revocations; g.revoked == nil && config.Authentication.Revocation != nil {
		changed := func(revoked *authn.Revocations) {
			if of.isInForce(g) { // swap reports the list of a snapshot that is not current yet
				of.revocationsChanged(revoked)
			}
		}
		g.revoked, err = followRevocations(ctx, config.Authentication.Revocation.Path, report, changed)
		if err != nil {
			return nil, err
		}
	}
	isAccounts := func(s configv1alpha1.Source) bool { return s.ServiceAccount != nil }
	authorization := &authorizationParts{
		Authorization: of.Authorization,
		cluster:       of.cluster,
		names:         names,
		limits:        tenant.Limits(config.Authentication.Limits),
		qualified:     config.Authentication.QualifyNames,
		accountsInGroup: of.Authentication.Credentials != BearerTokens &&
			slices.ContainsFunc(config.Authentication.Sources, isAccounts),
		ownPrefixes:       config.Admission.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired,
		revoked:           g.revoked,
		sourceTenant:      of.sourceTenant,
		report:            report,
		observe:           of.observe,
		exceptionsChanged: func() { of.sessions.EndExcepted("") },
	}
	if g.boundary, err = newBoundary(ctx, authorization, &config.Authorization); err != nil {
		return nil, err
	}
	g.derivesRights = authorization.derivesRights(&config.Authorization)
	if err = g.authenticate(ctx, of, names, report); err != nil {
		return nil, err
	}
	if ca := of.Authentication.ClientCA; ca != nil {
		g.acceptsAdmins = acceptsAdmins(ca.CurrentCABundleContent(), config.Authentication.Sources, g.clientCAs)
	}
	if of.acceptsAdmins && !g.acceptsAdmins { // at the start, a lockout is visible and may be intended
		return nil, errLockedOut
	}
	admission := &admissionParts{
		cluster:  of.cluster,
		subject:  g.boundary.Subjects.Of,
		names:    names,
		now:      of.Now,
		grantors: of.grantors,
		gates:    of.decisions.gates,
		denies:   func(ctx context.Context, a authorizer.Attributes) string { return g.boundary.Denies(ctx, a).String() },
	}
	if g.plugins, err = newPlugins(admission, config); err != nil {
		return nil, err
	}
	g.halves = halvesOf(g.plugins)
	if *config.Admission.Quota.Enabled {
		g.defaultQuota = config.Admission.Quota.Default
	}
	of.warn(ctx, config)
	return g, nil
}

// warn logs settings that may not have the intended effect, or that need a restart.
func (s *shared) warn(ctx context.Context, config *configv1alpha1.Settings) {
	for _, text := range config.Warnings() {
		klog.FromContext(ctx).Info("The configuration may not have the intended effect", "warning", text)
	}
	if service := servingSettings(config); s.service == nil {
		s.service = service
	} else if !equality.Semantic.DeepEqual(s.service, service) {
		klog.FromContext(ctx).Info("The section service of the configuration is not the one at the start: " +
			"restart kubetenant-webhook and kubetenant-gateway for the change to take effect")
	}
	if s.atStart == nil {
		s.atStart = config
	}
	for section, same := range map[string]bool{
		"usage": equality.Semantic.DeepEqual(s.atStart.Usage, config.Usage),
		"audit": equality.Semantic.DeepEqual(s.atStart.Audit, config.Audit),
	} {
		if !same {
			klog.FromContext(ctx).Info("The section " + section + " of the configuration is not the one at the start: " +
				"restart the server for the change to take effect")
		}
	}
}

// servingSettings returns the settings that a process uses only when it starts.
func servingSettings(config *configv1alpha1.Settings) *configv1alpha1.Service {
	service := config.Service
	service.TenantMetrics = nil
	return &service
}

// authenticate builds the authenticator of a snapshot. The boundary and the revocations of the
// snapshot must exist.
func (g *generation) authenticate(
	ctx context.Context, of *shared, names *tenant.SystemNames, report reload.Report,
) error {
	config := &g.config.Authentication
	sources := &sourceParts{
		Authentication:  of.Authentication,
		names:           names,
		settings:        config,
		report:          report,
		revoked:         g.revoked,
		now:             of.Now,
		certificates:    authnx509.NewVerifier(of.Now),
		compiler:        of.compiler,
		claims:          sync.OnceValue(func() authenticationcel.Compiler { return oidc.NewCompiler(of.compiler()) }),
		issuers:         &oidc.Clients{},
		serviceAccounts: g.boundary.Subjects.OfServiceAccounts,
		changed:         of.clientCAs.changed,
	}
	chain := authn.Chain{
		Audiences: of.Authentication.APIAudiences,
		BuiltIn:   of.Authentication.Authenticator,
		Revoked:   g.revoked,
		Subject:   g.boundary.Subjects.Of,
		Accepts:   of.accepts(),
		Metrics:   of.counters,
		Limits:    tenant.Limits(config.Limits),
		Now:       of.Now,
	}
	if ca := of.Authentication.ClientCA; ca != nil {
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
	g.authenticator, g.clientCAs = authn.New(chain), sources.clientCAs
	return nil
}

// revocationsChanged handles a new list of revocations, which is already in effect.
func (s *shared) revocationsChanged(revoked *authn.Revocations) {
	s.endRevoked(revoked)
	if s.Authentication.RevocationsChanged != nil {
		s.Authentication.RevocationsChanged(revoked)
	}
}

// endRevoked ends the sessions of revoked callers. A caller that is not revoked can reconnect.
func (s *shared) endRevoked(revoked *authn.Revocations) {
	s.sessions.EndRevoked(func(c *authz.Caller) bool {
		if c.Real != nil {
			id, err := tenant.Of(c.Real)
			if err != nil {
				id = c.Tenant // a service account that impersonates within its tenant
			}
			if revoked.MayCover(s.sourceTenant(id), c.Real) {
				return true
			}
		}
		if c.Source != nil {
			// Without a tenant, the caller may still be covered by its name or credential.
			if id, _ := tenant.Of(c.Source); revoked.MayCover(id, c.Source) {
				return true
			}
		}
		return revoked.MayCover(s.sourceTenant(c.Tenant), c.User) ||
			slices.ContainsFunc(c.Certificates, revoked.HasCertificate)
	})
}

// sourceTenant returns the name of a tenant in revocations.
func (s *shared) sourceTenant(id tenant.ID) tenant.ID {
	if s.Authentication.SourceTenant == nil {
		return id
	}
	return s.Authentication.SourceTenant(id)
}

// accepts returns the function for [authn.Chain.Accepts], or nil if all credentials are accepted.
func (s *shared) accepts() func(context.Context, tenant.ID, time.Time) bool {
	ofCluster, others := s.cluster.accepts(), s.Authentication.Accepts
	switch {
	case others == nil:
		return ofCluster
	case ofCluster == nil:
		return others
	}
	return func(ctx context.Context, id tenant.ID, issued time.Time) bool {
		return ofCluster(ctx, id, issued) && others(ctx, id, issued)
	}
}

// systemNames returns the names that only callers of the system tenant may have. It covers all
// sources, because a name that one source reserves for the system tenant may not come from another
// source.
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

// Published returns the effective configuration for publication (see
// [cluster.PublishConfiguration]). The error reports that a file that the configuration names
// cannot be read.
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
