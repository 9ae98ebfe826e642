// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant"
)

// SweptName is the name of the ConfigMap in which the controller publishes the progress of the
// backfill. It is in the namespace of the service.
const SweptName = "kubetenant-swept"

// SweptKey is the key of the completed resources (resource.group). The value is JSON and contains,
// for each resource, the tenants whose objects still lack labels.
const SweptKey = "swept.json"

// WebhooksAnnotation specifies the version of the webhooks with which the resources in the
// ConfigMap were labeled, as [WebhooksVersion.String] writes it.
const WebhooksAnnotation = "kubetenant.dev/webhooks"

// PolicyAnnotation specifies the version of the policy that allowed only the controller to write
// the ConfigMap. The next controller ignores a ConfigMap that was written under another version.
const PolicyAnnotation = "kubetenant.dev/policy"

// PolicyName is the name of the policy of the service's namespace and of its binding.
const PolicyName = "service.kubetenant.dev"

// sweptFile is the content of the ConfigMap. No resource is complete without a valid ConfigMap.
type sweptFile struct {
	informer cache.SharedIndexInformer

	mu      sync.RWMutex
	lacking map[string]map[tenant.ID]bool
	with    WebhooksVersion
}

func followSwept(client kubernetes.Interface, namespace string) *sweptFile {
	f := &sweptFile{
		informer: coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, onlyNamed(SweptName)),
	}
	_, _ = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only for a stopped informer
		AddFunc:    f.read,
		UpdateFunc: func(_, is any) { f.read(is) },
		DeleteFunc: func(any) { f.set(nil, WebhooksVersion{}) },
	})
	return f
}

func (f *sweptFile) read(obj any) {
	config, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	lacking := map[string]map[tenant.ID]bool{}
	for resource, ids := range ParseSwept(config.Data[SweptKey]) {
		lacking[resource.String()] = map[tenant.ID]bool{}
		for _, id := range ids {
			lacking[resource.String()][id] = true
		}
	}
	f.set(lacking, ParseVersion(config.Annotations[WebhooksAnnotation]))
}

// ParseSwept parses the value of [SweptKey]. It returns nil if the text is invalid.
func ParseSwept(text string) map[schema.GroupResource][]tenant.ID {
	var said map[string][]string
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil
	}
	out := map[schema.GroupResource][]tenant.ID{}
	for resource, names := range said {
		var ids []tenant.ID
		for _, name := range names {
			id, err := tenant.Parse(name)
			if err != nil {
				return nil
			}
			ids = append(ids, id)
		}
		out[schema.ParseGroupResource(resource)] = ids
	}
	return out
}

func (f *sweptFile) set(lacking map[string]map[tenant.ID]bool, with WebhooksVersion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lacking, f.with = lacking, with
}

// version returns the version of the webhooks during the backfill.
func (f *sweptFile) version() WebhooksVersion {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.with
}

// done reports whether all objects of a tenant, and no others, have its label.
func (f *sweptFile) done(resource schema.GroupResource, id tenant.ID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	lacking, swept := f.lacking[resource.String()]
	return swept && !lacking[id]
}
