// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command benchtenants measures a large cluster with 10,000 tenants and 30,000 namespaces on a real
// server. It measures:
//
//   - the time until all namespaces are prepared
//   - the time until a new namespace is prepared, without other changes, and while changes of
//     Tenants and of a template affect 10,000 other namespaces
//   - the cost of a restart
//   - the load of the server while nothing changes, with and without tenancy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// Size of the cluster.
const (
	perTenant = 3 // namespaces of a tenant
	parallel  = 32
	probes    = 200 // number of new namespaces that are measured
	quiet     = time.Minute
	busy      = "busy--" // a part of the names of the measured namespaces
)

// bench contains the server under test, and clients with the credentials of its admin.
type bench struct {
	tenants, changed int
	published        bool // measure only the publication of objects
	server           *localserver.Server
	kube             *kubernetes.Clientset
	dynamic          dynamic.Interface
}

func main() {
	b := &bench{}
	bin := flag.String("bin", "", "directory of the built commands")
	flag.IntVar(&b.tenants, "tenants", 10000, "how many tenants, with 3 namespaces each")
	flag.IntVar(&b.changed, "changed", 3334, "in how many of them something changes")
	flag.BoolVar(&b.published, "publications", false, "measure only the publication of objects")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx, *bin)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtenants:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, bin string) (err error) {
	if bin == "" {
		return errors.New("--bin is required")
	}
	dir, err := os.MkdirTemp("", "benchtenants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	start := func(more ...string) error {
		b.server, err = localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), dir,
			append([]string{"--workload-controllers=false"}, more...)...)
		if err == nil {
			err = b.connect()
		}
		return err
	}
	defer func() {
		if b.server != nil {
			err = errors.Join(err, b.server.Stop())
		}
	}()
	if err := start(); err != nil {
		return err
	}
	if err := b.first(ctx); err != nil {
		return err
	}
	if b.published {
		return b.publications(ctx)
	}
	if err := b.latencies(ctx, "a new namespace, nothing else to do"); err != nil {
		return err
	}
	if err := b.change(ctx, "a change of Tenants in", b.lessAdmins); err != nil {
		return err
	}
	if err := b.template(ctx, "a"); err != nil {
		return err
	}
	if err := b.change(ctx, "a template into", b.nameTemplate); err != nil {
		return err
	}
	if err := b.change(ctx, "a change of that template in", func(ctx context.Context) error {
		return b.template(ctx, "b")
	}); err != nil {
		return err
	}
	return b.restarts(ctx, start)
}

func (b *bench) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", b.server.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	config.QPS = -1
	if b.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	b.kube, err = kubernetes.NewForConfig(config)
	return err
}

// first creates the tenants with their namespaces, and waits until all namespaces are prepared.
func (b *bench) first(ctx context.Context) error {
	wrote, err := b.written(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	all, group := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for t := range b.tenants {
		all.Go(func() error { return b.tenant(group, t) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	filled := time.Since(began)
	if err := b.await(ctx, b.tenants*perTenant, func(ns *corev1.Namespace) bool {
		return ns.Annotations[tenant.PreparedAnnotation] != ""
	}); err != nil {
		return err
	}
	fmt.Printf("%d tenants with %d namespaces, made in %s, ", b.tenants, b.tenants*perTenant, filled.Round(time.Second))
	return b.tellWrites(ctx, began, wrote)
}

// tenant creates a Tenant with two admins, and its namespaces.
func (b *bench) tenant(ctx context.Context, t int) error {
	name := fmt.Sprintf("t%d", t)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"id": name,
			"admins": []any{
				map[string]any{"kind": "User", "name": "a-" + name}, map[string]any{"kind": "User", "name": "b-" + name},
			},
		},
	}}
	if _, err := b.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).Create(ctx,
		u, metav1.CreateOptions{}); err != nil {
		return err
	}
	for n := range perTenant {
		if err := b.namespace(ctx, fmt.Sprintf("%s--%d", name, n), name); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) namespace(ctx context.Context, name, owner string) error {
	_, err := b.kube.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}}},
		metav1.CreateOptions{})
	return err
}

// tellWrites prints how long it took until everything was prepared, and the number of writes by the
// server's controllers.
func (b *bench) tellWrites(ctx context.Context, began time.Time, before float64) error {
	took := time.Since(began)
	after, err := b.written(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("all prepared after %s: %.0f writes, %.0f a second\n",
		took.Round(time.Second), after-before, (after-before)/took.Seconds())
	return nil
}

// await waits until matches returns true for n namespaces.
func (b *bench) await(ctx context.Context, n int, matches func(*corev1.Namespace) bool) error {
	for {
		list, err := b.kube.CoreV1().Namespaces().List(ctx,
			metav1.ListOptions{LabelSelector: tenant.Label, ResourceVersion: "0"})
		if err != nil {
			return err
		}
		have := 0
		for i := range list.Items {
			if matches(&list.Items[i]) {
				have++
			}
		}
		if have >= n {
			return nil
		}
		time.Sleep(time.Second)
	}
}
