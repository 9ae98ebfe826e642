package local

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/cmd/internal/gateway/manifests"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const gatewayBinary = "kubetenant-gateway"

// gatewayConfig is the TenancyConfiguration of a new directory with --gateway.
const gatewayConfig = `# The tenants of this control plane. The gateway follows this file and the ones it names.
apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  # A record that names no tenant is refused: by default it would be the system tenant's.
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
  - { name: passwords, basicAuthFile: { path: passwords.csv, defaultTenant: "" } }
gateway:
  clusters:
  - name: local
    root: true
    tenants: ["*", system]
    reader: { kubeConfigFile: kubetenant-gateway-reader.kubeconfig }
    impersonator: { kubeConfigFile: kubetenant-gateway-impersonator.kubeconfig }
    serviceAccounts: { tokens: Pass, issuers: ["https://kubernetes.default.svc"] }
`

// openGateway chooses where the gateway listens, the same as before in a directory, and makes its certificate.
func (c *cluster) openGateway() error {
	listener, err := listenKept(filepath.Join(c.dir, "gateway-port"), 0)
	if err != nil {
		return err
	}
	c.gateway = "https://" + listener.Addr().String()
	if err := listener.Close(); err != nil { // the process cannot be handed it
		return err
	}
	return c.ca.issueFiles(filepath.Join(c.dir, "pki"), "gateway", pkix.Name{CommonName: gatewayBinary}, x509.ExtKeyUsageServerAuth)
}

var errNoGateway = errors.New("the configuration has no section gateway with one cluster")

// startGateway installs what the gateway needs in the cluster, and starts it.
func (s *shape) startGateway(ctx context.Context, client kubernetes.Interface) error {
	config, err := v1alpha1.Load(s.o.TenancyConfig)
	if err != nil {
		return err
	}
	if config.Gateway == nil || len(config.Gateway.Clusters) != 1 {
		return errNoGateway
	}
	roles, err := manifests.Roles(&config.Gateway.Clusters[0], true)
	if err != nil {
		return err
	}
	if err := s.apply(ctx, roles); err != nil {
		return err
	}
	for _, name := range []string{manifests.ReaderAccount, manifests.ImpersonatorAccount} {
		if err := s.writeToken(ctx, client, name); err != nil {
			return err
		}
	}
	side, err := FreeAddress()
	if err != nil {
		return err
	}
	pki := func(name string) string { return filepath.Join(s.dir, "pki", name) }
	if err := s.run(gatewayBinary, gatewayBinary+".log", nil, "serve", "--config="+s.o.TenancyConfig, "--listen="+strings.TrimPrefix(s.gateway, "https://"),
		"--metrics-listen="+side, "--tls-cert-file="+pki("gateway.crt"), "--tls-private-key-file="+pki("gateway.key")); err != nil {
		return err
	}
	return s.await(ctx, gatewayBinary, func(ctx context.Context) error { return knowsCluster(ctx, side) })
}

// knowsCluster returns why a gateway does not know its cluster yet, by its metrics.
func knowsCluster(ctx context.Context, side string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+side+"/metrics", http.NoBody)
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
		return fmt.Errorf("%s says nothing of its cluster", side)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "kubetenant_gateway_cluster_current{") && !strings.HasSuffix(strings.TrimSpace(line), " 1") {
			return errors.New("what it follows of the cluster is not known yet")
		}
	}
	return nil
}
