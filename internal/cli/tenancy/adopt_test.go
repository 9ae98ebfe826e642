// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// daemonSetCluster is a cluster that serves DaemonSets. It is necessary because the discovery of
// the fake client returns no preferred resources.
type daemonSetCluster struct{ kubernetes.Interface }

func (s daemonSetCluster) Discovery() discovery.DiscoveryInterfaces {
	return daemonSetDiscovery{s.Interface.Discovery()}
}

type daemonSetDiscovery struct{ discovery.DiscoveryInterfaces }

func (daemonSetDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{
		GroupVersion: "apps/v1",
		APIResources: []metav1.APIResource{
			{
				Name:       "daemonsets",
				Kind:       "DaemonSet",
				Namespaced: true,
				Verbs:      metav1.Verbs{"list", "patch"},
			},
		},
	}}, nil
}

func daemonSet(name string, controller any) *unstructured.Unstructured {
	metadata := map[string]any{"namespace": "old", "name": name}
	if controller != nil {
		metadata["ownerReferences"] = []any{controller}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1",
		"kind":       "DaemonSet",
		"metadata":   metadata,
		"spec":       map[string]any{"selector": map[string]any{}, "template": map[string]any{}},
	}}
}

// adoption returns an Adoption for a cluster with the namespace old. This namespace contains a
// DaemonSet that a user created, and another that a controller created.
func adoption(t *testing.T, warned *[]string) *tenancy.Adoption {
	t.Helper()
	k := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{tenant.Label: "globex"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	yes := map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Agent",
		"name":       "a",
		"uid":        "1",
		"controller": true,
	}
	return &tenancy.Adoption{
		Tenant:  tenanttest.ID(t, "acme"),
		Kube:    daemonSetCluster{k},
		Config:  config,
		Printf:  func(string, ...any) {},
		Objects: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), daemonSet("ours", nil), daemonSet("made", yes)),
		Warnf:   func(format string, args ...any) { *warned = append(*warned, fmt.Sprintf(format, args...)) },
	}
}

// TestAdopt checks that all objects are labeled. Adopt warns of the objects that the tenant could
// not have created, except those that a controller created.
func TestAdopt(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	for _, dryRun := range []bool{true, false} {
		var warned []string
		a := adoption(t, &warned)
		a.DryRun = dryRun
		ns, err := a.Check(ctx, "old")
		if err != nil {
			t.Fatal(err)
		}
		refused, err := a.Adopt(ctx, ns)
		if all := strings.Join(warned, "\n"); err != nil || refused != 1 ||
			!strings.Contains(all, "daemonsets.apps old/ours: ") || strings.Contains(all, "old/made") {
			t.Errorf("dry run %t: %d, %v, %s", dryRun, refused, err, all)
		}
		want := map[bool]string{true: "", false: "acme"}[dryRun]
		for _, name := range []string{"ours", "made"} {
			obj, err := a.Objects.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}).
				Namespace("old").Get(ctx, name, metav1.GetOptions{})
			if err != nil || obj.GetLabels()[tenant.Label] != want {
				t.Errorf("dry run %t: %s is labelled %v, %v", dryRun, name, obj.GetLabels(), err)
			}
		}
		if got, err := a.Kube.CoreV1().Namespaces().Get(ctx, "old", metav1.GetOptions{}); err != nil ||
			got.Labels[tenant.Label] != want {
			t.Errorf("dry run %t: the namespace is labelled %v, %v", dryRun, got.Labels, err)
		}
	}
}

// TestAdoptTriesAgain checks that a request is retried if the server has not yet observed the
// label, or has not yet updated the usage of the quota. A request with another error is not
// retried.
func TestAdoptTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		tried   int
	}{
		"label not observed": {apierrors.NewForbidden(schema.GroupResource{}, "", nil), 3},
		"usage not updated":  {apierrors.NewTooManyRequests("", 0), 3},
		"other error":        {apierrors.NewInternalError(errors.New("broken")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			var warned []string
			a, tried := adoption(t, &warned), 0
			a.Objects.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*",
				func(action clienttesting.Action) (bool, runtime.Object, error) {
					if action.(clienttesting.PatchAction).GetName() != "ours" {
						return false, nil, nil
					}
					tried++
					return tried < 3, nil, c.refusal
				})
			ns, err := a.Check(t.Context(), "old")
			if err != nil {
				t.Fatal(err)
			}
			if _, err = a.Adopt(t.Context(), ns); (err == nil) != (c.tried == 3) || tried != c.tried {
				t.Errorf("%v after %d tries", err, tried)
			}
		})
	}
}

// TestCheckAdoption checks that a system namespace, a namespace of another tenant and a missing
// namespace cannot be adopted.
func TestCheckAdoption(t *testing.T) {
	var warned []string
	a := adoption(t, &warned)
	for _, name := range []string{"theirs", "kube-system"} {
		if _, err := a.Check(t.Context(), name); !errors.Is(err, tenancy.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Check(t.Context(), "missing"); err == nil {
		t.Error("no error for a missing namespace")
	}
}
