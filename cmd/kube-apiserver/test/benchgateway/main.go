// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command benchgateway measures the gateway and two plain proxies, which use httputil.ReverseProxy
// over the same transports. The proxies run in front of a stub server, and then in front of a bare
// kube-apiserver. The command prints the tables of docs/design/benchmarks.md.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// token is the bearer token of the caller, a user of tenant acme.
const token = "bench-token"

// gcPercent is the GC percentage of the load generator and of the stub. These small processes
// then collect garbage after about 100 MB instead of 4 MB.
const gcPercent = 2500

func main() {
	bin := flag.String("bin", "", "directory of the built commands")
	role := flag.String("role", "", "be the stub or the plain proxy, at --address")
	address := flag.String("address", "", "of a role")
	pki := flag.String("pki", "", "directory of certificates, of a role")
	upstream := flag.String("upstream", "", "kubeconfig of the proxy's server")
	one := flag.Bool("one", false, "measure only one caller that sends one request after the other")
	flag.Parse()
	if *role != "proxy" { // the load generator and the stub must not take processor time from the proxies
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch *role {
	case "stub":
		err = serveStub(ctx, *address, *pki)
	case "proxy":
		err = serveProxy(ctx, *address, *pki, *upstream)
	default:
		measure := (*bench).measureAll
		if *one {
			measure = (*bench).measureOneCaller
		}
		err = run(ctx, *bin, measure)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchgateway:", err)
		os.Exit(1)
	}
}

// target is a process that is measured.
type target struct {
	name, base string
	process    *exec.Cmd
}

func (t *target) stop() {
	_ = t.process.Process.Kill() // the process may have ended already
	_ = t.process.Wait()
}

// bench is the state that all measurements share.
type bench struct {
	bin, dir, self string
	stub           string // URL of the stub
	ownConnections int64  // connections that connectionsOpened itself has opened to the stub
	server         *localserver.Server
	authorities    *x509.CertPool
}

func run(ctx context.Context, bin string, measure func(*bench, context.Context) error) (err error) {
	b := &bench{bin: bin, authorities: x509.NewCertPool()}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "benchgateway-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	b.server, err = localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), b.dir,
		"--workload-controllers=false", "--unsafe-no-fsync", "--gateway")
	if err != nil {
		return err
	}
	defer func() { _ = b.server.Stop() }()
	ca, err := os.ReadFile(filepath.Join(b.dir, "pki", "ca.crt"))
	if err != nil {
		return err
	}
	b.authorities.AppendCertsFromPEM(ca)
	if err := b.prepare(ctx); err != nil {
		return err
	}
	stub, err := b.start(ctx, "stub", func(address string) *exec.Cmd { return b.role("stub", address) })
	if err != nil {
		return err
	}
	defer stub.stop()
	b.stub = stub.base
	if err := b.kubeconfig("stub.kubeconfig", stub.base, "stub-token", ca); err != nil {
		return err
	}
	fmt.Println("Before a server that does nothing:")
	return measure(b, ctx)
}

// measureAll takes all measurements that docs/design/benchmarks.md shows.
func (b *bench) measureAll(ctx context.Context) error {
	if err := b.inFrontOf(ctx, "stub.kubeconfig", bothStages, b.measureStub); err != nil {
		return err
	}
	fmt.Println("\nThe same with an audit policy that leaves out the stage RequestReceived:")
	if err := b.inFrontOf(ctx, "stub.kubeconfig", oneStage, func(ctx context.Context, processes targets) error {
		return b.compare(ctx, "GET of 1 KiB", processes)
	}); err != nil {
		return err
	}
	fmt.Println("\nBefore a bare kube-apiserver:")
	if err := b.inFrontOf(ctx, "kubetenant-gateway-impersonator.kubeconfig", bothStages, b.measureServer); err != nil {
		return err
	}
	return b.measureImpersonation(ctx)
}

// measureOneCaller measures one caller of the targets in front of the stub and in front of a
// kube-apiserver.
func (b *bench) measureOneCaller(ctx context.Context) error {
	if err := b.inFrontOf(ctx, "stub.kubeconfig", bothStages, b.oneCaller); err != nil {
		return err
	}
	fmt.Println("\nBefore a bare kube-apiserver:")
	return b.inFrontOf(ctx, "kubetenant-gateway-impersonator.kubeconfig", bothStages, b.oneCaller)
}

// Files of audit policies.
const (
	bothStages = "bench-audit.yaml"
	oneStage   = "bench-audit-one.yaml"
)

// targets are the processes that are compared in front of one server. The plain proxy and its twin
// are the same program, so differences that are not larger than their difference are noise.
type targets struct{ plain, twin, gateway *target }

