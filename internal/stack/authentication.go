// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/authn/webhook"
	authnx509 "github.com/kubetenant/kubetenant/authn/x509"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

// Credentials are the kinds of credentials that callers present to a stack.
type Credentials int

const (
	// AllCredentials specifies that callers present all kinds of credentials to the server itself.
	// All sources are built.
	AllCredentials Credentials = iota
	// BearerTokens specifies that kube-apiserver forwards to the stack the bearer tokens that it
	// does not recognize. Only the sources of these tokens are built: tokenFile, oidc, keystone
	// and webhook.
	BearerTokens
	// NoCredentials specifies that another server authenticates the callers. No sources are built,
	// and their files are not read. Revocations still apply.
	NoCredentials
)

// sourceParts are the dependencies of sources.
type sourceParts struct {
	Authentication
	settings *configv1alpha1.Authentication
	names    *tenant.SystemNames
	report   reload.Report
	revoked  func() *authn.Revocations // nil if there are no revocations
	now      func() time.Time
	// certificates verifies the certificates of all x509 sources.
	certificates *authnx509.Verifier
	// compiler compiles CEL expressions, and claimsCompiler compiles CEL expressions over claims.
	// All OIDC issuers share claimsCompiler and the HTTP clients in issuers.
	compiler, claimsCompiler func() authenticationcel.Compiler
	issuers                  *oidc.Clients
	// serviceAccounts returns the tenant of the service accounts in a namespace.
	serviceAccounts func(context.Context, string) (tenant.ID, error)
	// clientCAs are the CA bundles of the x509 sources that have been opened. caChanged is called
	// after a bundle has changed.
	clientCAs []func() []byte
	caChanged func()
	hasLegacy bool // a serviceAccount source has been opened, which accepts legacy tokens
}

// sourceKind specifies how a kind of source is opened.
type sourceKind struct {
	// bearer reports whether the source authenticates bearer tokens that the server does not issue.
	bearer bool
	open   func(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error
}

// sourceKinds returns the kinds of sources, keyed by the name of the field in the configuration.
func sourceKinds() map[string]sourceKind {
	return map[string]sourceKind{
		"x509":           {false, openX509},
		"tokenFile":      {true, openTokenFile},
		"basicAuthFile":  {false, openBasicAuthFile},
		"frontProxy":     {false, openFrontProxy},
		"serviceAccount": {false, openServiceAccount},
		"oidc":           {true, openOIDC},
		"keystone":       {true, openKeystone},
		"webhook":        {true, openWebhook},
	}
}

// addSources opens the sources that p.Credentials selects and adds them to the chain. The error
// names each source that could not be opened.
func addSources(ctx context.Context, p *sourceParts, sources []configv1alpha1.Source, chain *authn.Chain) error {
	var problems []error
	kinds := sourceKinds()
	for i := range sources {
		config := &sources[i]
		kind, known := kinds[config.Kind()]
		if p.Credentials == NoCredentials || p.Credentials == BearerTokens && !kind.bearer {
			continue
		}
		s := authn.Source{}
		err := errors.New("the source has no kind")
		if known {
			s, err = openSource(ctx, p, config, kind)
		}
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("source %q: %w", config.Name, err))
		case config.FrontProxy != nil:
			chain.FrontProxy = &s
		default:
			chain.Sources = append(chain.Sources, s)
		}
	}
	return utilerrors.NewAggregate(problems)
}

func openSource(
	ctx context.Context, p *sourceParts, config *configv1alpha1.Source, kind sourceKind,
) (authn.Source, error) {
	tenants, err := tenant.ParseSet(config.Tenants)
	if err != nil {
		return authn.Source{}, err
	}
	s := authn.Source{Rules: authn.IdentityRules{
		Source:         config.Name,
		Tenants:        tenants,
		UsernamePrefix: config.UsernamePrefix,
		GroupsPrefix:   config.GroupsPrefix,
		Reserved:       p.names,
		QualifyNames:   p.settings.QualifyNames,
		Limits:         tenant.Limits(p.settings.Limits),
	}}
	err = kind.open(ctx, p, config, &s)
	return s, err
}

