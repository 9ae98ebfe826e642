package kubetenant

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/provision"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// tenantOf reads a Tenant.
func tenantOf(obj runtime.Object) (*v1alpha1.Tenant, tenant.ID, error) {
	t, err := v1alpha1.TenantOf(obj)
	if err != nil {
		return nil, tenant.ID{}, err
	}
	id, err := idOf(t.Spec.ID)
	return t, id, err
}

// idOf reads the tenant that an object is about.
func idOf(text string) (tenant.ID, error) {
	id, err := tenant.Parse(text)
	if err != nil {
		return tenant.ID{}, fmt.Errorf("spec.id: %w", err)
	}
	return id, nil
}

// spreadOf reads what a Tenant gives.
func spreadOf(obj runtime.Object) (*rolebinding.Spread, error) {
	t, id, err := tenantOf(obj)
	if err != nil {
		return nil, err
	}
	return provision.SpreadOf(id, &t.Spec), nil
}

// membersOf reads what TenantMembers give.
func membersOf(obj runtime.Object) (*rolebinding.Spread, error) {
	m, err := v1alpha1.MembersOf(obj)
	if err != nil {
		return nil, err
	}
	id, err := idOf(m.Spec.ID)
	if err != nil {
		return nil, err
	}
	return provision.MembersSpreadOf(id, &m.Spec), nil
}

// templateOf reads what a NamespaceTemplate makes.
func templateOf(obj runtime.Object) ([]schema.GroupVersionResource, error) {
	t, err := v1alpha1.TemplateOf(obj)
	if err != nil {
		return nil, err
	}
	return t.Resources(), t.Validate()
}

// lifeOf reads what a Tenant says of its end.
func lifeOf(obj runtime.Object) (*lifecycle.Life, error) {
	t, id, err := tenantOf(obj)
	if err != nil {
		return nil, err
	}
	policy := t.Spec.DeletionPolicy
	return &lifecycle.Life{ID: id, Replaces: t.Spec.Replaces, Deletes: policy == v1alpha1.TenantDeletionDelete, Protected: policy != v1alpha1.TenantDeletionDelete && policy != v1alpha1.TenantDeletionOrphan}, nil
}