// inFrontOf starts two plain proxies, and a gateway with the given audit policy, in front of the
// server of the given kubeconfig. It then calls measure.
func (b *bench) inFrontOf(
	ctx context.Context, upstream, policy string, measure func(context.Context, targets) error,
) (err error) {
	var processes targets
	for _, t := range []struct {
		name string
		into **target
	}{{"plain", &processes.plain}, {"twin", &processes.twin}} {
		if *t.into, err = b.start(ctx, t.name, func(address string) *exec.Cmd {
			return b.role("proxy", address, "--upstream", filepath.Join(b.dir, upstream))
		}); err != nil {
			return err
		}
		defer (*t.into).stop()
	}
	config := filepath.Join(b.dir, "bench-"+upstream+".yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, tenancy, policy, upstream), 0o600); err != nil {
		return err
	}
	if processes.gateway, err = b.start(ctx, "gateway", func(address string) *exec.Cmd {
		side, _ := local.FreeAddress()
		// #nosec G204 -- the built command
		return exec.Command(filepath.Join(b.bin, "kubetenant-gateway"), "serve",
			"--config", config, "--listen", address, "--metrics-listen", side,
			"--tls-cert-file", filepath.Join(b.dir, "pki", "gateway.crt"),
			"--tls-private-key-file", filepath.Join(b.dir, "pki", "gateway.key"))
	}); err != nil {
		return err
	}
	defer processes.gateway.stop()
	return measure(ctx, processes)
}

// tenancy is the gateway's configuration. It has a token file, an audit policy, and limits that
// allow 20,000 watches of one tenant.
const tenancy = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication: { sources: [ { name: tokens, tokenFile: { path: bench-tokens.csv, defaultTenant: "" } } ] }
fairUse: { inFlight: 10000, watches: 100000 }
gateway:
  audit: { policyFile: %s, logPath: bench-audit.log, maxBackups: 100 }
  clusters:
  - { name: local, root: true, tenants: ["*", system], reader: { kubeConfigFile: kubetenant-gateway-reader.kubeconfig },
      impersonator: { kubeConfigFile: %s } }
`

const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata } ]\n"

// prepare creates a tenant's namespace with a ConfigMap, and the files to which the configuration
// refers.
func (b *bench) prepare(ctx context.Context) error {
	for name, text := range map[string]string{
		"bench-tokens.csv": token + ",alice,u1,dev,,acme\n",
		bothStages:         auditPolicy,
		oneStage:           auditPolicy + "omitStages: [ RequestReceived ]\n",
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, step := range [][]string{
		{"admin", "apply", "-f", "../../examples/manifests/tenants.yaml"},
		{"acme", "create", "namespace", "acme--web"},
		{"acme", "-n", "acme--web", "create", "configmap", "settings", "--from-literal=a=b"},
	} {
		args := append([]string{"--kubeconfig", b.server.Kubeconfig(step[0])}, step[1:]...)
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "kubectl"), args...) // #nosec G204 -- the built command
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func (b *bench) kubeconfig(name, server, bearer string, ca []byte) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: bearer}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	return clientcmd.WriteToFile(*c, filepath.Join(b.dir, name))
}

// role returns the command that runs this program in the given role.
func (b *bench) role(name, address string, more ...string) *exec.Cmd {
	args := append([]string{"--role", name, "--address", address, "--pki", filepath.Join(b.dir, "pki")}, more...)
	return exec.Command(b.self, args...) // #nosec G204 -- this command
}

// start starts a process, and waits until it answers a GET request with status 200.
func (b *bench) start(ctx context.Context, name string, command func(address string) *exec.Cmd) (*target, error) {
	address, err := local.FreeAddress()
	if err != nil {
		return nil, err
	}
	t := &target{name: name, base: "https://" + address, process: command(address)}
	log, err := os.Create(filepath.Join(b.dir, name+".log")) // #nosec G304 -- in our own directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	t.process.Stdout, t.process.Stderr, t.process.SysProcAttr = log, log, localserver.EndsWithParent()
	if err := t.process.Start(); err != nil {
		return nil, err
	}
	c := b.client()
	defer c.CloseIdleConnections()
	for range 300 {
		if err = get(ctx, c, t.base+small); err == nil {
			return t, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.stop()
	return nil, fmt.Errorf("%s does not answer: %w", name, err)
}

// listen opens the listener of a role.
func listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// serveUntilDone serves until ctx ends.
func serveUntilDone(ctx context.Context, server *http.Server, listener net.Listener, pki, name string) error {
	context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.ServeTLS(listener, filepath.Join(pki, name+".crt"), filepath.Join(pki, name+".key"))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
