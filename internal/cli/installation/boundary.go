// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
)

// Boundary returns the deployment mode in which the boundary decides the requests of a server, or
// "" if it decides none. Unlike [Detect], it ignores the admission webhooks, which remain when
// kube-apiserver no longer calls the authorizer. In mode Shadow, it does not detect the webhook
// service. Impersonation is ignored.
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
