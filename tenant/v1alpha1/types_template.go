package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/tenant"
)

// KindNamespaceTemplate is the kind of [NamespaceTemplate].
const KindNamespaceTemplate = "NamespaceTemplate"

// NamespaceTemplate is what the namespaces of the tenants get whose Tenant names it: objects that
// the server makes and keeps as they are. Cluster-scoped.
type NamespaceTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NamespaceTemplateSpec `json:"spec"`
	// Digest is a hash of the objects, of a template that was decoded by [TemplateOf].
	Digest string `json:"-"`
}

// NamespaceTemplateSpec says what there is in each namespace.
type NamespaceTemplateSpec struct {
	// objects that are made in each namespace, of the kinds of [TemplateKinds]: without a namespace,
	// and of the metadata with name, labels and annotations alone. "${tenant}" and "${namespace}"
	// stand for these in values, never in keys.
	// +required
	Objects []map[string]any `json:"objects"`
	// hold refuses Pods in a new namespace until it has been given all that its Tenant says: no Pod
	// starts before its NetworkPolicy is there.
	// +optional
	Hold bool `json:"hold,omitempty"`
}

// TemplateKinds returns the kinds of which a template's objects may be, and their resources. None
// of them gives rights: those are given by a Tenant, which holds whom they are given to.
func TemplateKinds() map[schema.GroupVersionKind]schema.GroupVersionResource {
	core, networking := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion
	return map[schema.GroupVersionKind]schema.GroupVersionResource{
		core.WithKind("ConfigMap"):           core.WithResource("configmaps"),
		core.WithKind("LimitRange"):          core.WithResource("limitranges"),
		core.WithKind("ResourceQuota"):       core.WithResource("resourcequotas"),
		networking.WithKind("NetworkPolicy"): networking.WithResource("networkpolicies"),
	}
}

// typed returns an empty object of one of [TemplateKinds].
func typed(kind string) any {
	switch kind {
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "LimitRange":
		return &corev1.LimitRange{}
	case "ResourceQuota":
		return &corev1.ResourceQuota{}
	}
	return &networkingv1.NetworkPolicy{}
}

// maxRendered bounds what a template makes in a namespace, in bytes of JSON:
// etcd takes no larger object.
const maxRendered = 1 << 20

// longest is the longest that may stand for ${tenant} and ${namespace}.
const longest = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// TemplateObject is an object of a template, in a namespace.
type TemplateObject struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// TemplateOf decodes a NamespaceTemplate as a server keeps it. The result shares its objects with
// obj, and MUST NOT be changed.
func TemplateOf(obj runtime.Object) (*NamespaceTemplate, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	t := &NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, t); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t.Spec.Objects)
	sum := sha256.Sum256(text)
	t.Digest = hex.EncodeToString(sum[:16])
	return t, err
}

// Gives reports whether the template gives an object of a name in a namespace of a tenant.
func (t *NamespaceTemplate) Gives(id tenant.ID, namespace string, resource schema.GroupResource, name string) bool {
	replace := replacer(id, namespace)
	return slices.ContainsFunc(t.Spec.Objects, func(content map[string]any) bool {
		u := unstructured.Unstructured{Object: content}
		return TemplateKinds()[u.GroupVersionKind()].GroupResource() == resource && replace.Replace(u.GetName()) == name
	})
}

func replacer(id tenant.ID, namespace string) *strings.Replacer {
	return strings.NewReplacer("${tenant}", id.String(), "${namespace}", namespace)
}

// Validate returns what is wrong with the objects, whatever the tenant, by the field's path.
func (t *NamespaceTemplate) Validate() error {
	id, err := tenant.Parse(longest)
	if err != nil {
		return err
	}
	_, err = t.Render(id, longest)
	return err
}

// Resources returns the resources of the objects, each once and in order. What
// is no object is left out.
func (t *NamespaceTemplate) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, content := range t.Spec.Objects {
		u := unstructured.Unstructured{Object: content}
		if r, known := TemplateKinds()[u.GroupVersionKind()]; known && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Render returns the objects as they are in a namespace of a tenant, without their namespace; all
// of them or an error, by the field's path.
func (t *NamespaceTemplate) Render(id tenant.ID, namespace string) ([]TemplateObject, error) {
	replace := replacer(id, namespace)
	seen := map[string]bool{}
	var out []TemplateObject
	for i, content := range t.Spec.Objects {
		of, err := render(content, replace)
		if err == nil {
			key := of.Resource.Resource + "/" + of.Object.GetName()
			if seen[key] {
				err = errors.New("is of the kind and name of another")
			}
			seen[key] = true
		}
		if err != nil {
			return nil, fmt.Errorf("spec.objects[%d]: %w", i, err)
		}
		out = append(out, of)
	}
	text, err := json.Marshal(out)
	if err == nil && len(text) > maxRendered {
		err = fmt.Errorf("spec.objects: they may be %d bytes together with the longest names, and are %d",
			maxRendered, len(text))
	}
	return out, err
}

// render returns an object of a template in a namespace.
func render(content map[string]any, replace *strings.Replacer) (out TemplateObject, err error) {
	u := &unstructured.Unstructured{Object: content}
	resource, known := TemplateKinds()[u.GroupVersionKind()]
	if !known {
		return out, fmt.Errorf("%q of %q is none of the kinds that a template may hold: "+
			"ConfigMap, LimitRange and ResourceQuota of v1, NetworkPolicy of networking.k8s.io/v1",
			u.GetKind(), u.GetAPIVersion())
	}
	if content, _ = replaced(runtime.DeepCopyJSON(content), replace).(map[string]any); content == nil {
		return out, errors.New("is no object")
	}
	u = &unstructured.Unstructured{Object: content}
	if err := checkMetadata(content); err != nil {
		return out, err
	}
	if u.GetKind() == "ConfigMap" && u.GetName() == "kube-root-ca.crt" {
		return out, errors.New("metadata.name: kube-controller-manager makes it")
	}
	if _, has := content["status"]; has {
		return out, errors.New("status may not be set")
	}
	text, err := json.Marshal(content)
	if err != nil {
		return out, err
	}
	if strict, err := kjson.UnmarshalStrict(text, typed(u.GetKind())); err != nil || len(strict) > 0 {
		return out, errors.Join(append(strict, err)...)
	}
	return TemplateObject{resource, u}, nil
}

// checkMetadata holds the metadata of an object of a template to what is the author's.
func checkMetadata(content map[string]any) error {
	metadata, is := content["metadata"].(map[string]any)
	if !is {
		return errors.New("metadata.name must be set")
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains([]string{"name", "labels", "annotations"}, key) {
			return fmt.Errorf("metadata.%s may not be set", key)
		}
	}
	name, _ := metadata["name"].(string)
	if wrong := apivalidation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return fmt.Errorf("metadata.name %q: %s", name, wrong[0])
	}
	for _, field := range []string{"labels", "annotations"} {
		keys, _, err := unstructured.NestedStringMap(metadata, field)
		if err != nil {
			return fmt.Errorf("metadata.%s must be strings", field)
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if strings.HasPrefix(key, tenant.Domain+"/") {
				return fmt.Errorf("metadata.%s: %s is the server's own", field, key)
			}
		}
	}
	return nil
}

// replaced puts values in: into strings that are values, never into keys.
func replaced(value any, replace *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return replace.Replace(value)
	case []any:
		for i := range value {
			value[i] = replaced(value[i], replace)
		}
	case map[string]any:
		for key := range value {
			value[key] = replaced(value[key], replace)
		}
	}
	return value
}
