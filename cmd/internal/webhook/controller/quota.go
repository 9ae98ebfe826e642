package controller

import (
	"context"
	"errors"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant"
)

// Quotas counts what the objects of tenants use.
func Quotas(config *rest.Config) Task {
	return func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		quotas, err := kubetenant.NewQuotas(objects)
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		namespaces := factory.Core().V1().Namespaces()
		mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
		counter := kubetenant.NewQuotaCounter(quotas, mapper, namespaces.Lister())
		synced := namespaces.Informer().HasSynced
		factory.StartWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), synced) {
			return errors.New("the namespaces could not be read")
		}
		go quotas.Run(ctx)
		counter.Run(ctx)
		return nil
	}
}
