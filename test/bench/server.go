// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/test/localserver"
)

// etcdProcess is the etcd that both servers use. It runs in kubetenant-local, which also creates
// the keys and certificates.
type etcdProcess struct {
	local  *localserver.Server
	socket string
}

func startEtcd(ctx context.Context, binary, dir string) (*etcdProcess, error) {
	local, err := localserver.Start(ctx, binary, dir, "--workload-controllers=false", "--tenancy=false")
	if err != nil {
		return nil, err
	}
	sockets, err := os.ReadFile(filepath.Join(dir, "etcd", "sockets")) // #nosec G304 -- in our own directory
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tenancy.yaml"), []byte(tenancy), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, local.Stop())
	}
	return &etcdProcess{local, "unix://" + filepath.Join(string(sockets), "client")}, nil
}

func (e *etcdProcess) stop() error { return e.local.Stop() }

// tenancy is a configuration with certificates as the only source.
const tenancy = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
`

// server is one of the compared servers.
type server struct {
	name, binary string
	args         []string
}

// process is a running server.
type process struct {
	cmd        *exec.Cmd
	kubeconfig string
}

// start starts the server on a free port and waits until it is ready. It returns how long this
// took.
func (s server) start(ctx context.Context, dir string, etcd *etcdProcess) (*process, time.Duration, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, 0, err
	}
	pki := func(name string) string { return filepath.Join(dir, "pki", name) }
	cmd := exec.Command(s.binary, append([]string{ // #nosec G204 -- the caller names the binaries it built
		"--etcd-servers=" + etcd.socket, "--etcd-prefix=/" + s.name,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + pki("kube-apiserver.crt"), "--tls-private-key-file=" + pki("kube-apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("service-account.key"),
		"--service-account-signing-key-file=" + pki("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=Node,RBAC",
	}, s.args...)...)
	p := &process{cmd: cmd, kubeconfig: filepath.Join(dir, s.name+".kubeconfig")}
	url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	config, err := clientcmd.LoadFromFile(etcd.local.Kubeconfig("admin"))
	if err != nil {
		return nil, 0, err
	}
	config.Clusters["local"].Server = url
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	for ready := false; !ready; {
		if ctx.Err() != nil || time.Since(began) > time.Minute {
			return nil, 0, errors.Join(errors.New("not ready in time"), p.stop())
		}
		time.Sleep(2 * time.Millisecond)
		ready = isReady(ctx, url)
	}
	return p, time.Since(began), nil
}

func isReady(ctx context.Context, url string) bool {
	// Only the response status is needed, so the certificate is not verified.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- loopback
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Transport: transport, Timeout: time.Second}).Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}
