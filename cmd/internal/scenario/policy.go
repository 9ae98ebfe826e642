package scenario

import (
	"bytes"
	_ "embed" // what every cluster holds
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/cmd/internal/engine"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// bootstrapPolicy are the roles and bindings that every kube-apiserver makes (k8s.io/kubernetes
// plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.37.1) but for the controllers', aggregated roles
// filled; one JSON object a line. A test of the nested module holds it against upstream's.
//
//go:embed bootstrap.jsonl
var bootstrapPolicy []byte

// Bootstrap returns the roles and bindings that every cluster holds.
func Bootstrap() ([]runtime.Object, error) {
	var all []runtime.Object
	for raw := range bytes.Lines(bootstrapPolicy) {
		obj, err := decode(&runtime.RawExtension{Raw: raw})
		if err != nil {
			return nil, fmt.Errorf("bootstrap policy: %w", err)
		}
		all = append(all, obj)
	}
	return all, nil
}

// rbacOf indexes the roles and bindings of a scenario, and those that every cluster holds.
func rbacOf(s *v1alpha1.Scenario) (*kubetenant.RBAC, error) {
	policy, err := Bootstrap()
	if err != nil {
		return nil, err
	}
	held, err := heldWhere(s, engine.IsPolicy)
	if err != nil {
		return nil, err
	}
	return &kubetenant.RBAC{Index: engine.Index(append(policy, held...))}, nil
}

// grantsOf returns a client that knows the AccessGrants of a scenario.
func grantsOf(s *v1alpha1.Scenario) (dynamic.Interface, error) {
	held, err := heldWhere(s, func(obj runtime.Object) bool {
		u, ok := obj.(*unstructured.Unstructured)
		return ok && u.GroupVersionKind() == accessGrantKind
	})
	if err != nil {
		return nil, err
	}
	return engine.Grants(held), nil
}

// heldWhere returns the objects of a scenario that is is true of.
func heldWhere(s *v1alpha1.Scenario, is func(runtime.Object) bool) ([]runtime.Object, error) {
	held, err := Held(s)
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	for i := range held {
		obj, err := decode(&held[i])
		if err != nil {
			return nil, err
		}
		if is(obj) {
			all = append(all, obj)
		}
	}
	return all, nil
}

var accessGrantKind = schema.GroupVersionKind{Group: tenant.Domain, Version: "v1alpha1", Kind: v1alpha1.KindAccessGrant}
