// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/manifests/charts"
	"github.com/kubetenant/kubetenant/tenant"
)

// Options contains the settings that the TenancyConfiguration does not contain.
type Options struct {
	// Config is the path of the TenancyConfiguration.
	Config string
	// Image is the image of the gateway, and Namespace is its namespace.
	Image, Namespace string
	// Accounts specifies that callers may impersonate service accounts, if the roles in their
	// clusters also allow it.
	Accounts bool
	// Contexts maps the names of clusters to contexts of the operator's kubeconfig. Generate
	// writes kubeconfigs for these clusters. Kubeconfig is the path of the operator's kubeconfig.
	// If empty, the default files of kubectl are used.
	Contexts   map[string]string
	Kubeconfig string
	// Certificate and Key are the paths of the gateway's serving certificate and of its key. If
	// they are set, Generate also writes the Secrets of the gateway.
	Certificate, Key string
	// ServiceType is the type of the gateway's Service. Defaults to ClusterIP.
	ServiceType string
	// Monitoring adds a ServiceMonitor and alert rules.
	Monitoring bool
}

var (
	errNoSection = errors.New("the configuration has no gateway section")
	errNoImage   = errors.New("the image is required: set --chart or --image")
	errNoFile    = errors.New("the Secret of the configuration needs all files that the configuration names. " +
		"With --contexts, generate writes the kubeconfigs")
	errServiceType = errors.New("--service-type must be ClusterIP, NodePort or LoadBalancer")
)

// Generate returns the files, keyed by path. Apply 00-namespace.yaml, gateway.yaml and
// secrets.yaml in the cluster in which the gateway runs. Apply clusters/<name>.yaml in each
// cluster behind the gateway. The Secret of the configuration must contain the files in
// kubeconfigs.
func Generate(o Options) (map[string][]byte, error) {
	config, err := configv1alpha1.Load(o.Config)
	switch {
	case err != nil:
		return nil, err
	case config.Gateway == nil:
		return nil, errNoSection
	case o.Image == "":
		return nil, errNoImage
	}
	out := map[string][]byte{}
	if out["00-namespace.yaml"], err = o.namespace(); err != nil {
		return nil, err
	}
	if err := o.render(out); err != nil {
		return nil, err
	}
	for i := range config.Gateway.Clusters {
		c := &config.Gateway.Clusters[i]
		if out["clusters/"+c.Name+".yaml"], err = o.Roles(config.Gateway, c); err != nil {
			return nil, err
		}
	}
	if err := o.addKubeconfigs(config.Gateway.Clusters, out); err != nil {
		return nil, err
	}
	return out, o.addSecrets(out)
}

// render adds the files of the chart to out. Operators who need other values use Helm.
func (o *Options) render(out map[string][]byte) error {
	values, err := charts.Defaults(deploy.Files, "gateway")
	if err != nil {
		return err
	}
	values["image"], values["monitoring"] = o.Image, o.Monitoring
	// The kubeconfigs that addKubeconfigs writes read the tokens.
	values["tokensRequired"] = len(o.Contexts) > 0
	switch o.ServiceType {
	case "":
	case "ClusterIP", "NodePort", "LoadBalancer":
		service, _ := values["service"].(map[string]any)
		service["type"] = o.ServiceType
	default:
		return errServiceType
	}
	data, err := charts.Data(deploy.Files, "gateway", o.Namespace, values)
	if err != nil {
		return err
	}
	templates, err := fs.Sub(deploy.Files, "gateway/templates")
	if err != nil {
		return err
	}
	files := []string{"gateway.yaml"}
	if o.Monitoring {
		files = append(files, "monitoring.yaml")
	}
	for _, name := range files {
		if out[name], err = charts.RenderOne(templates, name, data); err != nil {
			return err
		}
	}
	return nil
}

// Check compares the files in dir, which [Generate] returned earlier, with the current
// configuration. It returns problems, and notes about the rights of the impersonators.
func Check(dir string, o Options) (problems, notes []string, err error) {
	if o.Image == "" {
		o.Image = "unchecked"
	}
	files, err := Generate(o)
	if err != nil {
		return nil, nil, err
	}
	config, err := configv1alpha1.Load(o.Config)
	if err != nil {
		return nil, nil, err
	}
	delete(files, "gateway.yaml") // the operator may change it
	for i := range config.Gateway.Clusters {
		c := &config.Gateway.Clusters[i]
		name := "clusters/" + c.Name + ".yaml"
		installed, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))) // #nosec G304 -- the operator's directory
		switch {
		case err != nil:
			problems = append(problems, err.Error())
		case !bytes.Equal(bytes.TrimSpace(installed), bytes.TrimSpace(files[name])):
			problems = append(problems, name+": the roles do not match the configuration: run generate again")
		}
		for _, path := range []string{c.Reader.KubeConfigFile, c.Impersonator.KubeConfigFile} {
			if _, err := os.Stat(path); err != nil {
				problems = append(problems, err.Error())
			}
		}
		notes = append(notes, notesOf(c)...)
	}
	return problems, notes, nil
}

// notesOf returns notes about the rights that the credentials for a cluster have.
func notesOf(c *configv1alpha1.GatewayCluster) (notes []string) {
	add := func(format string, a ...any) { notes = append(notes, c.Name+": "+fmt.Sprintf(format, a...)) }
	if _, anyUser := impersonatedUsers(c); anyUser {
		add("the impersonator can act as any user: its credential gives the power of a cluster admin")
	}
	switch {
	case slices.Contains(c.Tenants, tenant.AnyName):
		add("tenants are not listed, so the impersonator can act for any tenant and in any group, including " +
			"system:masters: its credential gives the power of a cluster admin")
	case *c.Identity.GroupPattern != "":
		add("groups are not listed, so the impersonator can be in any group, including system:masters: its credential " +
			"gives the power of a cluster admin")
	}
	if c.Admission == configv1alpha1.GatewayAdmissionUnchecked {
		add("admission is Unchecked: the gateway trusts forged tenant labels")
	}
	if c.Reader.KubeConfigFile == c.Impersonator.KubeConfigFile {
		add("the reader and the impersonator are the same account, which can both read and impersonate")
	}
	if strings.HasPrefix(c.Identity.DefaultUser, "kubetenant:") && !*c.Identity.WithUser {
		add("every caller has the user name %s in the cluster: bind roles to the groups tenant:<id>", c.Identity.DefaultUser)
	}
	return notes
}
