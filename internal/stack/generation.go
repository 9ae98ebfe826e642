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

// generation is all that comes of one version of the configuration.
type generation struct {
	authenticator authenticator.Request
	boundary      *authz.Boundary
	olderPaths    bool // /api/v1/tenants/<id>/... is read
	derivesRights bool // see [Stack.DerivesRights]
	plugins       []Plugin
	halves        []halves                  // of the plugins
	defaultQuota  corev1.ResourceList       // of tenants that have none
	clientCAs     []func() []byte           // of the x509 sources
	revoked       func() *authn.Revocations // nil where nothing is
	config        *configv1alpha1.Settings  // defaulted; not to be changed
	hash, mode    string                    // of the configuration
	tenantMetrics int                       // how many tenants are counted by name
	described     workload.Kinds            // that describe pods
	governed      map[schema.GroupKind]bool // whose identity is recorded
	files         *fileStates
	acceptsAdmins bool // see the function
	stop          context.CancelFunc
}

// shared is what the generations of a stack have in common.
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
	audit *tenantaudit.Streams // nil for none
	// required is that of the generation in force. Generations come one after the other.
	required configv1alpha1.RequireTenant
	// acceptsAdmins is that of the generation in force, too.
	acceptsAdmins bool
	// service is the section of the configuration at the start, and atStart has the section usage.
	service *configv1alpha1.Service
	atStart *configv1alpha1.Settings
	// grantors says what a grantor may do itself.
	grantors authorizer.Authorizer
	// isInForce reports whether a generation is the one that counts.
	isInForce func(*generation) bool
}

// newShared returns what the generations of stack have in common.
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

// observe counts an outcome, and tells whoever else wants to know.
func (s *shared) observe(ctx context.Context, o authz.Outcome) {
	s.decisions.observe(ctx, o)
	if s.Observe != nil {
		s.Observe(ctx, o)
	}
}

// newGeneration returns the generation of a valid configuration. Its files are followed until ctx
// ends or the generation is stopped.
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
	if required := config.Authorization.RequireTenant; required != of.required { // who is locked out already is no news
		if err = of.cluster.checkRequired(required); err != nil {
			return nil, err
		}
	}
	names, report := systemNames(config), of.report(ctx, g.files)
	if g.revoked = of.Authentication.Revocations; g.revoked == nil && config.Authentication.Revocation != nil {
		changed := func(revoked *authn.Revocations) {
			if of.isInForce(g) { // else it is told of when it is
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
	if of.acceptsAdmins && !g.acceptsAdmins { // a start that locks out is noticed, and may be intended
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

// warn logs what may not have the intended effect in a configuration, or not yet.
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

// authenticate makes the authenticator of a generation whose boundary and revocations are there.
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

// revocationsChanged is told of another list, which counts by then.
func (s *shared) revocationsChanged(revoked *authn.Revocations) {
	s.endRevoked(revoked)
	if s.Authentication.RevocationsChanged != nil {
		s.Authentication.RevocationsChanged(revoked)
	}
}

// endRevoked ends what is open of callers that are revoked. Who was not meant may open it again.
func (s *shared) endRevoked(revoked *authn.Revocations) {
	s.sessions.EndRevoked(func(c *authz.Caller) bool {
		if c.Real != nil {
			id, err := tenant.Of(c.Real)
			if err != nil {
				id = c.Tenant // a service account's, which impersonates within its tenant
			}
			if revoked.MayCover(s.sourceTenant(id), c.Real) {
				return true
			}
		}
		if c.Source != nil {
			// with none it may be covered by its name or credential
			if id, _ := tenant.Of(c.Source); revoked.MayCover(id, c.Source) {
				return true
			}
		}
		return revoked.MayCover(s.sourceTenant(c.Tenant), c.User) ||
			slices.ContainsFunc(c.Certificates, revoked.HasCertificate)
	})
}

// sourceTenant returns a tenant as revocations name it.
func (s *shared) sourceTenant(id tenant.ID) tenant.ID {
	if s.Authentication.SourceTenant == nil {
		return id
	}
	return s.Authentication.SourceTenant(id)
}

// accepts returns what [authn.Chain] asks about credentials; nil where nobody knows.
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

// systemNames are the names that only the system tenant's callers may bear, of the whole
// configuration: what one source takes for the system's, no other may hand out.
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

// Published returns the effective configuration, to be published (see
// [cluster.PublishConfiguration]). The error is about a file beside it that cannot be read now.
//
// [cluster.PublishConfiguration]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster#PublishConfiguration
func (s *Stack) Published() (*configv1alpha1.Published, error) {
	g := s.current.Load()
	settings, err := g.config.Complete() // a copy
	if err != nil {
		return nil, err
	}
	if s.shared.Authorization.RBAC == nil { // as where the server keeps RBAC to itself
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
