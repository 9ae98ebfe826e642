// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
)

// Boundary returns the deployment mode in which the tenant boundary authorizes requests to a
// server, or "" if the boundary does not authorize them. Unlike [Detect], it ignores admission
// webhooks, because they remain after kube-apiserver stops calling the authorizer. It does not
// detect a webhook service in mode Shadow. It ignores impersonation.
func Boundary(ctx context.Context, config *rest.Config) (Mode, error) {
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{}
	if own.Timeout == 0 {
		own.Timeout = detectTimeout
	}
	p, err := newProbe(own)
	if err != nil {
		return "", err
	}
	defer p.http.CloseIdleConnections()
	server, gateway, err := addresses(own)
	if err != nil {
		return "", err
	}
	switch isGateway, err := p.isGateway(ctx, gateway); {
	case err != nil:
		return "", err
	case isGateway:
		return Gateway, nil
	}
	switch isGateway, err := p.rejects(ctx, server+"/tenants/"+malformed+"/version", authz.MalformedTenantPath); {
	case err != nil:
		return "", err
	case isGateway:
		return CompiledIn, nil
	}
	if decides, err := p.boundaryDecides(ctx); !decides {
		return "", err
	}
	return Webhook, nil
}
