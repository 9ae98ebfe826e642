package cluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// NamespaceSelectors knows by which labels of Namespaces the cluster's webhooks and admission
// policies choose what they are asked about: who sets such a label chooses for itself.
type NamespaceSelectors struct{ informers []cache.SharedIndexInformer }

// byKey is the index of webhooks and policies by the keys that their namespaceSelectors name.
const byKey = "namespaceSelector"

// WebhooksAndPolicies are the informers of webhooks and validating policies.
func WebhooksAndPolicies(v1 admissioninformers.Interface) []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{
		v1.ValidatingWebhookConfigurations().Informer(), v1.MutatingWebhookConfigurations().Informer(),
		v1.ValidatingAdmissionPolicies().Informer(), v1.ValidatingAdmissionPolicyBindings().Informer(),
	}
}

// MutatingPolicies are the informers of mutating policies, which servers before 1.37 do not serve.
func MutatingPolicies(v1 admissioninformers.Interface) []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{
		v1.MutatingAdmissionPolicies().Informer(), v1.MutatingAdmissionPolicyBindings().Informer(),
	}
}

// NewNamespaceSelectors returns what the objects of informers select by, which the process starts.
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

// HasSynced reports whether all webhooks and policies of the start are known.
func (s *NamespaceSelectors) HasSynced() bool {
	return !slices.ContainsFunc(s.informers, func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

// Has reports whether something selects by a key. Until all is known, everything is.
func (s *NamespaceSelectors) Has(key string) bool {
	if !s.HasSynced() {
		return true
	}
	return slices.ContainsFunc(s.informers, func(i cache.SharedIndexInformer) bool {
		names, err := i.GetIndexer().IndexKeys(byKey, key)
		return err != nil || len(names) > 0
	})
}

// SelectedKeys returns the keys that the namespaceSelectors in an object name, wherever they stand:
// of webhooks, of a policy's constraints and of a binding's resources.
func SelectedKeys(obj runtime.Object) []string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil
	}
	var keys []string
	var walk func(any)
	walk = func(from any) {
		switch here := from.(type) {
		case map[string]any:
			for name, value := range here {
				if selector, is := value.(map[string]any); is && name == "namespaceSelector" {
					keys = append(keys, keysOf(selector)...)
					continue
				}
				walk(value)
			}
		case []any:
			for _, element := range here {
				walk(element)
			}
		}
	}
	walk(content)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keysOf returns the keys of a label selector.
func keysOf(selector map[string]any) []string {
	var keys []string
	labels, _ := selector["matchLabels"].(map[string]any)
	for key := range labels {
		keys = append(keys, key)
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		expression, _ := e.(map[string]any)
		if key, is := expression["key"].(string); is {
			keys = append(keys, key)
		}
	}
	return keys
}
