// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// gcPercent is the default of the environment variable GOGC. It avoids most garbage collections of
// small heaps. A request leaves 10 KB of garbage, and a replica for a small cluster uses 20 MB.
const gcPercent = 400

// minMemory is the memory that a replica for a small cluster needs, in bytes.
const minMemory = 128 << 20

// readTimeout is the maximum time for reading a review.
const readTimeout = 30 * time.Second

// serveOptions contains the values of the flags of serve.
type serveOptions struct {
	cluster
	config, listen, metrics string
	memory                  resource.QuantityValue
	serving                 serving.Serving
	admissionOnly           bool
	admissionClients        []net.IPNet
}

func newServeCommand() *cobra.Command {
	o := serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve --config FILE --tls-cert-file FILE --tls-private-key-file FILE --client-ca-file FILE",
		Short: "Serve the webhooks of kube-apiserver",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "",
		"path of the TenancyConfiguration (required). The service reloads it, and the files that it names, when they "+
			"change. Restart the service after a change to the section service or to whether RBAC and grants are read.")
	f.StringVar(&o.listen, "listen", ":9443", "listen address of the webhooks")
	f.StringVar(&o.metrics, "metrics-listen", ":8080", "listen address of /metrics and the health checks, without TLS")
	f.StringVar(&o.serving.CertFile, "tls-cert-file", "", "path of the serving certificate (required); reloaded when "+
		"it changes")
	f.StringVar(&o.serving.KeyFile, "tls-private-key-file", "", "path of the private key of the serving certificate "+
		"(required); reloaded when it changes")
	f.StringVar(&o.serving.ClientCAFile, "client-ca-file", "",
		"path of the certificate authorities of kube-apiserver's client certificates; reloaded when it changes. Required "+
			"unless --admission-only or --insecure-any-client is set.")
	f.StringSliceVar(&o.serving.ClientNames, "client-name", nil,
		"allowed common names of client certificates. If empty, every certificate that the authorities signed is allowed.")
	o.memory.Quantity = resource.MustParse("1Gi")
	f.Var(&o.memory, "memory-limit",
		"memory limit of the container. Concurrent requests use at most half of it, further requests wait. Unless the "+
			"variable GOMEMLIMIT is set, it is set to 90 percent of this limit.")
	f.BoolVar(&o.admissionOnly, "admission-only", false,
		"serve only admission, to every client: for clusters whose kube-apiserver presents no client certificate. Quotas "+
			"are then not reserved, but counted as objects are observed.")
	f.IPNetSliceVar(&o.admissionClients, "admission-clients", nil,
		"with --admission-only: networks that kube-apiserver connects from (for example 10.0.0.0/28). Other clients get "+
			"404. If empty, every client that reaches the listener can learn the owner and the quota usage of a namespace.")
	anyClient := f.Bool("insecure-any-client", false, "accept every client that reaches the listener: only for benchmarks")
	for _, name := range []string{"config", "tls-cert-file", "tls-private-key-file"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.memory.Value() < minMemory {
			return errors.New("--memory-limit must be at least 128Mi")
		}
		if len(o.admissionClients) > 0 && !o.admissionOnly {
			return errors.New("--admission-clients requires --admission-only")
		}
		if o.serving.ClientCAFile == "" && !*anyClient && !o.admissionOnly {
			return errors.New("--client-ca-file is required: without it, every client could learn the rights of all users")
		}
		return nil
	}
	return cmd
}

// tuneMemory sets the GC percentage and the memory limit, unless GOGC or GOMEMLIMIT sets them.
func (o *serveOptions) tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(o.memory.Value() / 10 * 9)
	}
}

func (o *serveOptions) run(ctx context.Context) error {
	o.tuneMemory()
	settings, err := loadChecked(ctx, o.config)
	if err != nil {
		return err
	}
	o.serving.Drain, o.serving.ReadTimeout = settings.Service.Drain.Duration, readTimeout
	server, err := serving.NewServer(o.serving)
	if err != nil {
		return err
	}
	config, err := o.cluster.config()
	if err != nil {
		return err
	}
	// background outlives ctx, because the server still handles requests while it shuts down.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	registry := metrics.NewKubeRegistry()
	clusterState, err := state.NewForWebhooks(config, &settings.Settings, o.namespace, registry.Register)
	if err != nil {
		return err
	}
	var anonymous *service.Anonymous
	if o.admissionOnly {
		clusterState.WithoutReservations()
		anonymous = &service.Anonymous{From: o.admissionClients}
	}
	tenancy, err := stack.Open(background, o.config, clusterState.Server)
	if err != nil {
		return err
	}
	if err := clusterState.Run(background, tenancy); err != nil {
		return err
	}
	defer clusterState.StartUsage(background, tenancy).Stop(background)
	server.Ready = clusterState.Ready
	registry.RawMustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.RawMustRegister(serving.WebhookMetrics(server, clusterState.Decides)...)
	tracer, stopTracing, err := serving.Tracer(background, settings.Service.Tracing, "kubetenant-webhook")
	if err != nil {
		return err
	}
	defer stopTracing()
	if o.admissionOnly { // kube-apiserver sends no audit events to this service
		settings.Audit = nil
	}
	audit, endAudit, err := openAudit(settings.Audit, tenancy, clusterState.Ready, registry.Register)
	if err != nil {
		return err
	}
	defer endAudit()
	live := []healthz.HealthChecker{healthz.PingHealthz}
	ready := append([]healthz.HealthChecker{healthz.PingHealthz, server.Draining(), server.CertificateValid()},
		clusterState.Checks()...)
	handler, err := service.New(service.Options{
		Stack:              tenancy,
		CheckConfiguration: o.configurationCheck(),
		Limits:             limitsOf(&settings.Service.Limits, o.memory.Value()/2),
		OwnerOf:            clusterState.OwnerOf,
		Live:               live,
		Ready:              ready,
		Register:           registry.Register,
		Tracer:             tracer,
		Audit:              audit,
		Anonymous:          anonymous,
	})
	if err != nil {
		return err
	}
	metricsServer, err := serving.ServeMetrics(ctx, o.metrics, registry, live, ready)
	if err != nil {
		return err
	}
	defer func() { _ = metricsServer.Close() }()
	if server.Listener, err = net.Listen("tcp", o.listen); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Serving", "webhooks", server.Listener.Addr(), "mode", settings.Authorization.Mode)
	return server.Serve(ctx, handler)
}

// configurationCheck returns the function for [service.Options.CheckConfiguration]. It returns nil
// if any client can send reviews.
func (o *serveOptions) configurationCheck() func(context.Context, map[string][]byte) ([]string, error) {
	if o.admissionOnly && len(o.admissionClients) == 0 {
		return nil
	}
	return checkConfiguration
}

// loadChecked loads and checks a configuration. It also checks sources that the service does not
// use.
func loadChecked(ctx context.Context, path string) (*configv1alpha1.TenancyConfiguration, error) {
	settings, err := configv1alpha1.Load(path)
	if err != nil {
		return nil, err
	}
	return settings, stack.Check(ctx, path)
}

func limitsOf(l *configv1alpha1.Limits, memory int64) service.Limits {
	return service.Limits{
		Concurrent: *l.Concurrent,
		Queued:     *l.Queued,
		Timeout:    l.Timeout.Duration,
		BodyBytes:  *l.BodyBytes,
		Memory:     memory,
	}
}
