// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/kubeconfig"
	"github.com/kubetenant/kubetenant/tenant"
)

// gatewayOptions are the flags of gen-kubeconfig for clusters behind a gateway.
type gatewayOptions struct {
	url, ca  string
	clusters []string
}

func (g *gatewayOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.url, "gateway", "",
		"address of a gateway (https://...): write a context for each --cluster behind it. The cluster of --context signs "+
			"the certificate of --user; the gateway's configuration must trust its certificate authority")
	f.StringSliceVar(&g.clusters, "cluster", nil, "with --gateway: names of the clusters (see kubectl tenant clusters)")
	f.StringVar(&g.ca, "gateway-ca", "",
		"with --gateway: file with its certificate authority (default: the kubeconfig's, if it has the same host, or else "+
			"the system's)")
	cmd.MarkFlagsRequiredTogether("gateway", "cluster")
}

var errGatewayURL = errors.New("--gateway must be an https:// address of a gateway, without a cluster")

// check validates the flags.
func (g *gatewayOptions) check() error {
	if g.url == "" {
		if g.ca != "" {
			return errors.New("--gateway-ca needs --gateway")
		}
		return nil
	}
	u, err := url.Parse(g.url)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
		strings.Contains(u.Path, "/clusters/") {
		return errGatewayURL
	}
	g.url = strings.TrimSuffix(g.url, "/")
	for i, name := range g.clusters {
		if len(apivalidation.IsDNS1123Label(name)) > 0 || slices.Contains(g.clusters[:i], name) {
			return fmt.Errorf("--cluster %q: cluster names must be lower-case DNS labels, without duplicates", name)
		}
	}
	return nil
}

// checkServiceAccount returns an error if several clusters are specified, because the token of a
// service account is valid in only one cluster.
func (g *gatewayOptions) checkServiceAccount() error {
	if len(g.clusters) > 1 {
		return errors.New("--serviceaccount: a service account's token is valid for one cluster only: name that cluster " +
			"with --cluster")
	}
	return nil
}

// place returns a kubeconfig with a context for each cluster. The server URLs end in the tenant
// path of narrowed, unless narrowed is the system tenant.
func (g *gatewayOptions) place(
	e *kubeconfig.Entry, asked *rest.Config, narrowed tenant.ID,
) (*clientcmdapi.Config, error) {
	known := &rest.Config{}
	host, err := url.Parse(asked.Host)
	if u, _ := url.Parse(g.url); err == nil && u != nil && host.Host == u.Host {
		known.TLSClientConfig = rest.TLSClientConfig{
			CAData:     asked.CAData,
			CAFile:     asked.CAFile,
			ServerName: asked.ServerName,
			Insecure:   asked.Insecure,
		}
	}
	if g.ca != "" {
		data, err := os.ReadFile(g.ca) // #nosec G304 -- the caller names the file
		if err != nil {
			return nil, fmt.Errorf("--gateway-ca: %w", err)
		}
		known.TLSClientConfig = rest.TLSClientConfig{CAData: data}
	}
	out := clientcmdapi.NewConfig()
	for _, name := range g.clusters {
		at := *e
		at.Cluster = name
		at.Server = g.url + "/clusters/" + name
		if !narrowed.IsSystem() {
			at.Server += "/tenants/" + narrowed.String()
		}
		one, err := kubeconfig.New(&at, known)
		if err != nil {
			return nil, err
		}
		maps.Copy(out.Clusters, one.Clusters)
		maps.Copy(out.AuthInfos, one.AuthInfos)
		maps.Copy(out.Contexts, one.Contexts)
		if out.CurrentContext == "" {
			out.CurrentContext = one.CurrentContext
		}
	}
	return out, nil
}

// cluster returns the cluster that issues the credential. For --oidc behind a gateway, no cluster
// issues it, so the returned Cluster contains only the address of the gateway.
func (o *genOptions) cluster() (*client.Cluster, error) {
	if o.gateway.url == "" || !o.oidc {
		return o.flags.Cluster()
	}
	return &client.Cluster{
		Name:      o.gateway.url,
		Config:    &rest.Config{Host: o.gateway.url},
		Namespace: o.flags.Namespace(),
	}, nil
}

// contexts returns the quoted names of the contexts in a kubeconfig.
func contexts(config *clientcmdapi.Config) string {
	names := slices.Sorted(maps.Keys(config.Contexts))
	for i, name := range names {
		names[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(names, ", ")
}
