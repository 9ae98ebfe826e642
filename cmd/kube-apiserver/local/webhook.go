// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/internal/manifests"
	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// The other binaries that this command runs. "make build" creates all binaries in the same
// directory.
const (
	vanillaBinary = "vanilla-kube-apiserver"
	webhookBinary = "kubetenant-webhook"
)

const (
	webhookNamespace = "kubetenant-system"
	// clientName is the common name of the client certificate that kube-apiserver presents to the
	// service.
	clientName = "kubetenant-webhook-client"
	// startTimeout is the maximum time for the start of each process. stopTimeout is the maximum
	// time until all processes have ended.
	startTimeout = 3 * time.Minute
	stopTimeout  = 20 * time.Second
	// stableResults is the number of consecutive identical results of the backfill, read every 50
	// ms, after which the backfill is considered complete. The controller publishes results once
	// per second.
	stableResults = 30
	// tokenLifetime is the lifetime of the tokens of the service's accounts, which are renewed at
	// each start.
	tokenLifetime = 365 * 24 * time.Hour
)

// webhookConfig is the default TenancyConfiguration for --webhook. It has no sources for
// certificates and service accounts, because kube-apiserver authenticates them.
const webhookConfig = `# The tenants of this control plane.
# The webhook service reloads this file, and the files that it names, when they change.
apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  # A record without a tenant is rejected. By default, it would belong to the system tenant.
  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
authorization:
  # kube-apiserver verifies certificates. The group O=tenant:<id> names the tenant.
  subject: { fromGroups: true }
`

// webhookDeployment runs upstream's kube-apiserver, the webhook service and the controller as
// processes. It can also run the gateway.
type webhookDeployment struct {
	*cluster
	o        *Options
	etcdURL  string
	listener net.Listener // reserves kube-apiserver's port until kube-apiserver starts
	flags    []string     // flags of kube-apiserver
	admin    *rest.Config
	balancer *balancer
	// installed contains the generated files with which the control plane was started, keyed by
	// file name.
	installed     map[string][]byte
	children      []*exec.Cmd           // the running processes
	restarts      int                   // number of restarts of the controller
	otherClusters []*localserver.Server // clusters behind the gateway
	exits         chan exit
}

// exit is a process that has ended.
type exit struct {
	child  *exec.Cmd
	failed bool // the process returned an error or was killed
	err    error
}

// isServer reports whether a process is kube-apiserver.
func isServer(child *exec.Cmd) bool { return strings.HasSuffix(child.Path, vanillaBinary) }

// isController reports whether a process is the webhook controller.
func isController(child *exec.Cmd) bool { return slices.Contains(child.Args, "controller") }

// runUntil runs all processes until ctx ends or kube-apiserver ends.
func (s *webhookDeployment) runUntil(ctx context.Context, out io.Writer, started time.Time) (err error) {
	if err := stack.Check(ctx, s.o.TenancyConfig); err != nil {
		return err // before any process starts
	}
	what := "the webhook service"
	switch {
	case s.o.Gateway:
		what = "the gateway"
	case s.o.AdmissionOnly:
		what = "the webhook service for admission"
	}
	_, _ = fmt.Fprintf(out, "starting the upstream kube-apiserver and %s in %s ...\n", what, s.dir)
	s.exits = make(chan exit, 3+s.o.Replicas)
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig("admin")); err != nil {
		return err
	}
	s.admin.QPS, s.admin.Burst = 200, 400
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := stopTimeout
	defer func() { err = errors.Join(err, s.stop(timeout), s.stopOtherClusters()) }()
	if err := s.start(ctx); err != nil {
		timeout = 0 // do not wait for a server whose start was aborted, because it waits for its own hooks
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.announce(out, time.Since(started))
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGUSR1)
	defer signal.Stop(restart)
	for {
		select {
		case e := <-s.exits:
			s.forget(e)
			if isServer(e.child) {
				return e.err
			}
			_, _ = fmt.Fprintln(out, e.err) // kube-apiserver continues without this process
			s.restartController(e)
		case <-restart:
			started := time.Now()
			if err := s.checkManifests(ctx); err != nil {
				_, _ = fmt.Fprintln(out, "the service was not restarted:", err)
			} else if err := s.restartService(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			s.announce(out, time.Since(started))
		case <-ctx.Done():
			return nil
		}
	}
}

// forget removes a process that has ended from the running processes.
func (s *webhookDeployment) forget(e exit) {
	s.children = slices.DeleteFunc(s.children, func(child *exec.Cmd) bool { return child == e.child })
}

