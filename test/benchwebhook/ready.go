// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// Size of a large cluster.
const (
	manyNamespaces = 10_000
	manyBindings   = 100_000
	writers        = 32
)

func admin(s *localserver.Server) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(config)
}

func makeTenants(ctx context.Context, s *localserver.Server) error {
	client, err := admin(s)
	if err != nil {
		return err
	}
	for _, name := range []string{"acme", "globex"} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name + "--web", Labels: map[string]string{tenant.Label: name}},
		}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// startToReady measures how long a replica needs to start in a cluster with many namespaces and
// bindings.
func startToReady(ctx context.Context, bin string, s *localserver.Server) error {
	client, err := admin(s)
	if err != nil {
		return err
	}
	// The webhook configurations are deleted, because they would slow down the creation of the
	// objects, which is not measured.
	hooks := client.AdmissionregistrationV1()
	if err := errors.Join(hooks.MutatingWebhookConfigurations().Delete(ctx, "kubetenant", metav1.DeleteOptions{}),
		hooks.ValidatingWebhookConfigurations().Delete(ctx, "kubetenant", metav1.DeleteOptions{})); err != nil {
		return err
	}
	if err := each(ctx, manyNamespaces, func(ctx context.Context, i int) error {
		id := fmt.Sprintf("t%d", i/10)
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s--%d", id, i%10), Labels: map[string]string{tenant.Label: id}},
		}
		_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := each(ctx, manyBindings, func(ctx context.Context, i int) error {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprintf("b%d", i),
				Namespace: fmt.Sprintf("t%d--%d", i/100%1000, i%10),
				Labels:    map[string]string{tenant.Label: fmt.Sprintf("t%d", i/100%1000)},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: fmt.Sprintf("user-%d", i)}},
		}
		_, err := client.RbacV1().RoleBindings(b.Namespace).Create(ctx, b, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	began := time.Now()
	t, err := start(ctx, "service", func(address string) *exec.Cmd { return serve(bin, s, address) })
	if err != nil {
		return err
	}
	defer t.stop()
	for !ready(ctx, metricsAddress(strings.TrimPrefix(t.base, "https://"))) {
		time.Sleep(10 * time.Millisecond)
		if time.Since(began) > time.Minute {
			return errors.New("the service was not ready in a minute")
		}
	}
	after := time.Since(began)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.process.Process.Pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmRSS") {
			fmt.Print(line)
		}
	}
	fmt.Printf("ready after %v with %d namespaces and %d bindings\n",
		after.Round(10*time.Millisecond), manyNamespaces, manyBindings)
	return nil
}

func ready(ctx context.Context, address string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// each calls do n times, with at most [writers] concurrent calls. It ignores objects that already
// exist.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error {
			if err := do(ctx, i); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}
