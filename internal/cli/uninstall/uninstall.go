// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes kubetenant from a cluster. A server without kubetenant has no tenant
// boundary, and ignores the limits of bindings. Therefore, bindings that would grant more access
// are deleted before the servers are changed. Each step reads the remaining work from the cluster,
// so the command can be stopped after any step and run again.
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

// Clients contains the clients of one user of a cluster.
type Clients struct {
	Kube     kube.Interface
	Objects  dynamic.Interface
	Metadata metadata.Interface
}

// NewClients returns clients with the given configuration.
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

// Options configures [Run]. Admin, Manager, CheckServers and Printf are required.
type Options struct {
	// Admin contains the clients of the cluster's admin. Manager contains the clients of
	// [tenant.ManagerUser]. While a server runs kubetenant, only this user may write managed
	// objects.
	Admin, Manager Clients
	// CheckServers determines which servers run kubetenant.
	CheckServers func(context.Context) (*Servers, error)
	// ServiceNamespaces contains the namespaces in which the webhook service may run.
	ServiceNamespaces []string

	// DryRun prints the changes without making them.
	DryRun bool
	// Force continues in each of these cases:
	//   - sources of credentials are configured, or replicas have different configurations
	//   - Tenants are being deleted
	//   - a binding of kube-apiserver grants more rights to tenants' callers
	//   - a server cannot be reached
	//   - it is unknown whether a server calls the webhook service
	Force bool
	// Yes answers every question with yes. KeepBindings retains RoleBindings to names that callers
	// of several tenants share, and RoleBindings with an invalid expiration.
	Yes, KeepBindings bool
	// Wait specifies that Run waits until no server runs kubetenant. If false, Run returns, and
	// must be called again.
	Wait bool
	// PollInterval is the time between two checks of the cluster. Defaults to 1s.
	PollInterval time.Duration

	// Confirm shows a question to the admin. If nil, a question is an error, unless Yes is set.
	Confirm func(question string) (bool, error)
	// Printf prints a line.
	Printf func(format string, args ...any)
}

var (
	// ErrRefused reports that the command stopped before an unsafe step. The wrapping error
	// contains the reason.
	ErrRefused = errors.New("refused")
	// ErrFailed reports that some objects could not be changed. Run has printed these objects.
	ErrFailed = errors.New("some objects could not be changed (see above): fix the cause and run the command again")
	// ErrUnread reports that some objects could not be read. The error or a printed line names
	// these objects.
	ErrUnread = errors.New("the command cannot read all of the cluster: no further changes were made")
)

// run is one execution of [Run].
type run struct {
	*Options
	servers *Servers
	// publishers contains the namespaces in which the servers publish their configuration.
	publishers []string
	owners     *owners
	// hidden reports whether kube-apiserver may still call the webhook service, although no
	// response shows this.
	hidden bool
	// finishing reports whether only the labels of namespaces remain to be removed. The owners are
	// then unknown, and steps 1 to 4 are complete.
	finishing bool
	failed    []string
}

// Run removes kubetenant from a cluster. The error may wrap [ErrRefused], [ErrFailed] or
// [ErrUnread].
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
		err = fmt.Errorf("%w: %s", ErrUnread, err.Error()) // a denied change has the error ErrFailed
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

// begin checks the caller and the servers. If the cluster contains no objects of kubetenant, begin
// does not set r.servers.
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

// deleteBindings deletes the bindings that grant more access on a server without kubetenant. It
// also removes the finalizers that only a server with kubetenant would otherwise remove.
func (r *run) deleteBindings(ctx context.Context) error {
	return r.inOrder(ctx, r.clusterRoleBindings, r.roleBindings, r.finalizers)
}

// inOrder runs the steps in order, until a step returns an error or a change fails.
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

// confirm requests a confirmation from the admin, unless Yes or DryRun is set.
func (r *run) confirm(question string) (bool, error) {
	switch {
	case r.Yes, r.DryRun:
		return true, nil
	case r.Confirm == nil:
		return false, fmt.Errorf("%s There is no terminal to answer: use --yes", question)
	}
	return r.Confirm(question)
}

// do prints a change and, unless this is a dry run, makes the change. It ignores an error about a
// missing object.
func (r *run) do(ctx context.Context, change func(context.Context) error, format string, args ...any) {
	r.Printf("  "+format, args...)
	if r.DryRun {
		return
	}
	if err := change(ctx); err != nil && !apierrors.IsNotFound(err) {
		r.fail(err, format, args...)
	}
}

// fail records a failed change. [Run] prints the failures at the end.
func (r *run) fail(err error, format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf("%s: %v", fmt.Sprintf(format, args...), err))
}

// pause waits until the time of the next check.
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
