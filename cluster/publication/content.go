// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/template"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// Kind is a kind of object that may be published, and its resource.
type Kind struct {
	Kind     schema.GroupKind
	Resource string
}

// Rules specify which objects may be published, and which of their labels and annotations are
// copied. The zero value allows the built-in kinds and copies no labels and no annotations.
type Rules struct {
	// Kinds are allowed in addition to the built-in kinds. [CheckKind] MUST accept each of them.
	Kinds []Kind
	// Namespaced reports whether a resource is known to be namespaced. Required if Kinds is set.
	Namespaced func(schema.GroupResource) bool
	// Labels and Annotations are the keys of the labels and annotations that are copied. No other
	// keys and no keys of this project are copied. For example, the annotation
	// kubectl.kubernetes.io/last-applied-configuration would reveal earlier data of a Secret, and
	// a tool that tracks its objects by a label would delete the copies.
	Labels, Annotations []string
}

// RulesOf returns the rules that a configuration specifies. It sets [Rules.Namespaced] to
// namespaced.
func RulesOf(c *configv1alpha1.PublicationRules, namespaced func(schema.GroupResource) bool) *Rules {
	out := &Rules{Namespaced: namespaced, Labels: c.Labels, Annotations: c.Annotations}
	for _, k := range c.Kinds {
		out.Kinds = append(out.Kinds, Kind{schema.GroupKind{Group: k.Group, Kind: k.Kind}, k.Resource})
	}
	return out
}

// builtIn returns the kinds that may always be published.
func builtIn() []Kind {
	return []Kind{
		{schema.GroupKind{Kind: "ConfigMap"}, "configmaps"},
		{schema.GroupKind{Kind: "LimitRange"}, "limitranges"},
		{schema.GroupKind{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}, "networkpolicies"},
		{schema.GroupKind{Kind: "ResourceQuota"}, "resourcequotas"},
		{schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}, "roles"},
		{schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}, "rolebindings"},
		{schema.GroupKind{Kind: "Secret"}, "secrets"},
	}
}

// BuiltIn returns the kinds that may always be published and their resources, in their stable
// versions.
func BuiltIn() map[schema.GroupVersionKind]schema.GroupVersionResource {
	all := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for _, k := range builtIn() {
		kind := k.Kind.WithVersion("v1")
		all[kind] = kind.GroupVersion().WithResource(k.Resource)
	}
	return all
}

// All returns the kinds that may be published, built-in kinds first.
func (r *Rules) All() []Kind { return slices.Concat(builtIn(), r.Kinds) }

// Resource returns the resource of a kind. It returns an error if objects of the kind may not be
// published.
func (r *Rules) Resource(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	all := r.All()
	at := slices.IndexFunc(all, func(k Kind) bool { return k.Kind == kind.GroupKind() })
	if at < 0 {
		return schema.GroupVersionResource{}, fmt.Errorf("spec.from: objects of the kind %s cannot be published: "+
			"use ConfigMap, LimitRange, NetworkPolicy, ResourceQuota, Role, RoleBinding, Secret, or a kind of "+
			"admission.publication.kinds in the configuration", kind.GroupKind())
	}
	out := kind.GroupVersion().WithResource(all[at].Resource)
	if at >= len(builtIn()) && (r.Namespaced == nil || !r.Namespaced(out.GroupResource())) {
		return out, fmt.Errorf("spec.from: the server does not know %s as a resource with namespaces", out.GroupResource())
	}
	return out, nil
}

// Content is the content of the copies of an object.
type Content struct {
	// Object is the object before placeholders are replaced. It has only the metadata that is
	// copied, and no status.
	Object map[string]any
	// Resource is the resource of the object.
	Resource schema.GroupVersionResource
	// Hash identifies the content, including the rules of the role of a RoleBinding.
	Hash string
	// Size is the number of bytes of the object as JSON.
	Size int
}

