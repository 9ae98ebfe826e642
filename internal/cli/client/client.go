// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package client connects the commands of "kubectl tenant" to a cluster. It provides kubectl's
// flags, and turns errors into one line with the problem and the remedy.
package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/internal/kube"
)

// Changed reports whether a flag was set on the command line.
func Changed(set *pflag.FlagSet, name string) bool {
	flag := set.Lookup(name)
	return flag != nil && flag.Changed
}

// Cluster is a cluster that a command uses.
type Cluster struct {
	// Name is the value of --cluster that selects the cluster, or the name of the context. Without
	// a context, it is the URL of the server. Server is the name of the cluster's entry in the
	// kubeconfig, or Name if there is no entry.
	Name, Server string
	// Config is the client configuration of the cluster.
	Config *rest.Config
	// Namespace is the default namespace.
	Namespace string

	client   kube.Interface
	mapper   func() (meta.RESTMapper, error)
	detected *detection
	required func(*Cluster) error
}

// Clients returns the cluster that the flags select, with a typed and a dynamic client.
func (f *Flags) Clients() (*Cluster, kube.Interface, dynamic.Interface, error) {
	c, err := f.Cluster()
	if err != nil {
		return nil, nil, nil, err
	}
	k, err := c.Kube()
	if err != nil {
		return nil, nil, nil, err
	}
	d, err := dynamic.NewForConfig(c.Config)
	return c, k, d, err
}

// Kube returns a typed client of the cluster.
func (c *Cluster) Kube() (kube.Interface, error) {
	if c.client == nil {
		k, err := kube.NewForConfig(c.Config)
		if err != nil {
			return nil, err
		}
		c.client = k
	}
	return c.client, nil
}

// Mapper returns a mapper for the resources in the cluster's discovery.
func (c *Cluster) Mapper() (meta.RESTMapper, error) { return c.mapper() }

// Cluster returns the selected cluster, after [Cluster.Check]. It returns an error if --context
// lists several contexts.
func (f *Flags) Cluster() (*Cluster, error) {
	c, err := f.onlyCluster()
	if err != nil {
		return nil, err
	}
	return c, c.Check()
}

func (f *Flags) onlyCluster() (*Cluster, error) {
	switch len(f.contexts) {
	case 0:
		return f.cluster(clusterRef{})
	case 1:
		return f.cluster(clusterRef{context: f.contexts[0]})
	}
	return nil, fmt.Errorf("--context names %d contexts, but this command accepts only one", len(f.contexts))
}

// Clusters returns the clusters that --context or --cluster lists, or else the cluster of the
// current context. It sends no requests. The caller MUST call [Cluster.Check] before it uses a
// cluster.
func (f *Flags) Clusters() ([]*Cluster, error) {
	switch {
	case len(f.clusters) > 0:
		return f.namedClusters()
	case len(f.contexts) == 0:
		c, err := f.cluster(clusterRef{})
		return []*Cluster{c}, err
	}
	var all []*Cluster
	for i, name := range f.contexts {
		if slices.Contains(f.contexts[:i], name) {
			return nil, fmt.Errorf("--context names %q twice", name)
		}
		c, err := f.cluster(clusterRef{context: name})
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (f *Flags) cluster(p clusterRef) (*Cluster, error) {
	name := p.context
	loader := f.loader(p)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	if err := checkContext(&raw, name, f.overrides.ClusterInfo.Server); err != nil {
		return nil, err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubectl-tenant"
	config.WarningHandler = rest.NoWarnings{} // the user did not choose the API versions of the requests
	config.QPS = -1                           // no client-side limit, because the server limits requests
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = raw.CurrentContext
	}
	if name == "" {
		name = config.Host
	}
	server := name
	if context := raw.Contexts[name]; context != nil && context.Cluster != "" {
		server = context.Cluster
	}
	if p.entry != "" {
		server = p.entry
	}
	if f.detected[config.Host] == nil {
		f.detected[config.Host] = &detection{}
	}
	return &Cluster{
		Name:      name,
		Server:    server,
		Config:    config,
		Namespace: namespace,
		mapper:    func() (meta.RESTMapper, error) { return f.mapper(config) },
		detected:  f.detected[config.Host],
		required:  f.required,
	}, nil
}

var errNoKubeconfig = errors.New("no kubeconfig found: set --kubeconfig or $" + clientcmd.RecommendedConfigPathEnvVar)

// checkContext returns an error if the kubeconfig has no context with the given name. If name is
// empty, it returns an error if no current context is set. Without this check, the client would
// connect to localhost. With --server, or in a Pod without a kubeconfig, no context is
// necessary.
func checkContext(raw *clientcmdapi.Config, name, server string) error {
	if server != "" {
		return nil
	}
	if len(raw.Clusters) == 0 && len(raw.Contexts) == 0 {
		if _, err := rest.InClusterConfig(); err == nil && name == "" {
			return nil
		}
		return errNoKubeconfig
	}
	known := make([]string, 0, len(raw.Contexts))
	for n := range raw.Contexts {
		known = append(known, n)
	}
	slices.Sort(known)
	switch _, found := raw.Contexts[name]; {
	case name == "" && raw.CurrentContext == "":
		return fmt.Errorf("the kubeconfig has no current context: select one with --context (%s)", strings.Join(known, ", "))
	case name != "" && !found:
		return fmt.Errorf("the kubeconfig has no context %q: its contexts are %s", name, strings.Join(known, ", "))
	}
	return nil
}
