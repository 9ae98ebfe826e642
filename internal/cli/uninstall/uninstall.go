// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes kubetenant from a cluster. A server without kubetenant ignores the
// boundary and the limits of bindings. Therefore, bindings that would grant more rights are deleted
// before the servers change. Each step determines the remaining work from the cluster, so the
// command can be stopped after any step and run again.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/kube"
)

// Clients are the clients of one user of a cluster.
type Clients struct {
	Kube     kube.Interface
	Objects  dynamic.Interface
	Metadata metadata.Interface
}

// NewClients returns the clients of a configuration.
func NewClients(config *rest.Config) (c Clients, err error) {
	if c.Kube, err = kube.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Objects, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.Metadata, err = metadata.NewForConfig(config)
	return c, err
}

// Options configures [Run]. Admin, Manager, Look and Say are required.
type Options struct {
	// Admin are the clients of the cluster's admin. Manager are the clients of
	// [tenant.ManagerUser]. Only this user may write managed objects while a server of kubetenant
	// runs.
	Admin, Manager Clients
	// CheckServers reports which servers run kubetenant.
	CheckServers func(context.Context) (*Servers, error)
	// ServiceNamespaces are the namespaces in which the webhook service may run.
	ServiceNamespaces []string

	// DryRun reports the changes without making them.
	DryRun bool
	// Force continues in each of these cases:
	//   - sources of credentials are configured, or replicas have different configurations
	//   - Tenants are being deleted
	//   - a binding of kube-apiserver grants more rights to tenants' callers
	//   - a server cannot be reached
	//   - it is unknown whether a server calls the webhook service
	Force bool
	// Yes confirms every question. KeepBindings retains RoleBindings that callers of several
	// tenants share, or that have an invalid expiration.
	Yes, KeepBindings bool
	// Wait waits until no server runs kubetenant. If false, Run returns before the wait.
	Wait bool
	// PollInterval is the time between two checks of the cluster. Defaults to 1s.
	PollInterval time.Duration

	// Confirm requests a confirmation. If nil, a question without Yes is an error.
	Confirm func(question string) (bool, error)
	// Printf prints a line.
	Printf func(format string, args ...any)
}

var (
	// ErrRefused reports that the command stopped before an unsafe step. The message contains the
	// remedy.
	ErrRefused = errors.New("refused")
	// ErrFailed reports that some objects could not be changed. They were printed.
	ErrFailed = errors.New("some objects could not be changed (see above): fix the cause and run the command again")
	// ErrUnread reports that some objects could not be read. The message or a printed line names
	// them.
	ErrUnread = errors.New("the command cannot read all of the cluster: no further changes were made")
)

// run is one run of the command.
type run struct {
	*Options
	servers *Servers
	// publishers are the namespaces in which the servers publish their configuration.
	publishers []string
	owners     *owners
	// hidden reports whether kube-apiserver may still call the webhook service although no response
	// proves it.
	hidden bool
	// finishing reports whether only labels of namespaces remain. Owners are then unknown, and
	// steps 1 to 4 are complete.
	finishing bool
	failed    []string
}

// Run removes kubetenant. Its error wraps [ErrRefused], [ErrFailed] or [ErrUnread], or names the
// objects that could not be read.
func Run(ctx context.Context, o *Options) error {
	if o.PollInterval == 0 {
		o.PollInterval = time.Second
	}
	r := &run{Options: o}
	err := r.all(ctx)
	if len(r.failed) > 0 {
		r.Printf("Failed:")
		for _, text := range r.failed {
			r.Printf("  %s", text)
		}
		if err == nil {
			err = ErrFailed
		}
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w: %s", ErrUnread, err.Error()) // a denied change is ErrFailed
	}
	return err
}

// all runs all steps.
func (r *run) all(ctx context.Context) error {
	if err := r.begin(ctx); err != nil || r.servers == nil {
		return err
	}
	if !r.finishing {
		if err := r.sources(ctx); err != nil {
			return err
		}
		if err := r.deleteBindings(ctx); err != nil {
			return err
		}
	}
	if changed, err := r.changeServers(ctx); err != nil || !changed {
		return err
	}
	if err := r.checkUnreachable(); err != nil {
		return err
	}
	if err := r.remove(ctx); err != nil {
		return err
	}
	if !r.DryRun {
		r.Printf("kubetenant is removed. The labels pod-security.kubernetes.io/* of namespaces, the objects from " +
			"templates, and the copies of published objects remain.")
	}
	return nil
}

// begin checks the servers. It does not set r.servers if the cluster contains no object of
// kubetenant.
func (r *run) begin(ctx context.Context) error {
	if err := r.checkCaller(ctx); err != nil {
		return err
	}
	servers, err := r.CheckServers(ctx)
	if err != nil {
		return err
	}
	if servers.Mode == installation.Gateway {
		return fmt.Errorf("%w: this is the address of a gateway: use a kubeconfig of the cluster itself", ErrRefused)
	}
	for _, problem := range servers.Unreachable {
		r.Printf("warning: the server %s: check it yourself", problem)
	}
	r.publishers = r.publishersOf(servers)
	if r.owners, err = r.readOwners(ctx); err != nil {
		return err
	}
	defined, published, err := r.installed(ctx)
	if err != nil {
		return err
	}
	if !defined && published == nil && !servers.Running() && len(r.owners.byNamespace) == 0 {
		r.Printf("kubetenant has left nothing in this cluster")
		return nil
	}
	r.finishing = !defined && published != nil && !servers.Running() &&
		published.GetAnnotations()[progressAnnotation] == onlyNamespaces
	r.servers = servers
	if r.hidden, err = r.isHidden(ctx); err != nil {
		return err
	}
	if err := r.checkForeign(ctx); err != nil {
		return err
	}
	return r.checkEnding(ctx)
}

// deleteBindings deletes the bindings that grant more rights without kubetenant. It also removes the
// finalizers that otherwise only a server of kubetenant removes.
func (r *run) deleteBindings(ctx context.Context) error {
	return r.inOrder(ctx, r.clusterRoleBindings, r.roleBindings, r.finalizers)
}

// inOrder runs steps that depend on the previous ones.
func (r *run) inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if len(r.failed) > 0 {
			return ErrFailed
		}
	}
	return nil
}

// confirm requests a confirmation, unless Yes or DryRun is set.
func (r *run) confirm(question string) (bool, error) {
	switch {
	case r.Yes, r.DryRun:
		return true, nil
	case r.Confirm == nil:
		return false, fmt.Errorf("%s There is no terminal to answer: use --yes", question)
	}
	return r.Confirm(question)
}

// do prints a change and makes it, unless this is a dry run. It ignores a missing object.
func (r *run) do(ctx context.Context, change func(context.Context) error, format string, args ...any) {
	r.Printf("  "+format, args...)
	if r.DryRun {
		return
	}
	if err := change(ctx); err != nil && !apierrors.IsNotFound(err) {
		r.fail(err, format, args...)
	}
}

// fail records a failed change. Failures are printed at the end.
func (r *run) fail(err error, format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf("%s: %v", fmt.Sprintf(format, args...), err))
}

// pause waits until the next check of the cluster.
func (r *run) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.PollInterval):
		return nil
	}
}

// step prints the title of a step.
func (r *run) step(n int, title string) {
	if r.DryRun {
		title += " (dry run)"
	}
	r.Printf("Step %d of 6: %s", n, title)
}
