// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// identityLeases selects the identity leases of kube-apiservers (k8s.io/kubernetes
	// pkg/controlplane, v1.37.1).
	identityLeases = "apiserver.kubernetes.io/identity=kube-apiserver"
	// webhookPods selects the Pods of the webhook service by the label that the chart sets.
	webhookPods = "app.kubernetes.io/name=kubetenant-webhook"
	// leaseDuration is the maximum age of the Lease of a running server. Servers renew the Lease
	// every 10 seconds.
	leaseDuration = 2 * time.Minute
)

// liveReplicas returns the names of the running servers: the hosts of the kube-apiservers, or the
// ready Pods of the webhook service. It returns no names if no server can be found.
func liveReplicas(ctx context.Context, k kube.Interface, mode installation.Mode) (names []string, err error) {
	if mode == installation.CompiledIn {
		leases, err := k.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
			metav1.ListOptions{LabelSelector: identityLeases})
		if err != nil {
			return nil, err
		}
		var newest time.Time // the clock of this machine may differ from the servers' clocks
		for _, lease := range leases.Items {
			if renewed := lease.Spec.RenewTime; renewed != nil && renewed.After(newest) {
				newest = renewed.Time
			}
		}
		for _, lease := range leases.Items {
			renewed := lease.Spec.RenewTime
			host := lease.Labels[corev1.LabelHostname]
			if host != "" && renewed != nil && newest.Sub(renewed.Time) < leaseDuration {
				names = append(names, host)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	pods, err := k.CoreV1().Pods(installation.WebhookNamespace).List(ctx, metav1.ListOptions{LabelSelector: webhookPods})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready {
			names = append(names, pod.Name)
		}
	}
	return names, nil
}

// addDefinitions adds the CustomResourceDefinitions that are missing or unusable on the server.
func (r *Report) addDefinitions(ctx context.Context, d dynamic.Interface) {
	problems, err := cluster.Definitions(ctx, d)
	if err != nil {
		r.unknown(PartDefinitions)
	}
	for i := range problems {
		r.MissingDefinitions = append(r.MissingDefinitions, problems[i].Name())
		r.problem("The %s. Apply all definitions of this release, see docs/install.md.", &problems[i])
	}
}

// addTenants adds the Tenants that are not ready. If the caller may not list all Tenants, it adds
// only the caller's own Tenant, and only if that Tenant is not ready.
func (r *Report) addTenants(ctx context.Context, c *client.Cluster, d dynamic.Interface) {
	objects := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants))
	each := func(selector string) error {
		pages := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, o)
		}))
		return pages.EachListItem(ctx, metav1.ListOptions{FieldSelector: selector}, func(o runtime.Object) error {
			if u, ok := o.(*unstructured.Unstructured); ok {
				r.addTenant(u)
			}
			return nil
		})
	}
	err := each("")
	if apierrors.IsForbidden(err) { // with the webhook service, a tenant's caller may list only its own Tenant by name
		caller, whoErr := c.WhoAmI(ctx)
		if whoErr == nil {
			if id, parseErr := tenant.Parse(caller.Tenant); parseErr == nil && !id.IsSystem() {
				err = each(fields.OneTermEqualSelector(metav1.ObjectNameField, id.ObjectName()).String())
			}
		}
	}
	if err != nil {
		r.unknown(PartTenants)
	}
	if r.NotReadyTotal > 0 {
		r.problem("Tenants that are not ready: %d.", r.NotReadyTotal)
	}
}

// addTenant adds a Tenant if it is not ready. It does not report a suspension, which is a separate
// condition, because an admin suspends a tenant intentionally.
func (r *Report) addTenant(u *unstructured.Unstructured) {
	shown := Tenant{Name: u.GetName(), Reason: "Unknown", Message: "no server has reported its condition"}
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		shown.Message = err.Error()
	} else if ready := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		if ready.Status == metav1.ConditionTrue {
			return
		}
		shown.Reason, shown.Message = ready.Reason, ready.Message
	}
	r.NotReadyTotal++
	if len(r.NotReady) < maxTenants {
		r.NotReady = append(r.NotReady, shown)
	}
}
