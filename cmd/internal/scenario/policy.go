package scenario

import (
	"bytes"
	_ "embed" // what every cluster holds
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// bootstrapPolicy are the roles and bindings that every kube-apiserver makes (k8s.io/kubernetes
// plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.37.1) but for the controllers', aggregated roles
// filled; one JSON object a line. A test of the nested module holds it against upstream's.
//
//go:embed bootstrap.jsonl
var bootstrapPolicy []byte

// rbacOf indexes the roles and bindings of a scenario, and those that every cluster holds.
func rbacOf(s *v1alpha1.Scenario) (*kubetenant.RBAC, error) {
	index := rbac.NewIndex()
	for raw := range bytes.Lines(bootstrapPolicy) {
		obj, err := decode(&runtime.RawExtension{Raw: raw})
		if err != nil {
			return nil, fmt.Errorf("bootstrap policy: %w", err)
		}
		index.Set(obj)
	}
	held, err := Held(s)
	if err != nil {
		return nil, err
	}
	for i := range held {
		obj, err := decode(&held[i])
		if err != nil {
			return nil, err
		}
		switch obj.(type) {
		case *rbacv1.Role, *rbacv1.RoleBinding, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			index.Set(obj)
		}
	}
	return &kubetenant.RBAC{Index: index}, nil
}

// grantsOf returns a client that knows the AccessGrants of a scenario.
func grantsOf(s *v1alpha1.Scenario) (dynamic.Interface, error) {
	held, err := Held(s)
	if err != nil {
		return nil, err
	}
	var grants []runtime.Object
	for i := range held {
		obj, err := decode(&held[i])
		if err != nil {
			return nil, err
		}
		if u, ok := obj.(*unstructured.Unstructured); ok && u.GroupVersionKind() == accessGrantKind {
			grants = append(grants, u)
		}
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: tenant.Domain, Version: "v1alpha1", Resource: "accessgrants"}: v1alpha1.KindAccessGrant + "List"}, grants...), nil
}

var accessGrantKind = schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: v1alpha1.KindAccessGrant}
