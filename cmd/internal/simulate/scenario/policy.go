package scenario

import (
	"bytes"
	"context"
	_ "embed" // what every cluster holds
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
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

// policyOf returns the roles and bindings of a scenario, and those that every cluster holds.
func policyOf(s *v1alpha1.Scenario) ([]runtime.Object, error) {
	policy, err := Bootstrap()
	if err != nil {
		return nil, err
	}
	held, err := heldWhere(s, simulator.IsPolicy)
	return append(policy, held...), err
}

// isGrant reports whether an object is an AccessGrant.
func isGrant(obj runtime.Object) bool {
	u, ok := obj.(*unstructured.Unstructured)
	return ok && u.GroupVersionKind() == accessGrantKind
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

// Objects returns what decisions of a scenario hang on, and what stands behind its RBAC.
func Objects(s *v1alpha1.Scenario) (*simulator.Objects, authorizer.Authorizer, error) {
	namespaces, scopes, err := clusterOf(s)
	if err != nil {
		return nil, nil, err
	}
	o := &simulator.Objects{Scopes: scopes}
	if o.Namespaces, err = namespaces.List(labels.Everything()); err != nil {
		return nil, nil, err
	}
	if o.Grants, err = heldWhere(s, isGrant); err != nil {
		return nil, nil, err
	}
	quotas, err := heldWhere(s, func(obj runtime.Object) bool {
		u, ok := obj.(*unstructured.Unstructured)
		return ok && u.GetKind() == v1alpha1.KindTenantQuota
	})
	if err != nil {
		return nil, nil, err
	}
	o.Quotas = map[string]tenant.ID{}
	for _, obj := range quotas {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			o.Quotas[u.GetName()] = simulator.QuotaTenant(u)
		}
	}
	switch s.Delegate {
	case v1alpha1.DelegateAllow:
		return o, authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "the scenario's delegate allows", nil
		}), nil
	case v1alpha1.DelegateNoOpinion:
		return o, nil, nil
	}
	o.Policy, err = policyOf(s)
	return o, nil, err
}
