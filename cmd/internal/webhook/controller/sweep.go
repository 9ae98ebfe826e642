package controller

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/service"
	"github.com/kubetenant/kubetenant/plugins/label"
)

// publishEvery is how often what changed is told to the replicas of the service.
const publishEvery = time.Second

const fieldManager = "kubetenant-controller"

// Sweep labels what was stored without the webhooks, and tells the service in its ConfigMap which resources
// are done. It begins when the webhooks are in place.
func Sweep(config *rest.Config, namespace string) Task {
	return func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		meta, err := metadata.NewForConfig(config)
		if err != nil {
			return err
		}
		scopes, err := kubetenant.NewCustomScopes(objects)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		namespaces := factory.Core().V1().Namespaces()
		owners := authz.NewOwners(namespaces.Lister().Get, func(ctx context.Context, name string) (*corev1.Namespace, error) {
			return client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		})
		sweep := label.NewSweep(meta, kubetenant.LabelledResources(client.Discovery(), scopes.Of), owners.Certain)
		if _, err := namespaces.Informer().AddEventHandler(sweep.Follow()); err != nil {
			return err
		}
		if err := scopes.OnChange(sweep.Wake); err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		go scopes.Run(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), namespaces.Informer().HasSynced, scopes.HasSynced) {
			return errors.New("the namespaces could not be read")
		}
		// What is stored before the webhooks stand would never be seen.
		if err := wait.PollUntilContextCancel(ctx, publishEvery, true, func(ctx context.Context) (bool, error) {
			_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, certificates.ConfigurationName, metav1.GetOptions{})
			return err == nil, nil
		}); err != nil {
			return nil // ended before they came
		}
		go sweep.Run(ctx)
		return publish(ctx, client, namespace, sweep)
	}
}

// publish tells what is swept until ctx ends. At first nothing is: what an earlier leader said may not be
// true any more.
func publish(ctx context.Context, client kubernetes.Interface, namespace string, sweep *label.Sweep) error {
	said := "-"
	for {
		text, err := sweptText(sweep)
		if err != nil {
			return err
		}
		if text != said {
			config := applycorev1.ConfigMap(service.SweptName, namespace).WithData(map[string]string{service.SweptKey: text})
			_, err := client.CoreV1().ConfigMaps(namespace).Apply(ctx, config, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
			if err == nil {
				said = text
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Info("Could not tell the service what is swept", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(publishEvery):
		}
	}
}

// sweptText is what the service reads.
func sweptText(sweep *label.Sweep) (string, error) {
	said := map[string][]string{}
	for resource, lacking := range sweep.Swept() {
		names := make(map[string]bool, len(lacking))
		for _, id := range lacking {
			names[id.String()] = true
		}
		said[resource.String()] = slices.AppendSeq([]string{}, maps.Keys(names))
		slices.Sort(said[resource.String()])
	}
	data, err := json.Marshal(said)
	return string(data), err
}
