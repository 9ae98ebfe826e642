package kubetenant

import (
	"context"
	"fmt"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// revocations follows the file at path until ctx ends and returns what it says at any time.
func (b *builder) revocations(ctx context.Context, path string) (func() *authn.Revocations, error) {
	file, err := reload.Open(path, parseRevocations, b.report(ctx))
	if err != nil {
		return nil, fmt.Errorf("revocation: %w", err)
	}
	go file.Run(ctx)
	return file.Load, nil
}

func parseRevocations(data []byte) (authn.Revocations, error) {
	config, err := v1alpha1.DecodeRevocation(data)
	if err != nil {
		return authn.Revocations{}, err
	}
	r := authn.Revocations{
		Serials: map[string][]string{}, Fingerprints: map[string]struct{}{}, Tokens: map[string][]authn.TokenRule{},
		Users: map[authn.TenantUser]struct{}{}, ServiceAccounts: map[string]struct{}{}, Tenants: map[tenant.ID]struct{}{},
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