// checkManifests returns an error if the current configuration is invalid, or if it needs other
// manifests than those that are installed.
func (s *webhookDeployment) checkManifests(ctx context.Context) error {
	if err := stack.Check(ctx, s.o.TenancyConfig); err != nil {
		return err
	}
	files, err := webhookmanifests.Generate(s.manifestOptions())
	if err != nil {
		return err
	}
	delete(files, "values.yaml")
	if !maps.EqualFunc(files, s.installed, bytes.Equal) {
		return errors.New("this configuration needs other manifests: stop kubetenant-local and start it again")
	}
	return nil
}

// restartService restarts the service and the controller with the current configuration.
func (s *webhookDeployment) restartService(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	for _, child := range s.children {
		if isServer(child) {
			continue
		}
		if isController(child) {
			_ = child.Process.Signal(syscall.SIGTERM) // lets the controller release its Lease
			continue
		}
		_ = child.Process.Kill() // with SIGTERM, the process would continue for the time of its drain
	}
	for len(s.children) > 1 {
		e := <-s.exits
		if s.forget(e); isServer(e.child) {
			return e.err
		}
	}
	if err := s.startService(ctx, client); err != nil {
		return err
	}
	if err := s.awaitBackfill(ctx, client); err != nil || !s.o.Gateway {
		return err
	}
	return s.startGateway(ctx)
}

// start starts each process as soon as its dependencies are ready.
func (s *webhookDeployment) start(ctx context.Context) error {
	files, err := s.generate(ctx)
	if err != nil {
		return err
	}
	// kube-apiserver cannot inherit the listener. The port is therefore free until kube-apiserver
	// listens.
	if err := s.listener.Close(); err != nil {
		return err
	}
	own := strings.Fields(string(files["control-plane/flags.txt"]))
	environment := strings.Fields(string(files["control-plane/environment.txt"]))
	if s.o.AdmissionOnly { // without flags for tenants
		own = []string{"--authorization-mode=" + strings.Join(s.o.Authorizers, ",")}
		environment = nil
	}
	args := slices.Concat(ServerFlags(s.dir, s.etcdURL),
		[]string{"--secure-port=" + strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port)}, own, s.flags)
	if err := s.run(vanillaBinary, "kube-apiserver.log", environment, args...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	if err := s.awaitServer(ctx, client); err != nil {
		return err
	}
	if err := startControllers(ctx, s.admin, filepath.Join(s.dir, "pki")); err != nil {
		return err
	}
	first := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool {
		return !strings.HasPrefix(name, "crds/")
	})
	for _, name := range append(first, "cluster/00-namespace.yaml", "cluster/accounts.yaml", "cluster/flowcontrol.yaml") {
		if err := s.apply(ctx, files[name]); err != nil {
			return err
		}
	}
	if err := s.startService(ctx, client); err != nil {
		return err
	}
	for _, name := range []string{"policies.yaml", "webhooks.yaml"} {
		if err := s.apply(ctx, files["cluster/"+name]); err != nil {
			return err
		}
	}
	if err := s.awaitPolicies(ctx, client); err != nil {
		return err
	}
	if err := s.awaitBackfill(ctx, client); err != nil {
		return err
	}
	if s.o.Gateway {
		if err := s.startOtherClusters(ctx); err != nil {
			return err
		}
		if err := s.startGateway(ctx); err != nil {
			return err
		}
	}
	if s.o.Workloads {
		if err := startWorkloads(ctx, s.admin); err != nil {
			return err
		}
	}
	return s.await(ctx, "kube-apiserver", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitServer waits until kube-apiserver responds. It does not wait for /readyz, which fails until
// hooks have ended that may need the service.
func (s *webhookDeployment) awaitServer(ctx context.Context, client kubernetes.Interface) error {
	return s.await(ctx, "kube-apiserver", func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	})
}

// awaitPolicies waits until kube-apiserver enforces the policies. It sends a dry run of a write
// that a policy rejects for every caller, because the object has a tenant label outside of the
// tenants' namespaces.
func (s *webhookDeployment) awaitPolicies(ctx context.Context, client kubernetes.Interface) error {
	probe := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: map[string]string{tenant.Label: "probe"}},
	}
	return s.await(ctx, "the policies", func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(webhookNamespace).Create(ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policies are not active yet")
		}
		if strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		}
		return fmt.Errorf("unexpected answer to a probe: %w", err)
	})
}

