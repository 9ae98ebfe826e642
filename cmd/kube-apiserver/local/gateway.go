// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	gatewaymanifests "github.com/kubetenant/kubetenant/internal/manifests/gateway"
	"github.com/kubetenant/kubetenant/test/localserver"
)

const gatewayBinary = "kubetenant-gateway"

// gatewayConfig returns the default TenancyConfiguration for --gateway and the given number of
// clusters.
func gatewayConfig(clusters int) string {
	text := `# The tenants of these clusters.
# The gateway reloads this file, and the files that it names, when they change.
apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  # A record without a tenant is rejected. By default, it would belong to the system tenant.
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
  - { name: passwords, basicAuthFile: { path: passwords.csv, defaultTenant: "" } }
gateway:
  views: { clusters: { enabled: true } }
  clusters:
`
	for n := range clusters {
		root := ""
		dir := clusterName(n) + "/"
		if n == 0 {
			root, dir = "    root: true\n", ""
		}
		text += fmt.Sprintf(`  - name: %s
%s    tenants: ["*", system]
    reader: { kubeConfigFile: %[3]skubetenant-gateway-reader.kubeconfig }
    impersonator: { kubeConfigFile: %[3]skubetenant-gateway-impersonator.kubeconfig }
    serviceAccounts: { tokens: Pass, issuers: ["https://kubernetes.default.svc"] }
`, clusterName(n), root, dir)
	}
	return text
}

// clusterName returns the name of the nth cluster behind the gateway, starting at 0. All clusters
// except the first one have a directory with this name.
func clusterName(n int) string {
	if n == 0 {
		return firstCluster
	}
	return firstCluster + "-" + strconv.Itoa(n+1)
}

// firstCluster is the name of the first cluster, which has no separate directory.
const firstCluster = "local"

// openGateway selects the address of the gateway and creates its serving certificate. It prefers
// the address that an earlier start with the same directory selected.
func (c *cluster) openGateway() error {
	listener, err := listenStored(filepath.Join(c.dir, "gateway-port"), 0)
	if err != nil {
		return err
	}
	c.gateway = "https://" + listener.Addr().String()
	if err := listener.Close(); err != nil { // the gateway process cannot inherit the listener
		return err
	}
	return c.ca.issueFiles(filepath.Join(c.dir, "pki"), "gateway", pkix.Name{CommonName: gatewayBinary},
		x509.ExtKeyUsageServerAuth)
}

var errNoGateway = errors.New("the gateway section of the configuration must have as many clusters as --clusters " +
	"specifies")

// startOtherClusters starts all clusters behind the gateway except the first one. For each cluster,
// it runs this command as another process. It adds contexts for the admins of these clusters to the
// admin's kubeconfig.
func (s *webhookDeployment) startOtherClusters(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for n := 1; n < s.o.Clusters; n++ {
		name := clusterName(n)
		server, err := localserver.Start(ctx, self, filepath.Join(s.dir, name),
			"--admission-only", "--tenant=", "--tenancy-config="+s.o.TenancyConfig,
			"--workload-controllers="+strconv.FormatBool(s.o.Workloads),
			"--unsafe-no-fsync="+strconv.FormatBool(s.o.UnsafeNoFsync))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.otherClusters = append(s.otherClusters, server)
		if err := addContext(s.kubeconfig("admin"), server.Kubeconfig("admin"), name); err != nil {
			return err
		}
	}
	return nil
}

// stopOtherClusters stops the clusters that startOtherClusters started.
func (s *webhookDeployment) stopOtherClusters() error {
	var errs []error
	for _, server := range s.otherClusters {
		errs = append(errs, server.Stop())
	}
	return errors.Join(errs...)
}

// addContext adds the current context of the kubeconfig at other to the kubeconfig at path, as
// <context>@<cluster>.
func addContext(path, other, cluster string) error {
	into, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	from, err := clientcmd.LoadFromFile(other)
	if err != nil {
		return err
	}
	name := from.CurrentContext + "@" + cluster
	kubeContext := from.Contexts[from.CurrentContext]
	into.Clusters[cluster], into.AuthInfos[name] = from.Clusters[kubeContext.Cluster], from.AuthInfos[kubeContext.AuthInfo]
	into.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	return clientcmd.WriteToFile(*into, path)
}