// Role has the rules of the Role or ClusterRole of a RoleBinding.
type Role struct {
	Rules []rbacv1.PolicyRule
	// Aggregated reports whether the server combines the rules from other ClusterRoles. Such rules are
	// not part of the hash, because they change whenever an application is installed.
	Aggregated bool
}

// Content returns the content of the copies of an object. role is nil if the object is not a
// RoleBinding or if its role does not exist. Content fails if the object may not be published.
func (r *Rules) Content(u *unstructured.Unstructured, role *Role) (*Content, error) {
	resource, err := r.Resource(u.GroupVersionKind())
	if err == nil {
		err = checkObject(u)
	}
	if err != nil {
		return nil, err
	}
	object := runtime.DeepCopyJSON(u.Object)
	delete(object, "status")
	metadata := map[string]any{"name": u.GetName()}
	for field, keys := range map[string]struct {
		has     map[string]string
		allowed []string
	}{
		"labels":      {u.GetLabels(), r.Labels},
		"annotations": {u.GetAnnotations(), r.Annotations},
	} {
		selected := map[string]any{}
		for key, value := range keys.has {
			if slices.Contains(keys.allowed, key) && !strings.HasPrefix(key, tenant.Domain+"/") {
				selected[key] = value
			}
		}
		if len(selected) > 0 {
			metadata[field] = selected
		}
	}
	object["metadata"] = metadata
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	hashed := [][]byte{text}
	if role != nil && !role.Aggregated {
		rules, err := json.Marshal(role.Rules)
		if err != nil {
			return nil, err
		}
		hashed = append(hashed, rules)
	}
	sum := sha256.New()
	for _, part := range hashed { // a zero byte, which JSON cannot contain, ends each part
		sum.Write(append(part, 0))
	}
	return &Content{
		Object:   object,
		Resource: resource,
		Hash:     hex.EncodeToString(sum.Sum(nil)),
		Size:     len(text),
	}, nil
}

// checkObject rejects objects that other programs create in each namespace and Secrets that
// contain credentials of the cluster. It also rejects placeholders in fields that are checked
// before placeholders are replaced.
func checkObject(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "ConfigMap":
		if u.GetName() == "kube-root-ca.crt" {
			return errors.New("spec.from.name: kube-controller-manager creates the ConfigMap of this name")
		}
	case "Secret":
		secretType, _, _ := unstructured.NestedString(u.Object, "type")
		if secretType == string(corev1.SecretTypeServiceAccountToken) ||
			secretType == string(corev1.SecretTypeBootstrapToken) {
			return fmt.Errorf("spec.from: Secrets of the type %s cannot be published", secretType)
		}
	case "RoleBinding":
		if strings.HasPrefix(u.GetName(), managed.NamePrefix) {
			return fmt.Errorf("spec.from.name: names that begin with %s are reserved for the server", managed.NamePrefix)
		}
	}
	// The server checks these fields before it replaces placeholders.
	for _, field := range []string{"roleRef", "rules", "type"} {
		if text, err := json.Marshal(u.Object[field]); err != nil || strings.Contains(string(text), "${") {
			return fmt.Errorf("spec.from: %s of the object must not contain ${", field)
		}
	}
	if _, managed := u.GetLabels()[tenant.ManagedLabel]; managed {
		return fmt.Errorf("spec.from: the object has the label %s", tenant.ManagedLabel)
	}
	return nil
}

// Render returns the copy for a namespace of a tenant. metadata.namespace of the copy is not set.
func (c *Content) Render(id tenant.ID, namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: template.Replace(c.Object, id, namespace)}
	u.SetName(c.name()) // placeholders in the name are not replaced
	return u
}

func (c *Content) name() string {
	u := unstructured.Unstructured{Object: c.Object}
	return u.GetName()
}

// CheckKind returns an error if a configuration must not allow objects of the kind to be
// published.
func CheckKind(kind Kind) error {
	return (&configv1alpha1.PublicationKind{
		Group:    kind.Kind.Group,
		Kind:     kind.Kind.Kind,
		Resource: kind.Resource,
	}).Check()
}
