// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
)

// Gateway returns a client configuration for the read-only resources that a gateway serves
// itself (package views). config may have the URL of the gateway, of a cluster behind it, or of
// a tenant path.
func Gateway(config *rest.Config) (*rest.Config, error) {
	base, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"/clusters/", "/tenants/", views.Path} {
		base.Path, _, _ = strings.Cut(base.Path, part)
	}
	out := rest.CopyConfig(config)
	out.Host = strings.TrimSuffix(base.String(), "/") + views.Path
	return out, nil
}
