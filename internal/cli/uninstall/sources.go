// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/tenant"
)

// sources returns an error if a running server accepts credentials of tenants, unless Force is
// set.
func (r *run) sources(ctx context.Context) error {
	r.step(1, "check that no server accepts credentials of tenants")
	r.Printf(
		"  this command cannot see other issuers of certificates with O=tenant:<id>, and such certificates are valid " +
			"until they expire",
	)
	if !r.servers.Running() && !r.hidden {
		r.Printf("  no server runs kubetenant, so its sources no longer apply")
		return nil
	}
	namespaces := r.publishers
	if r.hidden {
		namespaces = r.ServiceNamespaces
	}
	p, err := cluster.PublishedConfiguration(ctx, r.Admin.Kube.CoreV1(), namespaces...)
	if err != nil {
		return r.unlessForced(fmt.Errorf("the configuration of the servers cannot be read, so their sources of "+
			"credentials are unknown: %w", err))
	}
	if err := r.checkReplicas(ctx, p); err != nil {
		return err
	}
	configured := sourcesOfTenants(&p.Settings)
	if len(configured) == 0 {
		return nil
	}
	return r.unlessForced(fmt.Errorf("%w: the servers accept credentials of tenants: first remove these from the "+
		"configuration: %s", ErrRefused, strings.Join(configured, ", ")))
}

// checkReplicas returns an error if a replica runs another configuration than the published one,
// because the replica may accept credentials of tenants. It ignores replicas whose Pod was
// deleted, which the published configuration may still list.
func (r *run) checkReplicas(ctx context.Context, p *configv1alpha1.Published) error {
	var others []string
	for _, replica := range p.Replicas {
		if replica.Hash != p.Hash {
			others = append(others, replica.Name)
		}
	}
	if len(others) > 0 && r.servers.Mode == installation.Webhook {
		hosts, err := r.serviceHosts(ctx)
		if err != nil {
			return err
		}
		others = slices.DeleteFunc(others, func(name string) bool { return !hosts[name] })
	}
	if len(others) == 0 {
		return nil
	}
	return r.unlessForced(fmt.Errorf("%w: these servers have a different configuration than the published one: wait "+
		"until they have loaded it, or use --force if they have stopped: %s", ErrRefused, shortList(others)))
}

// serviceHosts returns the names that Pods in the namespaces of the service may publish as the
// names of replicas. These are the name of the Pod, its host name, and the name of its node (if
// the Pod uses the host network).
func (r *run) serviceHosts(ctx context.Context) (map[string]bool, error) {
	hosts := map[string]bool{}
	for _, namespace := range r.ServiceNamespaces {
		err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return r.Admin.Kube.CoreV1().Pods(namespace).List(ctx, opts)
		}, func(pod *corev1.Pod) {
			hosts[pod.Name], hosts[pod.Spec.Hostname], hosts[pod.Spec.NodeName] = true, true, true
		})
		if err != nil {
			return nil, fmt.Errorf("list the Pods in namespace %s: %w", namespace, err)
		}
	}
	return hosts, nil
}

// publishersOf returns the namespaces in which the servers publish their configuration. A
// configuration in another namespace may be outdated.
func (r *run) publishersOf(servers *Servers) []string {
	switch {
	case servers.Mode == installation.CompiledIn:
		return []string{metav1.NamespaceSystem}
	case servers.Running():
		return r.ServiceNamespaces
	}
	return append(slices.Clone(r.ServiceNamespaces), metav1.NamespaceSystem)
}

// unlessForced returns a problem. With Force or DryRun, it prints the problem and returns nil.
func (r *run) unlessForced(problem error) error {
	switch {
	case r.Force:
		r.Printf("  warning (--force): %v", problem)
	case r.DryRun:
		r.Printf("  without --force, the command would stop here: %v", problem)
	default:
		return fmt.Errorf("%w (use --force to continue)", problem)
	}
	return nil
}

// sourcesOfTenants returns the configured sources that accept credentials of tenants. It omits
// sources for service accounts, because the names of service accounts are unique in the cluster
// and their Pods continue to run.
func sourcesOfTenants(s *configv1alpha1.Settings) (all []string) {
	for i := range s.Authentication.Sources {
		source := &s.Authentication.Sources[i]
		onlySystem := len(source.Tenants) == 1 && source.Tenants[0] == tenant.System().String()
		if source.ServiceAccount == nil && !onlySystem {
			all = append(all, fmt.Sprintf("authentication.sources %q", source.Name))
		}
	}
	if s.Authorization.Subject.FromGroups {
		all = append(all, "authorization.subject.fromGroups")
	}
	return all
}