// awaitBackfill waits until the controller has labeled all existing objects.
func (s *webhookDeployment) awaitBackfill(ctx context.Context, client kubernetes.Interface) error {
	last := ""
	same := 0
	return s.await(ctx, "the backfill", func(ctx context.Context) error {
		published, err := client.CoreV1().ConfigMaps(webhookNamespace).Get(ctx, state.BackfillName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := published.Data[state.BackfillKey]; text != last || text == "{}" {
			last = text
			same = 0
		}
		if same++; same < stableResults {
			return errors.New("it is still running")
		}
		return nil
	})
}

// startService starts the service and the controller, each with its own service account.
func (s *webhookDeployment) startService(ctx context.Context, client kubernetes.Interface) error {
	// The next controller must not use the result of the previous one, because the webhooks may now
	// have another address.
	err := client.CoreV1().ConfigMaps(webhookNamespace).Delete(ctx, state.BackfillName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, account := range []string{"kubetenant-webhook", "kubetenant-controller"} {
		if err := s.writeToken(ctx, client, account); err != nil {
			return err
		}
	}
	pki := func(name string) string { return filepath.Join(s.dir, "pki", name) }
	for i, r := range s.balancer.replicas {
		name := "kubetenant-webhook-" + strconv.Itoa(i+1)
		clients := []string{"--client-ca-file=" + pki("ca.crt"), "--client-name=" + clientName}
		if s.o.AdmissionOnly { // the server presents no client certificate
			clients = []string{"--admission-only"}
		}
		if err := s.run(webhookBinary, name+".log", nil, append([]string{
			"serve", "--config=" + s.o.TenancyConfig,
			"--kubeconfig=" + s.kubeconfig("kubetenant-webhook"), "--namespace=" + webhookNamespace,
			"--listen=" + r.address, "--metrics-listen=" + r.metricsAddress,
			"--tls-cert-file=" + pki("webhook.crt"), "--tls-private-key-file=" + pki("webhook.key"),
		}, clients...)...); err != nil {
			return err
		}
	}
	if err := s.startController(); err != nil {
		return err
	}
	return s.await(ctx, "kubetenant-webhook", func(ctx context.Context) error {
		for _, r := range s.balancer.replicas {
			if err := r.check(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *webhookDeployment) startController() error {
	return s.run(webhookBinary, "kubetenant-controller.log", nil, "controller",
		"--kubeconfig="+s.kubeconfig("kubetenant-controller"), "--namespace="+webhookNamespace,
		"--metrics-listen=127.0.0.1:0", "--keystone-config="+s.o.TenancyConfig, "--flow-schemas")
}

// maxRestarts is the maximum number of restarts of the controller.
const maxRestarts = 5

// restartController restarts a failed controller, as the kubelet would, and reports whether it
// did. On a busy machine, the controller may lose its Lease and end.
func (s *webhookDeployment) restartController(e exit) bool {
	if !e.failed || !isController(e.child) || s.restarts == maxRestarts {
		return false
	}
	s.restarts++
	return s.startController() == nil
}

// generate issues the certificates and generates the manifests. It writes the files that
// kube-apiserver reads, and returns all generated files.
func (s *webhookDeployment) generate(ctx context.Context) (files map[string][]byte, err error) {
	pki := filepath.Join(s.dir, "pki")
	service, client := pkix.Name{CommonName: "kubetenant-webhook"}, pkix.Name{CommonName: clientName}
	if err := s.ca.issueFiles(pki, "webhook", service, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	if err := s.ca.issueFiles(pki, "webhook-client", client, x509.ExtKeyUsageClientAuth); err != nil {
		return nil, err
	}
	if s.balancer, err = newBalancer(ctx, s.o.Replicas); err != nil {
		return nil, err
	}
	o := s.manifestOptions()
	if files, err = webhookmanifests.Generate(o); err != nil {
		return nil, err
	}
	s.installed = maps.Clone(files)
	delete(s.installed, "values.yaml")
	return files, manifests.Write(o.Directory, "control-plane", files)
}

func (s *webhookDeployment) manifestOptions() webhookmanifests.Options {
	pki := func(name string) string { return filepath.Join(s.dir, "pki", name) }
	return webhookmanifests.Options{
		Config:            s.o.TenancyConfig,
		Image:             "none (the service runs outside the cluster)",
		Namespace:         webhookNamespace,
		External:          true,
		URL:               "https://" + s.balancer.address,
		ClientCA:          pki("ca.crt"),
		ServingCA:         pki("ca.crt"),
		Directory:         filepath.Join(s.dir, "webhook"),
		ClientCertificate: pki("webhook-client.crt"),
		ClientKey:         pki("webhook-client.key"),
		Authorizers:       s.o.Authorizers,
		FlowSchemas:       true,
	}
}