// addPath adds a context for another cluster behind the gateway to the caller's kubeconfig at path,
// as <context>@<cluster>.
func addPath(path, cluster string) error {
	into, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return err
	}
	kubeContext := into.Contexts[into.CurrentContext]
	copied := into.Clusters[kubeContext.Cluster].DeepCopy()
	copied.Server += "/clusters/" + cluster
	into.Clusters[kubeContext.Cluster+"-"+cluster] = copied
	into.Contexts[into.CurrentContext+"@"+cluster] = &clientcmdapi.Context{
		Cluster:  kubeContext.Cluster + "-" + cluster,
		AuthInfo: kubeContext.AuthInfo,
	}
	return clientcmd.WriteToFile(*into, path)
}

// prepareGateway creates the objects that the gateway needs in a cluster, and writes the gateway's
// kubeconfigs for this cluster.
func (s *webhookDeployment) prepareGateway(
	ctx context.Context, gateway *configv1alpha1.Gateway, config *configv1alpha1.GatewayCluster,
) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	roles, err := (&gatewaymanifests.Options{Accounts: true}).Roles(gateway, config)
	if err != nil {
		return err
	}
	if err := s.apply(ctx, roles); err != nil {
		return err
	}
	for _, name := range []string{gatewaymanifests.ReaderAccount, gatewaymanifests.ImpersonatorAccount} {
		if err := s.writeToken(ctx, client, name); err != nil {
			return err
		}
	}
	return nil
}

// otherCluster returns the cluster in dir, which another process runs.
func (s *webhookDeployment) otherCluster(dir string) (*webhookDeployment, error) {
	other := &webhookDeployment{cluster: &cluster{dir: dir}, o: s.o}
	var err error
	if other.admin, err = clientcmd.BuildConfigFromFlags("", other.kubeconfig("admin")); err != nil {
		return nil, err
	}
	other.server = other.admin.Host
	other.ca, err = openAuthority(filepath.Join(dir, "pki"), "ca")
	return other, err
}

// startGateway creates the objects that the gateway needs in its clusters, and starts the gateway.
func (s *webhookDeployment) startGateway(ctx context.Context) error {
	config, err := configv1alpha1.Load(s.o.TenancyConfig)
	if err != nil {
		return err
	}
	if config.Gateway == nil || len(config.Gateway.Clusters) != s.o.Clusters {
		return errNoGateway
	}
	for n := range config.Gateway.Clusters {
		target := s
		if n > 0 {
			if target, err = s.otherCluster(filepath.Join(s.dir, clusterName(n))); err != nil {
				return err
			}
		}
		if err := target.prepareGateway(ctx, config.Gateway, &config.Gateway.Clusters[n]); err != nil {
			return err
		}
	}
	metricsAddress, err := FreeAddress()
	if err != nil {
		return err
	}
	pki := func(name string) string { return filepath.Join(s.dir, "pki", name) }
	err = s.run(gatewayBinary, gatewayBinary+".log", nil, "serve",
		"--config="+s.o.TenancyConfig,
		"--listen="+strings.TrimPrefix(s.gateway, "https://"), "--metrics-listen="+metricsAddress,
		"--tls-cert-file="+pki("gateway.crt"), "--tls-private-key-file="+pki("gateway.key"))
	if err != nil {
		return err
	}
	return s.await(ctx, gatewayBinary, func(ctx context.Context) error { return knowsCluster(ctx, metricsAddress) })
}

// knowsCluster returns an error unless the metrics of a gateway report that its data about every
// cluster is current.
func knowsCluster(ctx context.Context, metricsAddress string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "\nkubetenant_gateway_cluster_current{") {
		return fmt.Errorf("%s has no metric of its cluster", metricsAddress)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "kubetenant_gateway_cluster_current{") &&
			!strings.HasSuffix(strings.TrimSpace(line), " 1") {
			return errors.New("the gateway has not read the state of the cluster yet")
		}
	}
	return nil
}
