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

// Other binaries that make build creates in the same directory.
const (
	vanillaBinary = "vanilla-kube-apiserver"
	webhookBinary = "kubetenant-webhook"
)

const (
	webhookNamespace = "kubetenant-system"
	// clientName is the user name of kube-apiserver at the service. It has no other use.
	clientName = "kubetenant-webhook-client"
	// startWithin limits the duration of the start of each process, and stopWithin that of the end
	// of all.
	startWithin = 3 * time.Minute
	stopWithin  = 20 * time.Second
	// settled is the number of identical results, 50 ms apart, after which the controller is done.
	// It publishes once per second.
	settled = 30
	// tokenLifetime is the lifetime of the service's own tokens, which are renewed at each start.
	tokenLifetime = 365 * 24 * time.Hour
)

// webhookConfig is the TenancyConfiguration of a new directory with --webhook. kube-apiserver
// itself authenticates certificates and service accounts.
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

// shape runs the webhook deployment mode: upstream's server, the service and its controller.
type shape struct {
	*cluster
	o        *Options
	etcdURL  string
	listener net.Listener // on kube-apiserver's port
	flags    []string     // flags of kube-apiserver
	admin    *rest.Config
	balancer *balancer
	// installed contains the files that were generated at the start.
	installed map[string][]byte
	children  []*exec.Cmd           // the running processes
	revivals  int                   // number of restarts of the controller
	further   []*localserver.Server // clusters behind the gateway
	ended     chan ended
}

// ended is a process that has ended.
type ended struct {
	child  *exec.Cmd
	failed bool // it returned an error or was killed
	err    error
}

// isServer reports whether a process is kube-apiserver.
func isServer(child *exec.Cmd) bool { return strings.HasSuffix(child.Path, vanillaBinary) }

// isController reports whether a process is the service's controller.
func isController(child *exec.Cmd) bool { return slices.Contains(child.Args, "controller") }

// runUntil runs the webhook deployment mode until ctx ends or kube-apiserver ends.
func (s *shape) runUntil(ctx context.Context, out io.Writer, started time.Time) (err error) {
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
	s.ended = make(chan ended, 3+s.o.Replicas)
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig("admin")); err != nil {
		return err
	}
	s.admin.QPS, s.admin.Burst = 200, 400
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := stopWithin
	defer func() { err = errors.Join(err, s.stop(patience), s.stopFurther()) }()
	if err := s.start(ctx); err != nil {
		patience = 0 // a server whose start is aborted waits for itself
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.announce(out, time.Since(started))
	anew := make(chan os.Signal, 1)
	signal.Notify(anew, syscall.SIGUSR1)
	defer signal.Stop(anew)
	for {
		select {
		case e := <-s.ended:
			s.forget(e)
			if isServer(e.child) {
				return e.err
			}
			_, _ = fmt.Fprintln(out, e.err) // kube-apiserver continues without it
			s.revive(e)
		case <-anew:
			started := time.Now()
			if err := s.sameInstalled(ctx); err != nil {
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
func (s *shape) forget(e ended) {
	s.children = slices.DeleteFunc(s.children, func(child *exec.Cmd) bool { return child == e.child })
}

// sameInstalled returns an error if the service cannot continue with the current configuration. The
// configuration is invalid, or it needs other manifests.
func (s *shape) sameInstalled(ctx context.Context) error {
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

// restartService ends the service and its controller, and starts them with the current
// configuration.
func (s *shape) restartService(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	for _, child := range s.children {
		switch {
		case isServer(child):
		case isController(child):
			_ = child.Process.Signal(syscall.SIGTERM) // it releases its Lease; it may have ended
		default:
			_ = child.Process.Kill() // it would continue for a while
		}
	}
	for len(s.children) > 1 {
		e := <-s.ended
		if s.forget(e); isServer(e.child) {
			return e.err
		}
	}
	if err := s.startService(ctx, client); err != nil {
		return err
	}
	if err := s.awaitSweep(ctx, client); err != nil || !s.o.Gateway {
		return err
	}
	return s.startGateway(ctx)
}

// start starts each process as soon as its dependencies are ready.
func (s *shape) start(ctx context.Context) error {
	files, err := s.generate(ctx)
	if err != nil {
		return err
	}
	// The processes cannot inherit a listener, so the port is free for a moment.
	if err := s.listener.Close(); err != nil {
		return err
	}
	own := strings.Fields(string(files["control-plane/flags.txt"]))
	environment := strings.Fields(string(files["control-plane/environment.txt"]))
	if s.o.AdmissionOnly { // the server is not configured
		own, environment = []string{"--authorization-mode=" + strings.Join(s.o.Behind, ",")}, nil
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
	if err := s.awaitSweep(ctx, client); err != nil {
		return err
	}
	if s.o.Gateway {
		if err := s.startFurther(ctx); err != nil {
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

// awaitServer waits until kube-apiserver responds. It does not wait for readyz, which waits for
// hooks that may need the service.
func (s *shape) awaitServer(ctx context.Context, client kubernetes.Interface) error {
	return s.await(ctx, "kube-apiserver", func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	})
}

// awaitPolicies waits until kube-apiserver enforces the policies. The last policy rejects the
// tenant label outside of the tenants' namespaces for every caller, before validating webhooks are
// called.
func (s *shape) awaitPolicies(ctx context.Context, client kubernetes.Interface) error {
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

// awaitSweep waits until the controller has labeled all older objects.
func (s *shape) awaitSweep(ctx context.Context, client kubernetes.Interface) error {
	said, same := "", 0
	return s.await(ctx, "the backfill", func(ctx context.Context) error {
		swept, err := client.CoreV1().ConfigMaps(webhookNamespace).Get(ctx, state.SweptName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := swept.Data[state.SweptKey]; text != said || text == "{}" {
			said, same = text, 0
		}
		if same++; same < settled {
			return errors.New("it is still running")
		}
		return nil
	})
}

// startService starts the service and its controller, each as its own service account.
func (s *shape) startService(ctx context.Context, client kubernetes.Interface) error {
	// A result of the previous controller must not be used for the next one, which may have
	// webhooks at another address.
	err := client.CoreV1().ConfigMaps(webhookNamespace).Delete(ctx, state.SweptName, metav1.DeleteOptions{})
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
			"--listen=" + r.address, "--metrics-listen=" + r.side,
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

func (s *shape) startController() error {
	return s.run(webhookBinary, "kubetenant-controller.log", nil, "controller",
		"--kubeconfig="+s.kubeconfig("kubetenant-controller"), "--namespace="+webhookNamespace,
		"--metrics-listen=127.0.0.1:0", "--keystone-config="+s.o.TenancyConfig, "--flow-schemas")
}

// maxRevivals limits how often the controller is restarted.
const maxRevivals = 5

// revive restarts the controller if it failed, as the kubelet does, and reports whether it did. On
// a busy machine, the controller may lose its Lease and end.
func (s *shape) revive(e ended) bool {
	if !e.failed || !isController(e.child) || s.revivals == maxRevivals {
		return false
	}
	s.revivals++
	return s.startController() == nil
}

// generate writes the configuration of kube-apiserver. It returns this configuration and the
// objects of the cluster.
func (s *shape) generate(ctx context.Context) (files map[string][]byte, err error) {
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

func (s *shape) manifestOptions() webhookmanifests.Options {
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
		Authorizers:       s.o.Behind,
		FlowSchemas:       true,
	}
}
