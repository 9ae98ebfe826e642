// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command mirror is an example of a controller that acts on behalf of its users on several
// clusters behind a gateway. It copies the ConfigMap that a Mirror names to other clusters, as
// the user that wrote the Mirror. The controller itself may only read Mirrors and Namespaces,
// write the status of Mirrors, and impersonate users. It cannot copy a ConfigMap that the user
// may not copy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant/impersonate"
)

var mirrors = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "mirrors"}

func main() {
	kubeconfig := flag.String("kubeconfig", "",
		"kubeconfig whose server is the gateway: its root is the cluster that holds the Mirrors")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		klog.ErrorS(err, "Stopped")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The informers use the identity of the controller itself.
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ownObjects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(own, 0)
	objects := dynamicinformer.NewDynamicSharedInformerFactory(ownObjects, 0)
	namespaces := factory.Core().V1().Namespaces()
	watched := objects.ForResource(mirrors)
	listed := namespaces.Informer()
	// All other requests impersonate users, see sync.
	impersonator, err := impersonate.New(impersonate.Options{
		WithUser:     true,
		DefaultUser:  "mirror:nobody",
		GroupPattern: ".*",
	})
	if err != nil {
		return err
	}
	acting := rest.CopyConfig(config)
	acting.Wrap(func(next http.RoundTripper) http.RoundTripper {
		get := func(_ context.Context, name string) (*corev1.Namespace, error) { return namespaces.Lister().Get(name) }
		return impersonator.RoundTripper(next, impersonate.OwnerByLabel(get))
	})
	c := &controller{
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		mirrors: watched.Lister(),
	}
	if c.client, err = kubernetes.NewForConfig(acting); err != nil {
		return err
	}
	if c.objects, err = dynamic.NewForConfig(acting); err != nil {
		return err
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: c.enqueue, UpdateFunc: func(_, updated any) { c.enqueue(updated) }}
	if _, err := watched.Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	objects.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), listed.HasSynced, watched.Informer().HasSynced) {
		return errors.New("the caches were not filled")
	}
	klog.InfoS("Mirroring", "server", config.Host)
	context.AfterFunc(ctx, c.queue.ShutDown)
	for c.next(ctx) {
	}
	return nil
}

// controller copies the ConfigMaps that Mirrors name.
type controller struct {
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	mirrors cache.GenericLister
	client  kubernetes.Interface
	objects dynamic.Interface
}

func (c *controller) enqueue(object any) {
	if name, err := cache.ObjectToName(object); err == nil {
		c.queue.Add(name)
	}
}

func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	object, err := c.mirrors.ByNamespace(name.Namespace).Get(name.Name)
	if err != nil {
		return true // the Mirror was deleted
	}
	mirror := object.(*unstructured.Unstructured)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = c.sync(ctx, mirror)
	if statusErr := c.updateStatus(ctx, mirror, err); err != nil || statusErr != nil {
		klog.InfoS("Not mirrored", "mirror", name, "err", errors.Join(err, statusErr))
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// sync copies one ConfigMap as the user that wrote the Mirror.
func (c *controller) sync(ctx context.Context, mirror *unstructured.Unstructured) error {
	ctx = impersonate.WithObject(ctx, mirror)
	name, _, _ := unstructured.NestedString(mirror.Object, "spec", "configMap")
	clusters, _, _ := unstructured.NestedStringSlice(mirror.Object, "spec", "clusters")
	from, err := c.client.CoreV1().ConfigMaps(mirror.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	var errs []error
	for _, cluster := range clusters {
		to := applycorev1.ConfigMap(name, mirror.GetNamespace()).WithData(from.Data)
		_, err := c.client.CoreV1().ConfigMaps(mirror.GetNamespace()).Apply(impersonate.WithCluster(ctx, cluster), to,
			metav1.ApplyOptions{FieldManager: "mirror", Force: true})
		if err != nil {
			errs = append(errs, fmt.Errorf("write it to %s: %w", cluster, err))
		}
	}
	return errors.Join(errs...)
}

// updateStatus writes the result to the status of a Mirror. It uses the identity of the
// controller itself, because users may not write the status.
func (c *controller) updateStatus(ctx context.Context, mirror *unstructured.Unstructured, err error) error {
	message := "mirrored"
	if err != nil {
		message = err.Error()
	}
	if current, _, _ := unstructured.NestedString(mirror.Object, "status", "message"); current == message {
		return nil
	}
	patch, failed := json.Marshal(map[string]any{"status": map[string]string{"message": message}})
	if failed != nil {
		return failed
	}
	_, failed = c.objects.Resource(mirrors).Namespace(mirror.GetNamespace()).Patch(impersonate.WithOwnIdentity(ctx),
		mirror.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return failed
}
