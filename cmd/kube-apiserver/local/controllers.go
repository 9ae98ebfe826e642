package local

import (
	"context"
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
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app"
)

// controllers are the ones of kube-controller-manager without which namespaces are not usable: they
// delete what is in a deleted namespace, make the default service account and the root CA ConfigMap
// in a new one, and fill the roles admin, edit and view.
func controllers(ca []byte, workloads bool) app.Hook {
	return app.Hook{Name: "kubetenant-local-controllers", Start: func(h genericapiserver.PostStartHookContext) error {
		if err := startControllers(h, h.LoopbackClientConfig, ca); err != nil || !workloads {
			return err
		}
		return startWorkloads(h, h.LoopbackClientConfig)
	}}
}

// startControllers starts them for the server that config reaches.
func startControllers(ctx context.Context, config *rest.Config, ca []byte) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := rest.CopyConfig(config)
	objects.ContentType = "" // metadata of custom resources has no protobuf form
	meta, err := metadata.NewForConfig(objects)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	core := factory.Core().V1()
	namespaces := namespace.NewNamespaceController(ctx, client, meta, client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	accounts, err := serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccountcontroller.ServiceAccountsControllerOptions{ServiceAccounts: []corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}})
	if err != nil {
		return err
	}
	roots, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, ca)
	if err != nil {
		return err
	}
	roles := clusterroleaggregation.NewClusterRoleAggregation(factory.Rbac().V1().ClusterRoles(), client.RbacV1())
	factory.Start(ctx.Done())
	go namespaces.Run(ctx, 2)
	go accounts.Run(ctx, 1)
	go roots.Run(ctx, 1)
	go roles.Run(ctx, 1)
	return nil
}
