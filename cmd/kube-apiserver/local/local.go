// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package local runs a complete small control plane on one machine. It consists of
// kube-apiserver with kubetenant, an embedded etcd, its own certificate authority, and the
// controllers that namespaces and workloads need. By default, all of them run in one process.
package local

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
	"github.com/kubetenant/kubetenant/tenant"
)

// Options contains the values of the flags.
type Options struct {
	Dir           string
	Port          int
	TenancyConfig string
	Tenancy       bool
	Tenants       []string
	// Webhook runs the upstream kube-apiserver and the webhook service as separate processes.
	// Replicas is the number of processes of the service.
	Webhook  bool
	Replicas int
	// Gateway runs the gateway in front of the upstream kube-apiserver, which calls the webhook
	// service only for admission. Clusters is the number of clusters behind the gateway.
	Gateway  bool
	Clusters int
	// AdmissionOnly runs a cluster for a gateway, but not the gateway itself.
	AdmissionOnly bool
	Authorizers   []string
	// Workloads runs the garbage collector and the controllers that create pods.
	Workloads bool
	// UnsafeNoFsync sets the etcd option of the same name. Use it only for disposable data.
	UnsafeNoFsync bool
}

// NewCommand returns the command kubetenant-local.
func NewCommand() *cobra.Command {
	o := Options{}
	cmd := &cobra.Command{
		Use:   "kubetenant-local --dir DIR [-- KUBE-APISERVER-FLAGS]",
		Short: "Run a small control plane with tenants in one process",
		Long: `Runs kube-apiserver with tenants in one process, together with an embedded etcd, its
own certificate authority, and the controllers for namespaces, built-in roles and
workloads. All data is in DIR: start again with the same DIR to continue. The server
listens only on the loopback address.

With --webhook, SIGUSR1 restarts the service with the current configuration, for
settings that apply only at startup. If the configuration needs other manifests,
the service is not restarted.

Flags after -- are passed to kube-apiserver.`,
		Example: `  kubetenant-local --dir ./cluster
  kubetenant-local --dir ./cluster --port 6443 --tenant acme
  kubetenant-local --dir ./cluster --tenancy-config tenancy.yaml -- --v=4
  kubetenant-local --dir ./cluster --webhook
  kubetenant-local --dir ./cluster --gateway --clusters 2`,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		// PreRun runs before the check that --dir is set. --version therefore does not require
		// --dir.
		PreRun: func(*cobra.Command, []string) { verflag.PrintAndExitIfRequested() },
		RunE: func(cmd *cobra.Command, args []string) error {
			return Run(cmd.Context(), o, args, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "directory for all data of the control plane (required)")
	f.IntVar(&o.Port, "port", 0,
		"port on the loopback address. 0 reuses the port of the last start in this directory, or selects a free one.")
	f.StringVar(&o.TenancyConfig, "tenancy-config", "",
		"path of the TenancyConfiguration, instead of DIR/tenancy.yaml, which is created if it is missing")
	f.BoolVar(&o.Tenancy, "tenancy", true,
		"set to false to run the upstream server on the same data, to compare or to prepare objects")
	f.StringSliceVar(&o.Tenants, "tenant", []string{"acme", "globex"}, "tenants for which to write a kubeconfig")
	f.BoolVar(&o.Workloads, "workload-controllers", true,
		"run the garbage collector and the controllers of Deployments, ReplicaSets, Jobs and CronJobs. Pods never run.")
	f.BoolVar(&o.Webhook, "webhook", false,
		"run the unmodified upstream kube-apiserver and the webhook service, both built by make build")
	f.BoolVar(&o.Gateway, "gateway", false,
		"run the unmodified upstream kube-apiserver without flags for tenants, behind the gateway")
	f.IntVar(&o.Clusters, "clusters", 1,
		"with --gateway: number of clusters behind the gateway. Their servers start one after the other. The root path of "+
			"the gateway also serves the first cluster.")
	f.BoolVar(&o.AdmissionOnly, "admission-only", false,
		"run the unmodified upstream kube-apiserver, which calls the webhook service only for admission, as a cluster "+
			"behind a gateway that runs elsewhere")
	f.IntVar(&o.Replicas, "replicas", 1,
		"with --webhook or --gateway: number of replicas. Connections are distributed as by a Service.")
	f.StringSliceVar(&o.Authorizers, "behind", []string{"Node", "RBAC"},
		"with --webhook or --gateway: authorizers of kube-apiserver itself")
	f.BoolVar(&o.UnsafeNoFsync, "unsafe-no-fsync", false,
		"etcd does not wait for the disk, like its flag of the same name. If the machine crashes, data is lost.")
	_ = cmd.MarkFlagRequired("dir")
	verflag.AddFlags(f)
	return cmd
}

// Run runs the control plane until ctx ends. When the control plane is ready, Run prints how to use
// it to out.
func Run(ctx context.Context, o Options, flags []string, out io.Writer) (err error) {
	started := time.Now()
	dir, err := o.check()
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	closeLog, err := logTo(filepath.Join(dir, "kube-apiserver.log"))
	if err != nil {
		return err
	}
	defer closeLog()

	listener, err := listen(dir, o.Port)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	c, err := prepare(dir, listener, &o)
	if err != nil {
		return err
	}
	sockets, err := socketDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(sockets) }()
	etcd, etcdURL, err := o.startEtcd(filepath.Join(dir, "etcd"), sockets)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	if o.Webhook || o.AdmissionOnly {
		return (&webhookDeployment{
			cluster:  c,
			o:        &o,
			etcdURL:  etcdURL,
			listener: listener,
			flags:    flags,
		}).runUntil(ctx, out, started)
	}
	s, err := serverOptions(dir, etcdURL, listener, flags)
	if err != nil {
		return err
	}
	if !o.Tenancy {
		o.TenancyConfig, c.config = "", "none (tenancy is off)"
	}
	return app.Run(ctx, s, o.TenancyConfig, o.controllers(filepath.Join(dir, "pki")), c.announcement(out, started))
}

// check validates the flags, and creates the directory if it does not exist. It returns the
// absolute path of the directory.
func (o *Options) check() (dir string, err error) {
	for _, name := range o.Tenants {
		if _, err := tenant.Parse(name); err != nil {
			return "", fmt.Errorf("--tenant %q: %w", name, err)
		}
	}
	switch {
	case o.Webhook && (o.Gateway || o.AdmissionOnly):
		return "", errors.New("--webhook and --gateway select different deployment modes: set one of them")
	case o.Clusters < 1 || o.Clusters > maxClusters || o.Clusters > 1 && !o.Gateway:
		return "", fmt.Errorf("--clusters requires --gateway and must be 1 to %d", maxClusters)
	}
	o.AdmissionOnly = o.AdmissionOnly || o.Gateway
	if dir, err = filepath.Abs(o.Dir); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// cluster contains the addresses and files of a control plane in a directory.
type cluster struct {
	dir, server, config string
	gateway             string // the URL for callers instead of server; empty if there is no gateway
	ca                  *authority
	kubeconfigs         []kubeconfig
}

type kubeconfig struct{ description, path string }

// prepare creates the missing files in dir.
func prepare(dir string, listener net.Listener, o *Options) (*cluster, error) {
	pki := filepath.Join(dir, "pki")
	for _, sub := range []string{pki, filepath.Join(dir, "etcd")} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, err
		}
	}
	c := &cluster{dir: dir, server: "https://" + listener.Addr().String()}
	var err error
	if c.ca, err = openAuthority(pki, "ca"); err != nil {
		return nil, err
	}
	if _, err := openAuthority(pki, "front-proxy-ca"); err != nil {
		return nil, err
	}
	if _, err := openKey(filepath.Join(pki, "service-account.key")); err != nil {
		return nil, err
	}
	subject := pkix.Name{CommonName: "kube-apiserver"}
	if err := c.ca.issueFiles(pki, "kube-apiserver", subject, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	if o.TenancyConfig == "" {
		o.TenancyConfig = filepath.Join(dir, "tenancy.yaml")
		config := defaultConfig
		switch {
		case o.Gateway:
			config = gatewayConfig(o.Clusters)
		case o.Webhook, o.AdmissionOnly:
			config = webhookConfig
		}
		if err := writeMissing(o.TenancyConfig, config); err != nil {
			return nil, err
		}
		for _, name := range []string{"tokens.csv", "passwords.csv"} {
			if err := writeMissing(filepath.Join(dir, name), ""); err != nil {
				return nil, err
			}
		}
	}
	c.config = o.TenancyConfig
	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	if err := c.addKubeconfig("admin", "admin of the cluster", admin); err != nil {
		return nil, err
	}
	if o.Gateway {
		if err := c.openGateway(); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Tenants {
		subject := pkix.Name{
			CommonName:         "admin",
			Organization:       []string{"tenant:" + name},
			OrganizationalUnit: []string{"admins"},
		}
		if err := c.addKubeconfig(name, "admin of tenant "+name, subject); err != nil {
			return nil, err
		}
		for n := 1; n < o.Clusters; n++ {
			if err := addPath(c.kubeconfigs[len(c.kubeconfigs)-1].path, clusterName(n)); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *cluster) addKubeconfig(name, description string, subject pkix.Name) error {
	cluster := "local"
	server := c.server
	if c.gateway != "" { // a different name, because a user may merge both kubeconfigs
		cluster = "gateway"
		server = c.gateway
	}
	path, err := c.ca.writeKubeconfig(c.dir, name, cluster, server, subject)
	c.kubeconfigs = append(c.kubeconfigs, kubeconfig{description, path})
	return err
}

// maxClusters is the maximum of --clusters. Most machines cannot run that many clusters.
const maxClusters = 9

// defaultConfig is the TenancyConfiguration of a new directory.
const defaultConfig = `# The tenants of this control plane.
# The server reloads this file, and the files that it names, when they change.
apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
# The audit log of each tenant is a file in this directory.
audit: { directory: audit }
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  # A record without a tenant is rejected. By default, it would belong to the system tenant.
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
  - { name: passwords, basicAuthFile: { path: passwords.csv, defaultTenant: "" } }
  - { name: cluster, serviceAccount: { issuer: https://kubernetes.default.svc, keyFiles: [pki/service-account.key] } }
`

func writeMissing(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- in the operator's directory
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// serverOptions returns upstream's options for the files in dir. The flags in more take precedence.
func serverOptions(dir, etcdURL string, listener net.Listener, more []string) (*options.ServerRunOptions, error) {
	s := options.NewServerRunOptions()
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, f := range s.Flags().FlagSets {
		set.AddFlagSet(f)
	}
	if err := set.Parse(more); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: only flags of kube-apiserver may follow --", set.Arg(0))
	}
	for _, own := range append(ServerFlags(dir, etcdURL), "--authorization-mode=Node,RBAC") {
		name, value, _ := strings.Cut(strings.TrimPrefix(own, "--"), "=")
		if set.Changed(name) {
			continue // the caller's flag takes precedence
		}
		if err := set.Set(name, value); err != nil {
			return nil, err
		}
	}
	s.SecureServing.Listener = listener
	s.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	return s, nil
}

// ServerFlags returns the flags of kube-apiserver for the files that [Run] creates in dir, except
// the port and the authorizers.
func ServerFlags(dir, etcdURL string) []string {
	pki := func(name string) string { return filepath.Join(dir, "pki", name) }
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + pki("kube-apiserver.crt"), "--tls-private-key-file=" + pki("kube-apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-uid-headers=X-Remote-Uid", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("service-account.key"),
		"--service-account-signing-key-file=" + pki("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
	}
}

// listen opens the port and stores its number in dir for the next start.
func listen(dir string, port int) (net.Listener, error) {
	return listenStored(filepath.Join(dir, "port"), port)
}

// listenStored listens on a port and stores its number in portFile. If port is 0, it prefers
// the stored port, and reserves the selected port until this process ends.
func listenStored(portFile string, port int) (net.Listener, error) {
	listener, err := listenPreferred(portFile, port)
	if err != nil {
		return nil, err
	}
	return listener, os.WriteFile(portFile, []byte(strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)+"\n"), 0o600)
}

func listenPreferred(portFile string, port int) (net.Listener, error) {
	if port != 0 {
		return net.Listen("tcp", onLoopback(port))
	}
	if text, err := os.ReadFile(portFile); err == nil { // #nosec G304 -- in the operator's directory
		if port, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && port != 0 {
			if listener, err := listenReserved(onLoopback(port)); err == nil {
				return listener, nil
			}
		}
	}
	return listenFree()
}

// lock locks the directory for this process until unlock is called. If the process ends, the kernel
// removes the lock.
func lock(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // #nosec G304 -- in the operator's directory
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another server (process %s): stop it first or use another directory",
			dir, strings.TrimSpace(string(owner)))
	}
	err = errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n"))
	return func() { _ = f.Close() }, err
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// logTo writes the server's log to a file.
func logTo(path string) (closeLog func(), err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) // #nosec G304 -- in the operator's directory
	if err != nil {
		return nil, err
	}
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	if err := set.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL", "-one_output=true"}); err != nil {
		return nil, err
	}
	klog.SetOutput(f)
	return func() {
		klog.Flush()
		klog.SetOutput(io.Discard)
		_ = f.Close()
	}, nil
}
