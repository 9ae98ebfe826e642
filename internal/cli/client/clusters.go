// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterRef identifies a cluster in the kubeconfig by a context, and optionally by a cluster entry
// that replaces the cluster entry of the context. If context is empty, the current context is used.
type clusterRef struct{ context, entry string }

// AddClusters adds --cluster to a command that accepts several clusters.
func (f *Flags) AddClusters(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.clusters, "cluster", nil,
		"clusters to use, separated by commas: cluster entries of the kubeconfig, or names of clusters behind the gateway")
	_ = cmd.RegisterFlagCompletionFunc("cluster", f.completeClusters)
}

// namedClusters returns the clusters that --cluster lists, in the same order.
func (f *Flags) namedClusters() ([]*Cluster, error) {
	switch {
	case f.overrides.ClusterInfo.Server != "":
		return nil, errors.New("--cluster and --server cannot be used together")
	case len(f.contexts) > 0:
		return nil, errors.New("--cluster and --context cannot be used together")
	}
	raw, err := f.loader(clusterRef{}).RawConfig()
	if err != nil {
		return nil, err
	}
	if len(raw.Clusters) == 0 {
		return nil, errNoKubeconfig
	}
	places, err := findClusters(&raw, f.clusters)
	if err != nil {
		return nil, err
	}
	all := make([]*Cluster, 0, len(places))
	for i, p := range places {
		c, err := f.cluster(p)
		if err != nil {
			return nil, err
		}
		c.Name = f.clusters[i]
		all = append(all, c)
	}
	return all, nil
}

// findClusters resolves the names listed in --cluster. It combines a server and a credential
// only if a context of the kubeconfig combines them, or kubectl --cluster would combine them.
// The credential for one cluster MUST NOT be sent to another cluster.
func findClusters(config *clientcmdapi.Config, names []string) ([]clusterRef, error) {
	var all []clusterRef
	for i, name := range names {
		p, err := findCluster(config, name)
		if err != nil {
			return nil, err
		}
		if j := slices.Index(all, p); j >= 0 {
			return nil, fmt.Errorf("--cluster %s and %s use the same context %q", names[j], names[i], p.context)
		}
		all = append(all, p)
	}
	return all, nil
}

func findCluster(config *clientcmdapi.Config, name string) (clusterRef, error) {
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		current = &clientcmdapi.Context{}
	}
	var found []string
	if config.Clusters[name] != nil {
		if current.Cluster == name {
			return clusterRef{context: config.CurrentContext}, nil
		}
		found = contextsWhere(config, func(c *clientcmdapi.Context) bool {
			return c.Cluster == name && isSameUser(c.AuthInfo, current.AuthInfo)
		})
		if len(found) == 0 { // like kubectl --cluster, use the entry with the current user
			return clusterRef{context: config.CurrentContext, entry: name}, nil
		}
	} else {
		found = gatewayContexts(config, current, name)
	}
	switch len(found) {
	case 0:
		return clusterRef{}, fmt.Errorf(
			"--cluster %q: not in the kubeconfig, neither as a cluster nor as a context of your user "+
				"behind a gateway: create it with kubectl tenant gen-kubeconfig --gateway URL --cluster %[1]s",
			name,
		)
	case 1:
		return clusterRef{context: found[0]}, nil
	}
	return clusterRef{}, fmt.Errorf("--cluster %q matches the contexts %s: select one with --context",
		name, strings.Join(found, ", "))
}

// gatewayContexts returns the contexts for the named cluster behind a gateway. If the current
// context connects to a gateway, it returns only contexts for the same gateway and user. If
// several contexts match, it prefers those with exactly the current kubeconfig user, then those
// with the current tenant path.
func gatewayContexts(config *clientcmdapi.Config, current *clientcmdapi.Context, name string) []string {
	var own gatewayPath
	if entry := config.Clusters[current.Cluster]; entry != nil {
		own = gatewayPathOf(entry.Server)
	}
	path := func(c *clientcmdapi.Context) gatewayPath {
		if entry := config.Clusters[c.Cluster]; entry != nil {
			return gatewayPathOf(entry.Server)
		}
		return gatewayPath{}
	}
	all := contextsWhere(config, func(c *clientcmdapi.Context) bool { return path(c).cluster == name })
	isHere := func(c *clientcmdapi.Context) bool { return path(c).cluster != "" && path(c).gateway == own.gateway }
	if own.cluster == "" && len(contextsWhere(config, isHere)) == 0 {
		return all // the current context does not connect to a gateway
	}
	selectContexts := func(matches func(*clientcmdapi.Context) bool) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !matches(config.Contexts[n]) })
	}
	all = selectContexts(func(c *clientcmdapi.Context) bool {
		return isHere(c) && isSameUser(c.AuthInfo, current.AuthInfo)
	})
	for _, matches := range []func(*clientcmdapi.Context) bool{
		func(c *clientcmdapi.Context) bool { return c.AuthInfo == current.AuthInfo },
		func(c *clientcmdapi.Context) bool { return path(c).rest == own.rest },
	} {
		if fewer := selectContexts(matches); len(all) > 1 && len(fewer) > 0 {
			all = fewer
		}
	}
	return all
}

// gatewayPath contains the parts of a server URL of the form gateway/clusters/cluster/rest. If
// the URL has no /clusters/ part, cluster is empty. A tenant path, such as tenants/acme, is part
// of rest.
type gatewayPath struct{ gateway, cluster, rest string }

func gatewayPathOf(server string) gatewayPath {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return gatewayPath{}
	}
	before, after, found := strings.Cut(strings.TrimSuffix(u.Path, "/"), "/clusters/")
	p := gatewayPath{gateway: u.Scheme + "://" + strings.ToLower(u.Host)}
	if !found {
		base, rest, isTenants := strings.Cut(before, "/tenants/")
		p.gateway += base
		if isTenants {
			p.rest = "tenants/" + rest
		}
		return p
	}
	p.gateway += before
	p.cluster, p.rest, _ = strings.Cut(after, "/")
	return p
}

// isSameUser reports whether two user entries of a kubeconfig are the same user, possibly with
// credentials for different clusters. Examples are alice/acme@eu1 and alice/acme@us1, or admin
// and admin@us1.
func isSameUser(a, b string) bool {
	nameA, nameB := withoutCluster(a), withoutCluster(b)
	switch {
	case a == "" || b == "":
		return a == b
	case strings.Contains(nameA, "/"):
		return nameA == nameB
	}
	return a == b || nameA == b || a == nameB
}

func withoutCluster(user string) string {
	if i := strings.LastIndex(user, "@"); i > 0 {
		return user[:i]
	}
	return user
}

// contextsWhere returns the sorted names of the contexts for which matches returns true.
func contextsWhere(config *clientcmdapi.Config, matches func(*clientcmdapi.Context) bool) (names []string) {
	for name, context := range config.Contexts {
		if context != nil && matches(context) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (f *Flags) completeClusters(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := f.loader(clusterRef{}).RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name, entry := range raw.Clusters {
		names = append(names, name)
		if behind := gatewayPathOf(entry.Server).cluster; behind != "" {
			names = append(names, behind)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
