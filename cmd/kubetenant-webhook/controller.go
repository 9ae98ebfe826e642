package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/cmd/internal/leader"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/controller"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/service"
)

func newControllerCommand() *cobra.Command {
	var c cluster
	var listen string
	var own, quotas bool
	var names []string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Label older objects, count quotas and keep the webhooks' certificates, in one replica at a time",
		Args:  cobra.NoArgs,
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&listen, "metrics-listen", ":8080", "address of the health checks, without TLS")
	cmd.Flags().BoolVar(&quotas, "quotas", true, "count what the objects of tenants use")
	cmd.Flags().BoolVar(&own, "certificates", false, "make and renew the service's certificates, in Secrets of the namespace, and tell the webhook configurations of their authorities")
	cmd.Flags().StringSliceVar(&names, "name", nil, "DNS names and addresses besides the Service's by which kube-apiserver reaches the service, for --certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := c.config()
		if err != nil {
			return err
		}
		config.QPS, config.Burst = 50, 100
		side, err := serveHealth(cmd.Context(), listen)
		if err != nil {
			return err
		}
		defer func() { _ = side.Close() }()
		work, err := controller.NewTasks(config, c.namespace)
		if err != nil {
			return err
		}
		tasks := []leader.Task{work.Sweep}
		if quotas {
			tasks = append(tasks, work.Quotas)
		}
		if own {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			tasks = append(tasks, certificates.New(client, c.namespace, names).Run)
		}
		return leader.Run(cmd.Context(), config, c.namespace, tasks...)
	}
	return cmd
}

// serveHealth serves /livez and its like.
func serveHealth(ctx context.Context, address string) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	mux := http.NewServeMux()
	checks := []healthz.HealthChecker{healthz.PingHealthz}
	service.InstallHealth(mux, checks, checks)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return server, nil
}
