// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// tokensDirectory is the directory at which the chart mounts the Secret with the tokens of the
// service accounts.
const tokensDirectory = "/etc/kubetenant/tokens/" // #nosec G101 -- a directory

// addKubeconfigs adds the kubeconfigs of both service accounts for each cluster in
// [Options.Contexts], with the file names in the configuration. The kubeconfigs contain the address
// of the cluster, its authorities and the paths of the token files, but no credentials.
func (o *Options) addKubeconfigs(clusters []configv1alpha1.GatewayCluster, out map[string][]byte) error {
	if len(o.Contexts) == 0 {
		return nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := rules.Load()
	if err != nil {
		return err
	}
	remaining := maps.Clone(o.Contexts)
	byFile := map[string]string{} // byFile maps files to clusters
	for i := range clusters {
		c := &clusters[i]
		name, ok := remaining[c.Name]
		if !ok {
			continue
		}
		delete(remaining, c.Name)
		cluster, err := clusterOf(config, name)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		for _, path := range []string{c.Reader.KubeConfigFile, c.Impersonator.KubeConfigFile} {
			if filepath.Dir(path) != filepath.Dir(o.Config) {
				return fmt.Errorf("cluster %s: %s: the kubeconfig must be in the folder of the configuration", c.Name, path)
			}
			if byFile[path] != "" && byFile[path] != c.Name {
				return fmt.Errorf("clusters %s and %s use the same kubeconfig: %s", byFile[path], c.Name, path)
			}
			byFile[path] = c.Name
			file := "kubeconfigs/" + filepath.Base(path)
			if out[file], err = clientcmd.Write(*accountConfig(c.Name, cluster, filepath.Base(path))); err != nil {
				return err
			}
		}
	}
	if len(remaining) > 0 {
		return fmt.Errorf("the configuration has no cluster %v", slices.Sorted(maps.Keys(remaining)))
	}
	return nil
}

// clusterOf returns the cluster of a context. The result contains the certificate authorities
// instead of the path of their file.
func clusterOf(config *clientcmdapi.Config, context string) (*clientcmdapi.Cluster, error) {
	kubeContext := config.Contexts[context]
	if kubeContext == nil {
		return nil, fmt.Errorf("the kubeconfig has no context %q", context)
	}
	cluster := config.Clusters[kubeContext.Cluster].DeepCopy()
	switch {
	case cluster == nil:
		return nil, fmt.Errorf("the context %q names no cluster of the kubeconfig", context)
	case !strings.HasPrefix(cluster.Server, "https://"):
		return nil, fmt.Errorf("the server of the context %q is not an https:// URL", context)
	case cluster.InsecureSkipTLSVerify:
		return nil, fmt.Errorf("the context %q sets insecure-skip-tls-verify: the gateway must verify the certificate of "+
			"the cluster", context)
	}
	alone := clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": cluster}}
	if err := clientcmdapi.FlattenConfig(&alone); err != nil {
		return nil, errors.New("cannot read the certificate authority of the cluster")
	}
	// These fields are specific to the operator's machine.
	cluster.LocationOfOrigin = ""
	cluster.Extensions = nil
	cluster.ProxyURL = ""
	return cluster, nil
}

// accountConfig returns the kubeconfig of a service account. token is the name of the account's
// token file in tokensDirectory.
func accountConfig(name string, cluster *clientcmdapi.Cluster, token string) *clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = cluster
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: tokensDirectory + token}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return out
}
