// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
)

// certificateValidity is the lifetime of a certificate if its request does not specify one.
const certificateValidity = 24 * time.Hour

// controllers returns a hook that starts some controllers of kube-controller-manager. They delete
// the objects in a deleted namespace, and create the default service account and the root CA
// ConfigMap in a new namespace. They also aggregate the ClusterRoles admin, edit and view, and sign
// client certificates with the authority in the directory pki.
func (o *Options) controllers(pki string) app.Hook {
	return app.Hook{Name: "kubetenant-local-controllers", Start: func(h genericapiserver.PostStartHookContext) error {
		if err := startControllers(h, h.LoopbackClientConfig, pki); err != nil || !o.Workloads {
			return err
		}
		return startWorkloads(h, h.LoopbackClientConfig)
	}}
}

// startControllers starts the controllers described at [Options.controllers], except the
// workload controllers. The controllers use the server in config.
func startControllers(ctx context.Context, config *rest.Config, pki string) error {
	certificate, key := filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key")
	ca, err := os.ReadFile(certificate) // #nosec G304 -- in the operator's directory
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// The namespace controller uses the name that it has in kube-controller-manager. Only this
	// name may delete the objects that kubetenant manages in a namespace.
	emptying, err := kubernetes.NewForConfig(impersonate(config, "namespace-controller"))
	if err != nil {
		return err
	}
	objects := impersonate(config, "namespace-controller")
	objects.ContentType = "" // metadata of custom resources cannot be encoded as protobuf
	meta, err := metadata.NewForConfig(objects)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	core := factory.Core().V1()
	discover := client.Discovery().ServerPreferredNamespacedResources
	namespaces := namespace.NewNamespaceController(
		ctx, emptying, meta, discover, core.Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	accounts, err := serviceaccountcontroller.NewServiceAccountsController(
		klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccountcontroller.ServiceAccountsControllerOptions{
			ServiceAccounts: []corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}},
		})
	if err != nil {
		return err
	}
	roots, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, ca)
	if err != nil {
		return err
	}
	signing, err := signer.NewKubeAPIServerClientCSRSigningController(ctx, client,
		factory.Certificates().V1().CertificateSigningRequests(), certificate, key, certificateValidity)
	if err != nil {
		return err
	}
	roles := clusterroleaggregation.NewClusterRoleAggregation(factory.Rbac().V1().ClusterRoles(), client.RbacV1())
	factory.Start(ctx.Done())
	go namespaces.Run(ctx, 2)
	go accounts.Run(ctx, 1)
	go roots.Run(ctx, 1)
	go roles.Run(ctx, 1)
	go signing.Run(ctx, 1)
	return nil
}
