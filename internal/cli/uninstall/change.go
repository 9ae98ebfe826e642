// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// requiredChecks is the number of successive checks that must find no server that runs kubetenant.
// A load balancer may select another server for each check.
const requiredChecks = 3

// maxUnreachableChecks is the number of checks in which a server may be unreachable. After a
// server was stopped, the EndpointSlices contain its address for 15 more seconds.
const maxUnreachableChecks = 30

// changeServers waits until no server runs kubetenant. It then repeats the earlier steps, because
// a controller may have written objects in the meantime. It returns false if the admin must change
// the servers and run the command again.
func (r *run) changeServers(ctx context.Context) (changed bool, err error) {
	r.step(5, "change the servers")
	r.Printf("  if a gateway is in front of this cluster, point its clients to the cluster and stop the gateway")
	switch {
	case !r.servers.Running() && !r.hidden:
		r.Printf("  no server runs kubetenant")
		return true, r.confirmNone(ctx)
	case r.hidden:
		r.printInstructions()
		return true, r.unlessForced(fmt.Errorf("%w: it cannot be determined whether kube-apiserver still calls the webhook "+
			"service, because its mode is Shadow or unknown: change the servers first", ErrRefused))
	}
	r.printInstructions()
	switch {
	case r.DryRun:
		return true, nil
	case !r.Wait:
		r.Printf("  change the servers now, and run the command again afterwards")
		return false, nil
	}
	if err := r.awaitServers(ctx); err != nil {
		return false, err
	}
	r.Printf(
		"The servers have changed. Their controllers may have written bindings and finalizers again, so steps 2 to 4 " +
			"are repeated.",
	)
	return true, r.deleteBindings(ctx)
}

// isHidden reports whether kube-apiserver may still call the webhook service, although no response
// shows this. In mode Shadow, the service denies no requests, so its effect is not visible. If
// neither the admission webhooks nor the workload of the service exist, the service is not in use.
func (r *run) isHidden(ctx context.Context) (bool, error) {
	if r.servers.Running() {
		return false, nil
	}
	hasService, err := r.hasService(ctx)
	if err != nil || !hasService {
		return false, err
	}
	p, err := cluster.PublishedConfiguration(ctx, r.Admin.Kube.CoreV1(), r.ServiceNamespaces...)
	if err != nil {
		return true, nil //nolint:nilerr // its mode is unknown
	}
	return p.Settings.Gateway == nil && p.Settings.Authorization.Mode == configv1alpha1.ModeShadow, nil
}

// hasService reports whether the admission webhooks, or the Deployment or StatefulSet of the
// webhook service, exist.
func (r *run) hasService(ctx context.Context) (bool, error) {
	_, err := r.Admin.Objects.Resource(admission("validatingwebhookconfigurations")).Get(ctx, product, metav1.GetOptions{})
	for _, namespace := range r.ServiceNamespaces {
		if apierrors.IsNotFound(err) {
			_, err = r.Admin.Kube.AppsV1().Deployments(namespace).Get(ctx, programs()[0], metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			_, err = r.Admin.Kube.AppsV1().StatefulSets(namespace).Get(ctx, programs()[0], metav1.GetOptions{})
		}
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the webhook configuration and the workload of the service: %w", err)
	}
	return true, nil
}

// confirmNone checks the servers again. A load balancer may have routed the first check to the
// only server that was already changed.
func (r *run) confirmNone(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	return r.awaitServers(ctx)
}

// awaitServers waits until several successive checks find no server that runs kubetenant. It
// continues after an error, because a server does not respond while it restarts. Finally, it reads
// the owners of namespaces again.
func (r *run) awaitServers(ctx context.Context) error {
	lastStatus := ""
	unreachable := 0
	for clean := 0; clean < requiredChecks; {
		if err := r.pause(ctx); err != nil {
			return err
		}
		servers, err := r.CheckServers(ctx)
		now := ""
		switch {
		case err != nil:
			clean, now = 0, "waiting for the server: "+err.Error()
		case servers.Running():
			clean, now = 0, describeRunning(servers)
			r.servers = servers
		case len(servers.Unreachable) > 0 && unreachable < maxUnreachableChecks && !r.Force:
			clean, now = 0, "waiting for the server: "+strings.Join(servers.Unreachable, ", ")
			r.servers = servers
			unreachable = unreachable + 1
		default:
			clean++
			r.servers = servers
		}
		if now != "" && now != lastStatus {
			r.Printf("  %s", now)
			lastStatus = now
		}
	}
	if err := ctx.Err(); err != nil || r.finishing {
		return err
	}
	owners, err := r.readOwners(ctx) // the owners of namespaces may have changed
	if err == nil {
		r.owners = owners
	}
	return err
}

// checkUnreachable returns an error if a server did not respond to the last check, because this
// server may run kubetenant.
func (r *run) checkUnreachable() error {
	if len(r.servers.Unreachable) == 0 {
		return nil
	}
	return r.unlessForced(fmt.Errorf("%w: kubetenant may still run on a server that did not respond: %s", ErrRefused,
		strings.Join(r.servers.Unreachable, ", ")))
}

// describeRunning returns a message about the servers that still run kubetenant.
func describeRunning(s *Servers) string {
	switch {
	case len(s.With) > 0 && len(s.Without) > 0:
		return "danger: only some servers run kubetenant: tenants are not isolated at " +
			strings.Join(s.Without, ", ") +
			": change " + strings.Join(s.With, ", ")
	case len(s.With) > 0:
		return "waiting for " + strings.Join(s.With, ", ") + ", where kubetenant still runs"
	default:
		return "waiting for the server " + s.Leader + ", which holds the Lease kube-system/" + leaseName
	}
}

// printInstructions prints how the admin must change the servers.
func (r *run) printInstructions() {
	if len(r.servers.Without) > 0 {
		r.Printf("  %s", describeRunning(r.servers))
	}
	lines := []string{
		"kubetenant is compiled into the servers. On each machine of the control plane:",
		"  start the upstream kube-apiserver of the same version, with the same flags except --tenancy-config",
	}
	if r.servers.Mode == installation.Webhook || r.hidden {
		lines = []string{
			"kube-apiserver calls the webhook service. On each machine of the control plane:",
			"  in the --authorization-config file, remove the Webhook authorizer named kubetenant " +
				"(webhook-authorize.kubeconfig)",
			"  remove the flags --authentication-token-webhook-config-file, -version and -cache-ttl " +
				"(webhook-authenticate.kubeconfig)",
			"  remove --admission-control-config-file if its file contains only webhook-admit.kubeconfig and policies of " +
				"kubetenant",
			"Do not delete the service or its namespace yet: kube-apiserver denies all requests while it cannot reach the " +
				"service.",
			"Step 6 deletes the admission webhooks before the service.",
		}
	}
	for _, line := range lines {
		r.Printf("  %s", line)
	}
}
