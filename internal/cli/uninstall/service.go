// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// accounts returns the names of the service accounts in an installation. Their roles and bindings
// have the same names.
func accounts() []string {
	return []string{
		"kubetenant-webhook", "kubetenant-controller", "kubetenant-certificates", "kubetenant-gateway-reader",
		"kubetenant-gateway-impersonator",
	}
}

// programs returns the names of the workloads in the namespace of the webhook service.
func programs() []string {
	return []string{"kubetenant-webhook", "kubetenant-controller", "kubetenant-certificates"}
}

// service returns the objects of the webhook service in the order of their deletion. The workloads
// are first.
func service() []namedObjects {
	apps := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
	}
	monitoring := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: resource}
	}
	return []namedObjects{
		{apps("statefulsets"), programs()[:1]}, // used for audit streams or usage records; its PersistentVolumeClaims remain
		{apps("deployments"), programs()},
		{core("services"), programs()},
		{schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, programs()},
		{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, programs()},
		{monitoring("servicemonitors"), programs()},
		{monitoring("prometheusrules"), programs()},
		{rbac("rolebindings"), accounts()},
		{rbac("roles"), accounts()},
		{core("serviceaccounts"), accounts()},
		{core("secrets"), []string{"kubetenant-webhook-config", "kubetenant-webhook-ca", "kubetenant-webhook-tls"}},
		{core("configmaps"), []string{"kubetenant-webhook-client-ca", "kubetenant-webhook-ca", "kubetenant-swept"}},
		{
			schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			[]string{
				leaseName,
				"kubetenant-certificates",
			},
		},
	}
}

// serviceNamespaces returns the namespaces that may contain objects of the service. It omits
// namespaces that a tenant owns.
func (r *run) serviceNamespaces(ctx context.Context) ([]string, error) {
	list, err := r.Admin.Objects.Resource(core("configmaps")).List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + configv1alpha1.PublishedName})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps %s: %w", configv1alpha1.PublishedName, err)
	}
	all := slices.Clone(r.ServiceNamespaces)
	for i := range list.Items {
		all = append(all, list.Items[i].GetNamespace())
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(namespace string) bool {
		_, owned := r.owners.byNamespace[namespace] // the objects in it belong to the tenant
		return owned || namespace == metav1.NamespaceSystem
	})
	return append(all, metav1.NamespaceSystem), nil // last, because it contains the recorded progress
}

// service deletes the objects of the webhook service. It waits until the Pods have stopped,
// because the controller in a Pod would create objects again.
func (r *run) service(ctx context.Context, namespaces []string) error {
	for _, namespace := range namespaces {
		for i, objects := range service() {
			if err := r.deleteNamed(ctx, namespace, objects); err != nil {
				return err
			}
			if i == 1 { // the workloads are deleted, so no new Pods are created
				if err := r.awaitPods(ctx, namespace); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// awaitPods waits until a namespace contains no Pod of the webhook service.
func (r *run) awaitPods(ctx context.Context, namespace string) error {
	const looks = 300
	for check := 0; !r.DryRun; check++ {
		list, err := r.Admin.Kube.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (" + strings.Join(programs(), ",") + ")"})
		if err != nil {
			return fmt.Errorf("list the Pods of the service: %w", err)
		}
		remaining := make([]string, 0, len(list.Items))
		for i := range list.Items {
			remaining = append(remaining, namespace+"/"+list.Items[i].Name)
		}
		switch {
		case len(remaining) == 0:
			return nil
		case check == looks:
			return fmt.Errorf("%w: these Pods of the service are still running: delete them, and run the command again: %s",
				ErrRefused, shortList(remaining))
		case check == 0:
			r.Printf("  waiting until %d Pods of the service in namespace %s have stopped", len(remaining), namespace)
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}
