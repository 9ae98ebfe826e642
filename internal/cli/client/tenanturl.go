// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// TenantURL returns the server's URL with the path of a tenant. If the server does not serve
// this path to the caller, it returns the URL without a tenant path. It returns an error if the
// server does not respond.
func (c *Cluster) TenantURL(ctx context.Context, id tenant.ID) (string, error) {
	base, err := url.Parse(c.Config.Host)
	if err != nil {
		return "", err
	}
	if before, _, found := strings.Cut(base.Path, "/tenants/"); found {
		base.Path = before
	}
	plain := strings.TrimSuffix(base.String(), "/")
	if id.IsSystem() {
		return plain, nil // the system tenant needs no tenant path
	}
	at := rest.CopyConfig(c.Config)
	at.Host = plain
	k, err := kube.NewForConfig(at)
	if err != nil {
		return "", err
	}
	status := 0
	path := "/tenants/" + id.String() + "/version"
	err = k.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).StatusCode(&status).Error()
	switch {
	case status == http.StatusOK:
		return plain + "/tenants/" + id.String(), nil
	case status != 0:
		return plain, nil // the server does not support tenant paths
	}
	return "", err
}
