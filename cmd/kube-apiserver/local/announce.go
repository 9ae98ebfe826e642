package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// announce waits until the server is ready and says how to use it.
func (c *cluster) announce(ctx context.Context, out io.Writer, started time.Time) {
	_, _ = fmt.Fprintf(out, "starting kube-apiserver with tenants in %s ...\n", c.dir)
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.cert)
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		Timeout:   2 * time.Second,
	}
	defer client.CloseIdleConnections()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(out, "ready after %.1f s\n\n  server         %s\n  directory      %s\n  configuration  %s\n  log            %s/kube-apiserver.log\n",
		time.Since(started).Seconds(), c.server, c.dir, c.config, c.dir)
	for _, k := range c.kubeconfigs {
		_, _ = fmt.Fprintf(out, "  %-27s kubectl --kubeconfig %s\n", k.who, k.path)
	}
	_, _ = fmt.Fprintf(out, "\nStop it with Ctrl-C or: kill %d\n", os.Getpid())
}
