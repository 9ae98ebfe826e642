// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
)

// Flags are kubectl's flags, with two exceptions: --user specifies an identity in the commands
// of kubectl tenant, and --context accepts a list. Flags does not use the package
// genericclioptions of k8s.io/cli-runtime, because that package imports kustomize.
type Flags struct {
	// Kubeconfig is the file of --kubeconfig. If empty, kubectl's default files are used.
	Kubeconfig string

	overrides clientcmd.ConfigOverrides
	extra     []string // the values of --as-user-extra
	cacheDir  string
	contexts  []string
	clusters  []string             // see AddClusters
	required  func(*Cluster) error // see Require
	detected  map[string]*detection
}

// NewFlags returns flags with their default values.
func NewFlags() *Flags { return &Flags{detected: map[string]*detection{}} }

// AddFlags adds the flags to a command and to its subcommands, with their completions.
func (f *Flags) AddFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	// A flag without a name is not added.
	names.ContextOverrideFlags.AuthInfoName.LongName = ""
	names.AuthOverrideFlags.Username.LongName = ""
	names.AuthOverrideFlags.Password.LongName = ""
	names.CurrentContext.LongName = ""
	clientcmd.BindOverrideFlags(&f.overrides, flags, names)

	flags.StringVar(&f.Kubeconfig, clientcmd.RecommendedConfigPathFlag, "",
		"Path to the kubeconfig file to use for CLI requests.")
	flags.StringVar(&f.cacheDir, "cache-dir", defaultCacheDir(), "Default cache directory")
	flags.StringArrayVar(&f.extra, "as-user-extra", nil, "User extras to impersonate for the operation, this flag can be "+
		"repeated to specify multiple values for the same key.")
	flags.StringSliceVar(&f.contexts, "context", nil,
		"context of the kubeconfig to use; commands about privileges accept several, separated by commas")
	_ = cmd.RegisterFlagCompletionFunc("context", f.completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.CompleteNamespaces)
}

// Namespace returns the value of --namespace, or "" if it is not set.
func (f *Flags) Namespace() string { return f.overrides.Context.Namespace }

// loader returns the loader of the kubeconfig for one cluster. The values of the flags override
// the kubeconfig.
func (f *Flags) loader(p clusterRef) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := f.overrides
	overrides.AuthInfo.ImpersonateUserExtra = userExtra(f.extra)
	overrides.CurrentContext = p.context
	if p.entry != "" {
		overrides.Context.Cluster = p.entry
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
}

// userExtra parses the values of --as-user-extra. Like kubectl, it ignores a value without "=".
func userExtra(all []string) map[string][]string {
	if len(all) == 0 {
		return nil
	}
	extra := map[string][]string{}
	for _, one := range all {
		if key, value, ok := strings.Cut(one, "="); ok {
			extra[key] = append(extra[key], value)
		}
	}
	return extra
}

// discoveryTTL is how long kubectl uses a cached discovery response.
const discoveryTTL = 6 * time.Hour

// mapper returns a mapper for the resources of a server. It uses the same discovery cache as
// kubectl.
func (f *Flags) mapper(config *rest.Config) (meta.RESTMapper, error) {
	cache := cmp.Or(f.cacheDir, defaultCacheDir())
	discovered := filepath.Join(cache, "discovery", cacheName(config.Host))
	client, err := disk.NewCachedDiscoveryClientForConfig(
		rest.CopyConfig(config), discovered, filepath.Join(cache, "http"), discoveryTTL)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(client)
	return restmapper.NewShortcutExpander(mapper, client, func(string) {}), nil
}

func defaultCacheDir() string {
	return cmp.Or(os.Getenv("KUBECACHEDIR"), filepath.Join(homedir.HomeDir(), ".kube", "cache"))
}

// notInCacheNames is the same expression as in kubectl, so that kubectl tenant uses the same cache
// folder.
var notInCacheNames = regexp.MustCompile(`[^(\w/.)]`)

// cacheName returns the name of the cache folder for a server.
func cacheName(host string) string {
	host = strings.Replace(host, "https://", "", 1)
	host = strings.Replace(host, "http://", "", 1)
	return notInCacheNames.ReplaceAllString(host, "_")
}
