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

// BackfillName is the name of the ConfigMap in which the controller publishes the progress of the
// backfill. The ConfigMap is in the namespace of the service.
const BackfillName = "kubetenant-swept"

// BackfillKey is the key of the progress in the ConfigMap. Its value is a JSON object. The names of
// its members are the completed resources, in the form resource.group. Each value is the list of
// the tenants that still have objects with wrong labels.
const BackfillKey = "swept.json"

// WebhooksAnnotation specifies the version of the webhooks with which the resources in the
// ConfigMap were labeled, as [WebhooksVersion.String] writes it.
const WebhooksAnnotation = "kubetenant.dev/webhooks"

// PolicyAnnotation specifies the version of the policy that allows only the controller to write the
// ConfigMap. The next controller ignores the ConfigMap if the policy has another version.
const PolicyAnnotation = "kubetenant.dev/policy"

// PolicyName is the name of the ValidatingAdmissionPolicy for the service's namespace and of the
// policy's binding.
const PolicyName = "service.kubetenant.dev"

// backfillStatus follows the content of the ConfigMap. If the ConfigMap is missing or invalid, no
// resource is complete.
type backfillStatus struct {
	informer cache.SharedIndexInformer

	mu        sync.RWMutex
	unlabeled map[string]map[tenant.ID]bool
	webhooks  WebhooksVersion
}

func followBackfill(client kubernetes.Interface, namespace string) *backfillStatus {
	f := &backfillStatus{
		informer: coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, onlyNamed(BackfillName)),
	}
	_, _ = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only if the informer has stopped
		AddFunc:    f.read,
		UpdateFunc: func(_, obj any) { f.read(obj) },
		DeleteFunc: func(any) { f.set(nil, WebhooksVersion{}) },
	})
	return f
}

func (f *backfillStatus) read(obj any) {
	config, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	unlabeled := map[string]map[tenant.ID]bool{}
	for resource, ids := range ParseBackfill(config.Data[BackfillKey]) {
		unlabeled[resource.String()] = map[tenant.ID]bool{}
		for _, id := range ids {
			unlabeled[resource.String()][id] = true
		}
	}
	f.set(unlabeled, ParseVersion(config.Annotations[WebhooksAnnotation]))
}

// ParseBackfill parses the value of [BackfillKey]. It returns nil if the text is invalid.
func ParseBackfill(text string) map[schema.GroupResource][]tenant.ID {
	var parsed map[string][]string
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		return nil
	}
	out := map[schema.GroupResource][]tenant.ID{}
	for resource, names := range parsed {
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

func (f *backfillStatus) set(unlabeled map[string]map[tenant.ID]bool, webhooks WebhooksVersion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlabeled, f.webhooks = unlabeled, webhooks
}

// version returns the version of the webhooks during the backfill.
func (f *backfillStatus) version() WebhooksVersion {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.webhooks
}

// isLabeled reports whether all objects of a tenant in a resource, and no other objects in the
// resource, have the tenant's label.
func (f *backfillStatus) isLabeled(resource schema.GroupResource, id tenant.ID) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	unlabeled, complete := f.unlabeled[resource.String()]
	return complete && !unlabeled[id]
}
