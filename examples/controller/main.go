// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command controller keeps a directory of the tenants: docs/controllers.md.
package main

import (
	"context"
	"flag"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// contact is the annotation of a Tenant that names the team to call.
const contact = "example.com/contact"

// directory writes a ConfigMap for each Tenant. People on call, dashboards and alert routing read
// the ConfigMaps. They need no right to read Tenants.
type directory struct {
	client.Client
	namespace string
}

// Reconcile writes the entry of one Tenant. It deletes the entry after the Tenant. If the controller
// is not running, the garbage collector deletes the entry.
func (d *directory) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	entry := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: request.Name}}
	var t v1alpha1.Tenant
	if err := d.Get(ctx, request.NamespacedName, &t); apierrors.IsNotFound(err) {
		return ctrl.Result{}, client.IgnoreNotFound(d.Delete(ctx, entry))
	} else if err != nil {
		return ctrl.Result{}, err
	}
	result, err := controllerutil.CreateOrUpdate(ctx, d.Client, entry, func() error {
		entry.Data = describe(&t)
		return controllerutil.SetControllerReference(&t, entry, d.Scheme(), controllerutil.WithBlockOwnerDeletion(false))
	})
	if err == nil && result != controllerutil.OperationResultNone {
		ctrl.LoggerFrom(ctx).Info("Wrote the entry", "result", result, "state", entry.Data["state"])
	}
	return ctrl.Result{}, err
}

// describe returns the entry of a Tenant.
func describe(t *v1alpha1.Tenant) map[string]string {
	entry := map[string]string{
		"tenant":     t.Spec.ID,
		"contact":    t.Annotations[contact],
		"namespaces": strconv.Itoa(int(t.Status.Namespaces.Total)),
		"access":     reason(t, v1alpha1.ConditionSuspended), // Open, ReadOnly or Closed
		"state":      reason(t, v1alpha1.ConditionPrepared),  // Prepared, Preparing or Failed, for example
	}
	if !t.DeletionTimestamp.IsZero() {
		entry["state"] = "Deleting"
	}
	return entry
}

// reason returns the reason of a condition, or Unknown if the server has not written it yet.
func reason(t *v1alpha1.Tenant, condition string) string {
	if c := meta.FindStatusCondition(t.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return "Unknown"
}

func run(ctx context.Context, namespace string, options ctrl.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	options.Scheme = runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme)
	if err := kinds.AddToScheme(options.Scheme); err != nil {
		return err
	}
	// The controller may read the ConfigMaps of its own namespace only.
	own := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
	options.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: own}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(&v1alpha1.Tenant{}).Owns(&corev1.ConfigMap{}).
		Complete(&directory{Client: manager.GetClient(), namespace: namespace})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

func main() {
	namespace := flag.String("namespace", "tenant-directory", "namespace of the ConfigMaps and of the leader's Lease")
	metrics := flag.String("metrics-bind-address", "0", "address of the metrics, such as :8080; 0 disables them")
	elect := flag.Bool("leader-elect", true, "elect one of several replicas")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	err := run(ctrl.SetupSignalHandler(), *namespace, ctrl.Options{
		LeaderElection:                *elect,
		LeaderElectionID:              "tenant-directory",
		LeaderElectionNamespace:       *namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: *metrics},
	})
	if err != nil {
		klog.ErrorS(err, "The controller failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
