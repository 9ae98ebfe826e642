// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/internal/serving/leader"
	"github.com/kubetenant/kubetenant/internal/webhook/controller"
)

// leaderCommand is a command that does its work only in the replica that is the leader.
type leaderCommand struct {
	cluster
	name, listen string // the name of the Lease, and the listen address of metrics and health checks
}

func (f *leaderCommand) addFlags(cmd *cobra.Command) {
	f.cluster.addFlags(cmd)
	cmd.Flags().StringVar(&f.listen, "metrics-listen", ":8080",
		"listen address of /metrics and the health checks, without TLS")
}

// run runs the tasks while this process is the leader, and serves metrics and health checks.
func (f *leaderCommand) run(
	ctx context.Context, extra []metrics.Registerable, ready []healthz.HealthChecker, tasks ...leader.Task,
) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	var leads atomic.Bool
	registry := metrics.NewKubeRegistry()
	registry.RawMustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), serving.LeadingMetric(f.name, leads.Load))
	for _, m := range extra {
		if err := registry.Register(m); err != nil {
			return err
		}
	}
	live := []healthz.HealthChecker{healthz.PingHealthz}
	metricsServer, err := serving.ServeMetrics(ctx, f.listen, registry, live, append(ready, healthz.PingHealthz))
	if err != nil {
		return err
	}
	defer func() { _ = metricsServer.Close() }()
	return leader.Run(
		ctx,
		config,
		leader.Lease{Namespace: f.namespace, Name: f.name, LeadingChanged: leads.Store},
		tasks...)
}

func newControllerCommand() *cobra.Command {
	f := leaderCommand{name: "kubetenant-controller"}
	var quotas, flowSchemas bool
	system := []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Label existing objects, prepare namespaces and calculate quota usage (one replica is active)",
		Args:  cobra.NoArgs,
	}
	f.addFlags(cmd)
	cmd.Flags().StringSliceVar(&system, "system-namespaces", system,
		"namespaces that no tenant owns, regardless of their labels: the same list as authorization.systemNamespaces of "+
			"the configuration")
	published := "{}"
	cmd.Flags().StringVar(&published, "publication", published,
		"the section admission.publication of the configuration as JSON")
	keystoneConfig := ""
	cmd.Flags().StringVar(&keystoneConfig, "keystone-config", keystoneConfig,
		"path of the TenancyConfiguration. If one of its keystone sources has the section sync, the controller follows the "+
			"projects of this Keystone. The controller reloads the file when it changes")
	cmd.Flags().BoolVar(&quotas, "quotas", true, "count the resources that the objects of tenants use")
	cmd.Flags().BoolVar(&flowSchemas, "flow-schemas", false,
		"maintain FlowSchemas, so that API Priority and Fairness is fair to tenants. Each Tenant with spec.fairUse.level is "+
			"one flow, and other requests are one flow for each namespace")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := f.config()
		if err != nil {
			return err
		}
		config.QPS, config.Burst = 50, 100
		var rules configv1alpha1.PublicationRules
		decoder := json.NewDecoder(strings.NewReader(published))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&rules); err != nil {
			return fmt.Errorf("--publication: %w", err)
		}
		followed, err := followedSource(cmd.Context(), keystoneConfig)
		if err != nil {
			return fmt.Errorf("--keystone-config: %w", err)
		}
		work, err := controller.NewTasks(config, f.namespace, system, &rules, followed)
		if err != nil {
			return err
		}
		tasks := []leader.Task{work.Backfill, work.Provision, work.Retire, work.Report, work.Projects, work.Stored}
		if quotas {
			tasks = append(tasks, work.Quotas)
		}
		if flowSchemas {
			tasks = append(tasks, work.FlowSchemas)
		}
		unlabeled := controller.UnlabeledMetric()
		tasks = append(tasks, func(ctx context.Context) error {
			for ctx.Err() == nil {
				unlabeled.Set(float64(work.Unlabeled()))
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			return nil
		})
		// The controller receives no requests from clients. Its readiness only shows the problem to
		// operators.
		ready := healthz.NamedCheck("definitions", func(*http.Request) error { return work.Definitions() })
		return f.run(cmd.Context(), append(work.Metrics, unlabeled), []healthz.HealthChecker{ready}, tasks...)
	}
	return cmd
}

// followedSource returns a function that returns the Keystone source whose projects the controller
// synchronizes, or nil if there is none. The configuration at path is reloaded until ctx ends. If
// path is empty, the function always returns nil.
func followedSource(ctx context.Context, path string) (func() *configv1alpha1.Source, error) {
	if path == "" {
		return func() *configv1alpha1.Source { return nil }, nil
	}
	parse := func(data []byte) (*configv1alpha1.Source, error) {
		config, err := configv1alpha1.Decode(data)
		if err != nil {
			return nil, err
		}
		config.ResolvePaths(filepath.Dir(path))
		return config.SyncedKeystone(), nil
	}
	file, err := reload.Open(path, parse, func(path string, err error) {
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to reload the configuration, its last version applies", "path", path)
		}
	})
	if err != nil {
		return nil, err
	}
	go file.Run(ctx)
	return func() *configv1alpha1.Source { return *file.Load() }, nil
}

func newCertificatesCommand() *cobra.Command {
	f := leaderCommand{name: "kubetenant-certificates"}
	var names []string
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Create and renew the certificates of the service (one replica is active)",
		Long: `Creates and renews the certificates of the service in Secrets of the namespace, and
writes their certificate authorities into the webhook configurations.`,
		Args: cobra.NoArgs,
	}
	f.addFlags(cmd)
	cmd.Flags().StringSliceVar(&names, "name", nil,
		"additional DNS names and addresses, next to those of the Service, at which kube-apiserver reaches the service")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := f.config()
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		rotation := certificates.New(client, f.namespace, names)
		return f.run(cmd.Context(), []metrics.Registerable{rotation.Due}, nil, rotation.Run)
	}
	return cmd
}
