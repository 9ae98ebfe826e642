package kubetenant

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authn/tokenfile"
	authnx509 "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// source builds one source; its files are followed until ctx ends.
func (b *builder) source(ctx context.Context, config *v1alpha1.Settings, src *v1alpha1.Source, names *tenant.SystemNames, g *generation) (authn.Source, error) {
	tenants, err := tenant.ParseSet(src.Tenants)
	if err != nil {
		return authn.Source{}, err
	}
	s := authn.Source{Hygiene: authn.Hygiene{
		Source: src.Name, Tenants: tenants, UsernamePrefix: src.UsernamePrefix, GroupsPrefix: src.GroupsPrefix,
		Reserved: names, QualifyNames: config.Authentication.QualifyNames,
	}}
	switch {
	case src.X509 != nil:
		err = b.certificates(ctx, src.X509, &s, g)
	case src.TokenFile != nil:
		err = b.tokens(ctx, src.TokenFile, &s)
	case src.BasicAuthFile != nil:
		err = b.passwords(ctx, src.BasicAuthFile, &s)
	case src.FrontProxy != nil:
		if b.RequestHeader == nil {
			return s, errors.New("the server trusts no front proxy (--requestheader-client-ca-file is not set)")
		}
		if len(b.RequestHeader.AllowedClientNames.Value()) == 0 {
			return s, frontproxy.ErrAnyName
		}
		s.Request = frontproxy.New(b.RequestHeader)
	case src.ServiceAccount != nil:
		err = b.serviceAccounts(ctx, config, src, &s, g)
	case src.OIDC != nil:
		err = b.oidc(ctx, src.OIDC, &s, g)
	case src.Keystone != nil:
		err = b.keystone(ctx, src.Keystone, &s)
	case src.Webhook != nil:
		err = b.webhook(ctx, src.Webhook, &s)
	default:
		err = errors.New("no kind set")
	}
	return s, err
}

func (b *builder) certificates(ctx context.Context, config *v1alpha1.X509, s *authn.Source, g *generation) error {
	report := b.report(ctx)
	file, err := reload.Open(config.ClientCAFile, func(data []byte) (dynamiccertificates.CAContentProvider, error) {
		content, err := dynamiccertificates.NewStaticCAContent("client CA", data)
		if err != nil {
			return nil, err
		}
		return content, frontproxy.CheckAuthorities(b.RequestHeader, data)
	}, func(path string, err error) {
		report(path, err)
		b.cas.changed()
	})
	if err != nil {
		return err
	}
	go file.Run(ctx)
	g.clientCAs = append(g.clientCAs, func() []byte { return (*file.Load()).CurrentCABundleContent() })
	verify := func() (x509.VerifyOptions, bool) {
		options, ok := (*file.Load()).VerifyOptions()
		if b.Now != nil {
			options.CurrentTime = b.Now()
		}
		return options, ok
	}
	s.Request = authnx509.New(verify, authnx509.Options{
		SystemOrganizations: config.SystemOrganizations,
		DenyOldFormat:       config.OldFormat == v1alpha1.OldFormatDeny,
		Now:                 b.Now,
	})
	return nil
}

func (b *builder) tokens(ctx context.Context, config *v1alpha1.CredentialFile, s *authn.Source) error {
	id, err := defaultTenant(config)
	if err != nil {
		return err
	}
	a, err := tokenfile.Open(ctx, config.Path, tokenfile.Options{DefaultTenant: id, Check: s.Hygiene.Check, Report: b.report(ctx)})
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Token, s.Match.Every = a, true
	return nil
}

func (b *builder) passwords(ctx context.Context, config *v1alpha1.CredentialFile, s *authn.Source) error {
	id, err := defaultTenant(config)
	if err != nil {
		return err
	}
	a, err := basicauth.Open(config.Path, basicauth.Options{DefaultTenant: id, Check: s.Hygiene.Check, Report: b.report(ctx)})
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Request = a
	return nil
}

// defaultTenant is zero where the file has none.
func defaultTenant(config *v1alpha1.CredentialFile) (tenant.ID, error) {
	if *config.DefaultTenant == "" {
		return tenant.ID{}, nil
	}
	id, err := tenant.Parse(*config.DefaultTenant)
	if err != nil {
		return tenant.ID{}, fmt.Errorf("default tenant: %w", err)
	}
	return id, nil
}
