// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/gateway/views"
)

// Gateway returns the client configuration for the views of a gateway. The host of config is the
// address of the gateway, or of one of its clusters or tenants.
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
