// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/gateway"
	"github.com/kubetenant/kubetenant/internal/serving"
)

// serveOptions contains the values of the flags of serve.
type serveOptions struct {
	config, listen, metrics string
	proxies                 []string
	memory                  resource.QuantityValue
	serving                 serving.Serving
}

func newServeCommand() *cobra.Command {
	o := serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve --config FILE --tls-cert-file FILE --tls-private-key-file FILE",
		Short: "Serve the clusters of a configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "",
		"path of the TenancyConfiguration (required). Its gateway section names the clusters. The gateway reloads it, and "+
			"the files that it names, when they change.")
	f.StringVar(&o.listen, "listen", ":6443", "listen address for callers")
	f.StringSliceVar(&o.proxies, "proxy-protocol-from", nil,
		"addresses or CIDRs of load balancers that send the PROXY protocol. No other client may be able to connect from "+
			"them. The gateway closes a connection from them without a PROXY header. "+
			"PROXY headers from other addresses are never trusted.")
	f.StringVar(&o.metrics, "metrics-listen", ":8080", "listen address of /metrics and the health checks, without TLS")
	f.StringVar(&o.serving.CertFile, "tls-cert-file", "", "path of the serving certificate (required); reloaded when "+
		"it changes")
	f.StringVar(&o.serving.KeyFile, "tls-private-key-file", "", "path of the private key of the serving certificate "+
		"(required); reloaded when it changes")
	o.memory.Quantity = resource.MustParse("1Gi")
	f.Var(&o.memory, "memory-limit",
		"memory limit of the container. If the variable GOMEMLIMIT is not set, it is set to 90 percent of this limit.")
	for _, name := range []string{"config", "tls-cert-file", "tls-private-key-file"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

// heapFloor is the size of an unused allocation, in bytes. The heap of a gateway is only a few MB.
// Without heapFloor, the heap would be collected ten times per second under load, which would use a
// tenth of the CPU. The allocation is never accessed and uses no physical memory. It allows more
// allocations between two collections, but counts toward the memory limit.
const heapFloor = 64 << 20

// newHeapFloor returns an allocation of heapFloor bytes, which the caller must keep alive. It
// returns nil if the memory limit is too low.
func newHeapFloor() []byte {
	if debug.SetMemoryLimit(-1) < 8*heapFloor {
		return nil
	}
	return make([]byte, heapFloor)
}

func (o *serveOptions) run(ctx context.Context) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(o.memory.Value() / 10 * 9)
	}
	defer runtime.KeepAlive(newHeapFloor())
	config, err := configv1alpha1.Load(o.config)
	if err != nil {
		return err
	}
	proxies, err := serving.ParsePrefixes(o.proxies)
	if err != nil {
		return fmt.Errorf("--proxy-protocol-from: %w", err)
	}
	o.serving.Drain = config.Service.Drain.Duration
	// background outlives ctx, because the gateway still handles requests while it shuts down.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	registry := metrics.NewKubeRegistry()
	registry.RawMustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	tracer, stopTracing, err := serving.Tracer(background, config.Service.Tracing, "kubetenant-gateway")
	if err != nil {
		return err
	}
	defer stopTracing()
	g, err := gateway.Open(background, o.config, gateway.Options{Register: registry.Register, Tracer: tracer})
	if err != nil {
		return err
	}
	defer g.Close()
	registry.CustomMustRegister(g.Collector())
	o.serving.ClientCA = g.ClientCA()
	server, err := serving.NewServer(o.serving)
	if err != nil {
		return err
	}
	live := []healthz.HealthChecker{healthz.PingHealthz}
	metricsServer, err := serving.ServeMetrics(ctx, o.metrics, registry, live, []healthz.HealthChecker{
		healthz.PingHealthz, server.Draining(), server.CertificateValid(), healthz.NamedCheck("clusters", g.CheckReady),
	})
	if err != nil {
		return err
	}
	defer func() { _ = metricsServer.Close() }()
	if server.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen); err != nil {
		return err
	}
	if len(proxies) > 0 {
		server.Listener = serving.BehindProxies(server.Listener, proxies)
	}
	server.StopBackground = g.EndStreams
	klog.FromContext(ctx).Info("Serving", "address", server.Listener.Addr(), "clusters", g.Clusters())
	return server.Serve(ctx, g)
}