func openX509(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error {
	type bundle struct {
		pem         []byte
		authorities *authnx509.Authorities
	}
	file, err := reload.Open(config.X509.ClientCAFile, func(data []byte) (bundle, error) {
		authorities, err := authnx509.ParseAuthorities(data)
		if err != nil {
			return bundle{}, err
		}
		return bundle{data, authorities}, frontproxy.CheckAuthorities(p.RequestHeader, data)
	}, func(path string, err error) {
		p.report(path, err)
		p.caChanged()
	})
	if err != nil {
		return err
	}
	go file.Run(ctx)
	p.clientCAs = append(p.clientCAs, func() []byte { return file.Load().pem })
	o := authnx509.Options{
		SystemOrganizations: config.X509.SystemOrganizations,
		SystemUsers:         config.X509.SystemUsers,
		DenyOldFormat:       config.X509.OldFormat == configv1alpha1.OldFormatDeny,
	}
	if p.revoked != nil {
		o.Revoked = func(c *x509.Certificate) error {
			return p.revoked().CheckCertificate(c)
		}
	}
	s.Request = authnx509.New(p.certificates, func() *authnx509.Authorities { return file.Load().authorities }, o)
	return nil
}

func openTokenFile(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error {
	o := tokenfile.Options{
		DefaultTenant: config.TokenFile.Default(),
		Check:         s.Rules.Check,
		Report:        p.report,
	}
	a, err := tokenfile.Open(ctx, config.TokenFile.Path, o)
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Token = a
	s.Match.Every = true
	return nil
}

func openBasicAuthFile(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error {
	o := basicauth.Options{
		DefaultTenant: config.BasicAuthFile.Default(),
		Check:         s.Rules.Check,
		Report:        p.report,
	}
	a, err := basicauth.Open(ctx, config.BasicAuthFile.Path, o)
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Request = a
	return nil
}

func openFrontProxy(_ context.Context, p *sourceParts, _ *configv1alpha1.Source, s *authn.Source) error {
	if p.RequestHeader == nil {
		return errors.New("the server does not trust a front proxy: set --requestheader-client-ca-file")
	}
	if len(p.RequestHeader.AllowedClientNames.Value()) == 0 {
		return frontproxy.ErrAnyName
	}
	s.Request = frontproxy.New(p.RequestHeader)
	return nil
}

// Errors about invalid issuers.
var (
	errOwnIssuer   = errors.New("the issuer may not be the server's own issuer of service account tokens")
	errOtherIssuer = errors.New("serviceAccount.issuer must be an issuer of the server (--service-account-issuer)")
)

func openServiceAccount(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error {
	if len(p.ServiceAccountIssuers) > 0 && !slices.Contains(p.ServiceAccountIssuers, config.ServiceAccount.Issuer) {
		return errOtherIssuer
	}
	keys, err := serviceaccount.OpenKeys(config.ServiceAccount.KeyFiles, p.report)
	if err != nil {
		return err
	}
	keys.Run(ctx)
	o := serviceaccount.Options{
		Issuer:             config.ServiceAccount.Issuer,
		Legacy:             !p.hasLegacy,
		Audiences:          config.ServiceAccount.Audiences,
		RequireTenantClaim: config.ServiceAccount.RequireTenantClaim,
		Owner:              p.serviceAccounts,
		Objects:            p.TokenObjects,
		Now:                p.now,
	}
	if len(o.Audiences) == 0 {
		o.Audiences = p.APIAudiences
	}
	o.OnLegacyTokenUsed = p.LegacyTokenUsed
	p.hasLegacy = true // the first source of this kind accepts legacy tokens
	a := serviceaccount.New(keys, o)
	s.Token, s.Match.Issuers, s.AudienceAware, s.Rules.ServiceAccounts = a, a.Issuers(), true, true
	return nil
}

func openOIDC(ctx context.Context, p *sourceParts, config *configv1alpha1.Source, s *authn.Source) error {
	if p.ownsIssuer(config.OIDC.JWT.Issuer.URL) {
		return errOwnIssuer
	}
	jwt, err := config.OIDC.Authenticator()
	if err != nil {
		return err
	}
	tenantFrom := config.OIDC.Tenant.Claim
	if config.OIDC.Tenant.Expression != "" {
		tenantFrom = "tenant.expression"
	}
	a := oidc.New(ctx, oidc.Options{
		JWT:        jwt,
		TenantFrom: tenantFrom,
		Compiler:   p.claimsCompiler(),
		Clients:    p.issuers,
		Now:        p.now,
	})
	s.Token, s.Match.Issuers, s.Rules.Remote, s.Rules.Extras = a, a.Issuers(), true, []string{user.CredentialIDKey}
	return nil
}

func openKeystone(ctx context.Context, p *sourceParts, source *configv1alpha1.Source, s *authn.Source) error {
	config := source.Keystone
	o := keystone.Options{
		AuthURL:      config.AuthURL,
		Scopes:       scopesOf(config.Scopes),
		DomainID:     config.Domain == configv1alpha1.DomainByID,
		LegacyExtras: config.LegacyExtras,
		Tenants:      config.Tenants(),
		TTL:          config.Cache.TTL.Duration,
		NegativeTTL:  config.Cache.NegativeTTL.Duration,
		Stale:        config.Cache.StaleOnOutage.Duration,
		Now:          p.now,
	}
	a, run, err := keystone.Open(config.CloudsFile, config.Cloud, o, p.report)
	if err != nil {
		return err
	}
	go run(ctx)
	s.Token = a
	s.Uncached = true
	s.Rules.Remote = true
	s.Rules.Extras = append(keystone.LegacyExtras(), tenant.KeystoneDomainKey, tenant.KeystoneProjectKey,
		tenant.KeystoneRolesKey, user.CredentialIDKey)
	s.Match = authn.Match{Form: keystone.LooksLike}
	if config.Match != nil {
		s.Match = matchOf(config.Match)
	}
	return nil
}

// scopesOf converts the names of scopes. Unknown names are ignored.
func scopesOf(names []configv1alpha1.KeystoneScope) (scopes keystone.Scopes) {
	for _, name := range names {
		switch name {
		case configv1alpha1.KeystoneScopeProject:
			scopes |= keystone.ScopeProject
		case configv1alpha1.KeystoneScopeDomain:
			scopes |= keystone.ScopeDomain
		case configv1alpha1.KeystoneScopeSystem:
			scopes |= keystone.ScopeSystem
		}
	}
	return scopes
}

func openWebhook(ctx context.Context, p *sourceParts, source *configv1alpha1.Source, s *authn.Source) error {
	config := source.Webhook
	if p.ownsIssuer(config.Match.Issuer) {
		return errOwnIssuer
	}
	o := webhook.Options{Source: source.Name, Audiences: p.APIAudiences, Limits: s.Rules.Limits}
	switch t := config.Tenant; {
	case t.Value != "":
		id, err := tenant.Parse(t.Value)
		if err != nil {
			return err
		}
		o.Tenant = webhook.Value(id)
	case t.Extra != "":
		o.Tenant = webhook.Extra(t.Extra)
	default:
		var err error
		if o.Tenant, err = webhook.Compile(p.compiler(), t.Expression); err != nil {
			return err
		}
	}
	a, err := webhook.Open(config.KubeConfigFile, o, p.report)
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Token, s.AudienceAware, s.Rules.Remote, s.Match = a, true, true, matchOf(&config.Match)
	return nil
}

func matchOf(m *configv1alpha1.TokenMatch) authn.Match {
	switch {
	case m.Issuer != "":
		return authn.Match{Issuers: []string{m.Issuer}}
	case m.Prefix != "":
		return authn.Match{Prefix: m.Prefix}
	}
	return authn.Match{Rest: m.Opaque}
}

// ownsIssuer reports whether an issuer issues the server's own service account tokens.
func (p *sourceParts) ownsIssuer(issuer string) bool {
	return issuer == serviceaccount.LegacyIssuer || slices.Contains(p.ServiceAccountIssuers, issuer)
}

// followRevocations reloads the revocation file at path until ctx ends. It returns a function
// that returns the current revocations. changed is called after each new valid version has taken
// effect.
func followRevocations(
	ctx context.Context, path string, report reload.Report, changed func(*authn.Revocations),
) (func() *authn.Revocations, error) {
	var file *reload.File[authn.Revocations]
	file, err := reload.Open(path, parseRevocations, func(path string, err error) {
		report(path, err)
		if err == nil {
			changed(file.Load())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("revocation: %w", err)
	}
	go file.Run(ctx)
	return file.Load, nil
}

func parseRevocations(data []byte) (authn.Revocations, error) {
	config, err := configv1alpha1.DecodeRevocation(data)
	if err != nil {
		return authn.Revocations{}, err
	}
	r := authn.Revocations{
		Serials:         map[string][]string{},
		Fingerprints:    map[string]struct{}{},
		Tokens:          map[string][]authn.TokenRule{},
		Users:           map[authn.TenantUser]struct{}{},
		ServiceAccounts: map[string]struct{}{},
		Tenants:         map[tenant.ID]struct{}{},
	}
	for _, c := range config.Certificates {
		if c.SHA256 != "" {
			r.Fingerprints[c.SHA256] = struct{}{}
			continue
		}
		r.Serials[c.Serial] = append(r.Serials[c.Serial], c.Issuer)
	}
	for _, t := range config.Tokens {
		rule := authn.TokenRule{ID: t.ID, Subject: t.Subject}
		if t.IssuedBefore != nil {
			rule.IssuedBefore = t.IssuedBefore.Time
		}
		r.Tokens[t.Issuer] = append(r.Tokens[t.Issuer], rule)
	}
	for _, u := range config.Users {
		id, err := tenant.Parse(u.Tenant)
		if err != nil {
			return authn.Revocations{}, err
		}
		r.Users[authn.TenantUser{Tenant: id, Name: u.Name}] = struct{}{}
	}
	for _, s := range config.ServiceAccounts {
		r.ServiceAccounts[s.UID] = struct{}{}
	}
	for _, t := range config.Tenants {
		id, err := tenant.Parse(t.Name)
		if err != nil {
			return authn.Revocations{}, err
		}
		r.Tenants[id] = struct{}{}
	}
	return r, nil
}
