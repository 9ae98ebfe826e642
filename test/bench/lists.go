// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// listedTenants is the number of tenants. Each tenant has objectsOfTenant objects in its only
	// namespace.
	listedTenants   = 100
	objectsOfTenant = 1000
	// writers is the number of concurrent writes.
	writers = 64
)

// runLists measures a list over all namespaces by a tenant that owns 1 % of 100,000 objects. For
// comparison, it measures a list of the same objects with an explicit label selector on
// upstream's server. Both servers run at the same time and receive requests alternately.
func runLists(
	ctx context.Context, out io.Writer, dir string, etcd *etcdProcess, servers []server, lists int,
) (err error) {
	times := map[string][]float64{}
	calls := map[string]func() error{}
	for _, s := range servers {
		p, _, startErr := s.start(ctx, dir, etcd)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		admin, err := clientOf(p.kubeconfig)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(os.Stderr, "%s: making %d objects ...\n", s.name, listedTenants*objectsOfTenant)
		if err := seed(ctx, admin); err != nil {
			return err
		}
		client, options := admin, metav1.ListOptions{LabelSelector: tenant.Label + "=acme"}
		if s.name != vanilla {
			if client, err = s.tenantOf(p, etcd); err != nil {
				return err
			}
			options = metav1.ListOptions{}
		}
		calls[s.name] = func() error {
			list, err := client.CoreV1().ConfigMaps("").List(ctx, options)
			if err == nil && len(list.Items) < objectsOfTenant {
				err = fmt.Errorf("%s: %d objects", s.name, len(list.Items))
			}
			return err
		}
		if err := awaitList(ctx, calls[s.name]); err != nil {
			return err
		}
	}
	for range lists {
		for _, s := range servers {
			began := time.Now()
			if err := calls[s.name](); err != nil {
				return err
			}
			times[s.name] = append(times[s.name], time.Since(began).Seconds())
		}
	}
	var ratio []float64
	for i := range lists {
		ratio = append(ratio, times[servers[1].name][i]/times[vanilla][i])
	}
	low, high := interval(ratio)
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%d lists of each server\tVANILLA\tKUBETENANT\tRATIO\t95%% INTERVAL\n", lists)
	_, _ = fmt.Fprintf(table, "a tenant's 1 %% of 100,000 objects\t%s\t%s\t%.3f\t%.3f to %.3f\n",
		formatTime(median(times[vanilla])), formatTime(median(times[servers[1].name])), median(ratio), low, high)
	return table.Flush()
}

func clientOf(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(config)
}

// tenantOf returns a client that authenticates as acme's admin.
func (s server) tenantOf(p *process, etcd *etcdProcess) (*kubernetes.Clientset, error) {
	own, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(etcd.local.Kubeconfig("acme"))
	if err != nil {
		return nil, err
	}
	config.Clusters["local"].Server = own.Clusters["local"].Server
	path := p.kubeconfig + ".acme"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, err
	}
	return clientOf(path)
}

// seed creates the objects with the labels that the admission plugin would set, and a
// ClusterRoleBinding for tenant acme.
func seed(ctx context.Context, admin *kubernetes.Clientset) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range listedTenants {
		name := fmt.Sprintf("tenant%d", i)
		if i == 0 {
			name = "acme"
		}
		labels := map[string]string{tenant.Label: name}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "--web", Labels: labels}}
		if _, err := admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		for k := range objectsOfTenant {
			group.Go(func() error {
				o := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", k), Labels: labels},
					Data:       map[string]string{"key": "value"},
				}
				_, err := admin.CoreV1().ConfigMaps(ns.Name).Create(ctx, o, metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return admin.RbacV1().RESTClient().Post().Resource("clusterrolebindings").Body([]byte(
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"acme"},`+
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"tenant:acme"}]}`)).
		SetHeader("Content-Type", "application/json").Do(context.WithoutCancel(ctx)).Error()
}

// awaitList repeats the list until the server allows it, which requires the ClusterRoleBinding
// and the backfill. It then sends more lists to warm up the server.
func awaitList(ctx context.Context, list func() error) error {
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) &&
		ctx.Err() == nil; time.Sleep(time.Second) {
		if err = list(); err == nil {
			break
		}
	}
	for range 5 {
		err = errors.Join(err, list())
	}
	return err
}
