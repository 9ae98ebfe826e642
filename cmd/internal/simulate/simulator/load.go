package simulator

import (
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Load reads objects from a file: YAML or JSON, several documents, Lists as kubectl get prints them. Kinds on
// which no decision hangs are passed over.
func Load(path string) (*Objects, error) {
	f, err := os.Open(path) // #nosec G304 -- the caller names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	o := &Objects{Scopes: map[schema.GroupResource]authz.Scope{}}
	decoder := utilyaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if u.Object == nil {
			continue
		}
		if err := o.addAll(u); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}

func (o *Objects) addAll(u *unstructured.Unstructured) error {
	if !u.IsList() {
		return o.Add(u)
	}
	return u.EachListItem(func(item runtime.Object) error {
		one, ok := item.(*unstructured.Unstructured)
		if !ok {
			return errors.New("an item that is no object")
		}
		return o.Add(one)
	})
}

// Add takes an object in, if a decision may hang on it.
func (o *Objects) Add(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindAccessGrant}:
		o.Grants = append(o.Grants, u)
		return nil
	case schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindTenantQuota}:
		if o.Quotas == nil {
			o.Quotas = map[string]tenant.ID{}
		}
		o.Quotas[u.GetName()] = QuotaTenant(u)
		return nil
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		resource, scope := ScopeOf(u)
		o.Scopes[resource] = scope
		return nil
	case schema.GroupKind{Kind: "Namespace"}, schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: gvk.Kind}:
	default:
		return nil
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return fmt.Errorf("%s %s/%s: %w", gvk.Kind, u.GetNamespace(), u.GetName(), err)
	}
	if ns, ok := typed.(*corev1.Namespace); ok {
		o.Namespaces = append(o.Namespaces, ns)
		return nil
	}
	o.Policy = append(o.Policy, typed)
	return nil
}

// QuotaTenant returns whom a TenantQuota is about; the zero ID where that is nobody.
func QuotaTenant(u *unstructured.Unstructured) tenant.ID {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "tenant")
	id, err := tenant.Parse(text)
	if err != nil {
		return tenant.ID{}
	}
	return id
}

// ScopeOf returns the resource of a CustomResourceDefinition and whether it is in namespaces.
func ScopeOf(crd *unstructured.Unstructured) (schema.GroupResource, authz.Scope) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	scope := authz.ScopeCluster
	if text, _, _ := unstructured.NestedString(crd.Object, "spec", "scope"); text == "Namespaced" {
		scope = authz.ScopeNamespaced
	}
	return schema.GroupResource{Group: group, Resource: plural}, scope
}
