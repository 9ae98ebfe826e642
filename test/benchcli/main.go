// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command benchcli measures kubectl tenant on a large cluster with 1,000 tenants, 10,000
// namespaces and 100,000 bindings. For comparison, it also measures kubectl, which lists the same
// bindings.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// Size of the cluster.
const (
	tenants    = 1000
	perTenant  = 10 // namespaces of a tenant
	perSpace   = 10 // bindings in a namespace
	parallel   = 48
	runs       = 5
	halfwayOut = tenants / 2
)

func main() {
	bin := flag.String("bin", "", "directory of the built commands")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *bin)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchcli:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string) (err error) {
	if bin == "" {
		return errors.New("--bin is required")
	}
	dir, err := os.MkdirTemp("", "benchcli-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), dir, "--workload-controllers=false")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	began := time.Now()
	if err := fill(ctx, server.Kubeconfig("admin")); err != nil {
		return err
	}
	fmt.Printf("%d tenants, %d namespaces, %d bindings, made in %s\n\n",
		tenants, tenants*perTenant, tenants*perTenant*perSpace, time.Since(began).Round(time.Second))
	fmt.Printf("%-70s %8s %8s %8s\n", "command", "median", "worst", "memory")
	name := fmt.Sprintf("t%d", halfwayOut)
	for _, c := range [][]string{
		{"kubectl-tenant", "list-privileges", "--user", "user-" + name + "-1", "--tenant", name},
		{"kubectl-tenant", "list-privileges", "--tenant", name},
		{"kubectl-tenant", "who-can", "delete", "pods", "-n", name + "--3"},
		{"kubectl-tenant", "who-can", "delete", "pods"},
		{"kubectl-tenant", "who-can-become", "system:serviceaccount:" + name + "--3:default"},
		{"kubectl-tenant", "tenants"},
		{"kubectl", "get", "rolebindings", "-A", "-o", "name"},
	} {
		if err := measure(ctx, bin, server.Kubeconfig("admin"), c); err != nil {
			return err
		}
	}
	return nil
}

// fill creates the tenants' namespaces and bindings.
func fill(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for t := range tenants {
		for n := range perTenant {
			all.Go(func() error { return createNamespace(ctx, k, fmt.Sprintf("t%d", t), n) })
		}
	}
	return all.Wait()
}

// createNamespace creates one namespace with its bindings. Six of the ten bindings are to users,
// two to groups, and two to service accounts.
func createNamespace(ctx context.Context, k kubernetes.Interface, owner string, n int) error {
	ns := fmt.Sprintf("%s--%d", owner, n)
	if _, err := k.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{tenant.Label: owner}}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range perSpace {
		subject := rbacv1.Subject{
			APIGroup: rbacv1.GroupName,
			Kind:     rbacv1.UserKind,
			Name:     fmt.Sprintf("user-%s-%d", owner, i),
		}
		switch i % 4 {
		case 2:
			subject.Kind = rbacv1.GroupKind
		case 3:
			subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: fmt.Sprintf("robot-%d", i)}
		}
		role := []string{"view", "edit", "admin"}[i%3]
		_, err := k.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("binding-%d", i)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// measure runs a command several times, and prints its median and maximum duration and its
// maximum memory.
func measure(ctx context.Context, bin, kubeconfig string, command []string) error {
	var took []time.Duration
	memory := int64(0)
	for range runs {
		// #nosec G204 -- the commands that were built
		cmd := exec.CommandContext(ctx, filepath.Join(bin, command[0]), append(command[1:], "--kubeconfig", kubeconfig)...)
		cmd.Stderr = os.Stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", command, err)
		}
		took = append(took, time.Since(began))
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			memory = max(memory, usage.Maxrss) // KiB
		}
	}
	slices.Sort(took)
	text := ""
	for _, word := range command {
		text += word + " "
	}
	fmt.Printf("%-70s %7.2fs %7.2fs %5d MB\n", text, took[runs/2].Seconds(), took[runs-1].Seconds(), memory/1024)
	return nil
}
