// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// NamespaceSelectors finds the labels by which the cluster's webhooks and admission policies select
// namespaces. A caller that may set one of these labels on a Namespace can enable or disable the
// webhook or policy for the Namespace.
type NamespaceSelectors struct{ informers []cache.SharedIndexInformer }

// byKey is the name of the index that finds webhooks and policies by the label keys in their
// namespaceSelectors.
const byKey = "namespaceSelector"

// WebhooksAndPolicies returns the informers of webhooks and validating policies.
func WebhooksAndPolicies(v1 admissioninformers.Interface) []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{
		v1.ValidatingWebhookConfigurations().Informer(), v1.MutatingWebhookConfigurations().Informer(),
		v1.ValidatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicyBindings().Informer(),
	}
}

// MutatingPolicies returns the informers of mutating policies. Servers before 1.37 do not serve
// them.
func MutatingPolicies(v1 admissioninformers.Interface) []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{
		v1.MutatingAdmissionPolicies().Informer(), v1.MutatingAdmissionPolicyBindings().Informer(),
	}
}

// NewNamespaceSelectors returns the namespace selectors of the webhooks and policies in the given
// informers. The caller MUST start the informers.
func NewNamespaceSelectors(informers ...cache.SharedIndexInformer) (*NamespaceSelectors, error) {
	s := &NamespaceSelectors{informers}
	for _, informer := range s.informers {
		if err := informer.AddIndexers(cache.Indexers{byKey: func(obj any) ([]string, error) {
			o, ok := obj.(runtime.Object)
			if !ok {
				return nil, nil
			}
			return SelectedKeys(o), nil
		}}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// HasSynced reports whether all webhooks and policies have been read once.
func (s *NamespaceSelectors) HasSynced() bool {
	return !slices.ContainsFunc(s.informers, func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// Reason returns the reason why a label with the given key may affect a webhook or a policy. It
// returns "" if no webhook or policy selects namespaces by the key. Until all webhooks and policies
// have been read, it returns a reason for every key.
func (s *NamespaceSelectors) Reason(key string) string {
	if !s.HasSynced() {
		return "the webhooks and policies of the cluster are not known yet"
	}
	for _, i := range s.informers {
		objects, err := i.GetIndexer().ByIndex(byKey, key)
		if err != nil {
			return "the webhooks and policies of the cluster cannot be searched"
		}
		for _, obj := range objects {
			if o, ok := obj.(runtime.Object); ok {
				return SelectionReason(o)
			}
		}
	}
	return ""
}

// SelectionReason returns the reason that [NamespaceSelectors.Reason] returns for a label by which
// the given webhook or policy selects namespaces. The reason contains the kind of the object but
// not its name, because tenants must not learn the name.
func SelectionReason(obj runtime.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kinds, _, err := scheme.Scheme.ObjectKinds(obj); kind == "" && err == nil {
		kind = kinds[0].Kind
	}
	return "a " + kind + " of the cluster selects namespaces by it"
}

// SelectedKeys returns the label keys in all namespaceSelectors of a webhook configuration, a
// policy or a policy binding.
func SelectedKeys(obj runtime.Object) []string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil
	}
	var keys []string
	var walk func(any)
	walk = func(from any) {
		switch node := from.(type) {
		case map[string]any:
			for name, value := range node {
				if selector, is := value.(map[string]any); is && name == "namespaceSelector" {
					keys = append(keys, keysOf(selector)...)
					continue
				}
				walk(value)
			}
		case []any:
			for _, element := range node {
				walk(element)
			}
		}
	}
	walk(content)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keysOf returns the label keys in a label selector.
func keysOf(selector map[string]any) []string {
	var keys []string
	labels, _ := selector["matchLabels"].(map[string]any)
	for key := range labels {
		keys = append(keys, key)
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		expression, _ := e.(map[string]any)
		if key, ok := expression["key"].(string); ok {
			keys = append(keys, key)
		}
	}
	return keys
}
