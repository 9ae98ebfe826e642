// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/provision"
	"github.com/kubetenant/kubetenant/cluster/template"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fieldPolicies maps the policies of the configuration to those of the plugins.
var fieldPolicies = map[configv1alpha1.FieldPolicy]plugins.Policy{
	configv1alpha1.FieldForbid:      plugins.Forbid,
	configv1alpha1.FieldAllowListed: plugins.AllowListed,
	configv1alpha1.FieldIgnore:      plugins.Ignore,
}

// policyRules returns a function that returns the rules of a tenant. The function returns nil if
// the policy of every field is Ignore.
func policyRules(c *configv1alpha1.Policy) func(tenant.ID) plugins.Rules {
	merge := func(all ...*configv1alpha1.PolicyRules) plugins.Rules {
		rules := plugins.Rules{}
		enforced := false
		for _, r := range all {
			for name, rule := range r.Fields() {
				rules[name] = plugins.Rule{Policy: fieldPolicies[rule.Policy], Allowed: rule.Allowed}
			}
		}
		for _, rule := range rules {
			enforced = enforced || rule.Policy != plugins.Ignore
		}
		if !enforced {
			return nil
		}
		return rules
	}
	others := merge(&c.PolicyRules)
	own := map[string]plugins.Rules{}
	for i := range c.Tenants {
		for _, name := range c.Tenants[i].Tenants {
			own[name] = merge(&c.PolicyRules, &c.Tenants[i].PolicyRules)
		}
	}
	return func(id tenant.ID) plugins.Rules {
		if rules, ok := own[id.String()]; ok {
			return rules
		}
		return others
	}
}

// placementRules returns a function that returns the placement rules of a tenant.
func placementRules(
	c *configv1alpha1.Placement,
	user *attribution.WorkloadUser,
) func(tenant.ID) *placement.TenantRules {
	scheduler := ""
	if !user.Off && user.Scheduling != nil {
		scheduler = user.Scheduling.SchedulerName // the server sets this scheduler in pods, so tenants may use it
	}
	others := mergePlacement(scheduler, &c.PlacementRules)
	own := map[string]*placement.TenantRules{}
	for i := range c.Tenants {
		for _, name := range c.Tenants[i].Tenants {
			own[name] = mergePlacement(scheduler, &c.PlacementRules, &c.Tenants[i].PlacementRules)
		}
	}
	return func(id tenant.ID) *placement.TenantRules {
		if rules, ok := own[id.String()]; ok {
			return rules
		}
		return others
	}
}

// mergePlacement merges rules. A later rule replaces an earlier rule of the same field. scheduler
// is the default scheduler.
func mergePlacement(scheduler string, rules ...*configv1alpha1.PlacementRules) *placement.TenantRules {
	out := &placement.TenantRules{Rules: plugins.Rules{}, Defaults: placement.Defaults{SchedulerName: scheduler}}
	for _, r := range rules {
		for name, rule := range r.Fields() {
			out.Rules[name] = plugins.Rule{Policy: fieldPolicies[rule.Policy], Allowed: rule.Allowed}
		}
		if c := r.Cluster; c != nil {
			out.Cluster = placement.Cluster{
				Defaults: placement.Defaults{
					NodeSelector:  c.NodeSelector,
					Tolerations:   c.Tolerations,
					SchedulerName: c.SchedulerName,
				},
				RuntimeClassName:  c.RuntimeClassName,
				PriorityClassName: c.PriorityClassName,
			}
		}
		if d := r.Defaults; d != nil {
			out.Defaults = placement.Defaults{
				NodeSelector:  d.NodeSelector,
				Tolerations:   d.Tolerations,
				SchedulerName: d.SchedulerName,
			}
			if d.SchedulerName == "" {
				out.Defaults.SchedulerName = scheduler
			}
		}
	}
	return out
}

// decode converts the object of an admission request to the Go type T. A server represents custom
// resources as unstructured objects.
func decode[T any, P typed.Pointer[T]](obj runtime.Object) (P, error) {
	if object, ok := obj.(P); ok {
		return object, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the object has the type %T", obj)
	}
	return typed.Decode[T, P](u)
}

// tenantOf decodes a Tenant and parses its tenant ID.
func tenantOf(obj runtime.Object) (*v1alpha1.Tenant, tenant.ID, error) {
	t, err := decode[v1alpha1.Tenant](obj)
	if err != nil {
		return nil, tenant.ID{}, err
	}
	id, err := idOf(t.Spec.ID)
	return t, id, err
}

// idOf parses the tenant ID of an object.
func idOf(text string) (tenant.ID, error) {
	id, err := tenant.Parse(text)
	if err != nil {
		return tenant.ID{}, fmt.Errorf("spec.id: %w", err)
	}
	return id, nil
}

// tenantRightsOf returns the roles and templates that a Tenant specifies for the tenant's
// namespaces.
func tenantRightsOf(obj runtime.Object) (*rolebinding.Bindings, error) {
	t, id, err := tenantOf(obj)
	if err != nil {
		return nil, err
	}
	return provision.SpreadOf(id, &t.Spec), nil
}

// memberRightsOf returns the roles that TenantMembers specify for the tenant's namespaces.
func memberRightsOf(obj runtime.Object) (*rolebinding.Bindings, error) {
	m, err := decode[v1alpha1.TenantMembers](obj)
	if err != nil {
		return nil, err
	}
	id, err := idOf(m.Spec.ID)
	if err != nil {
		return nil, err
	}
	return provision.MembersSpreadOf(id, &m.Spec), nil
}

// membersSpecOf returns the tenant ID and the spec of TenantMembers.
func membersSpecOf(obj runtime.Object) (tenant.ID, any, error) {
	m, err := decode[v1alpha1.TenantMembers](obj)
	if err != nil {
		return tenant.ID{}, nil, err
	}
	id, err := idOf(m.Spec.ID)
	return id, m.Spec, err
}

// retiredOf converts a RetiredTenant for the plugin of package lifecycle.
func retiredOf(obj runtime.Object) (lifecycle.Record, error) {
	r, err := decode[v1alpha1.RetiredTenant](obj)
	if err != nil {
		return lifecycle.Record{}, err
	}
	id, err := idOf(r.Spec.ID)
	return lifecycle.Record{
		ID:               id,
		UID:              r.Spec.UID,
		DeletionCanceled: r.Spec.TakenBack != "",
		Spec:             r.Spec,
	}, err
}

// templateOf returns the resources of the objects in a NamespaceTemplate. It returns an error if
// the NamespaceTemplate is invalid.
func templateOf(obj runtime.Object) ([]schema.GroupVersionResource, error) {
	stored, err := decode[v1alpha1.NamespaceTemplate](obj)
	if err != nil {
		return nil, err
	}
	t, err := template.Parse(stored)
	if err != nil {
		return nil, err
	}
	return t.Resources(), t.Validate()
}

// removedResources returns the resources of the objects that an update removes from a
// NamespaceTemplate. If the old template is invalid, it returns all resources that a template may
// contain.
func removedResources(oldObj, newObj runtime.Object) []schema.GroupVersionResource {
	before, err := objectsOf(oldObj)
	if err != nil {
		return slices.SortedFunc(maps.Values(template.Kinds()), compareResources)
	}
	now, err := objectsOf(newObj)
	if err != nil {
		now = nil
	}
	var dropped []schema.GroupVersionResource
	for object, r := range before {
		if _, ok := now[object]; !ok && !slices.Contains(dropped, r) {
			dropped = append(dropped, r)
		}
	}
	slices.SortFunc(dropped, compareResources)
	return dropped
}

func compareResources(a, b schema.GroupVersionResource) int {
	return cmp.Compare(a.String(), b.String())
}

// objectsOf returns the resource of each object in a NamespaceTemplate, keyed by kind and name.
func objectsOf(obj runtime.Object) (map[string]schema.GroupVersionResource, error) {
	stored, err := decode[v1alpha1.NamespaceTemplate](obj)
	if err != nil {
		return nil, err
	}
	t, err := template.Parse(stored)
	if err != nil {
		return nil, err
	}
	all := map[string]schema.GroupVersionResource{}
	for _, content := range t.Objects {
		u := unstructured.Unstructured{Object: content}
		if r, known := template.Kinds()[u.GroupVersionKind()]; known {
			all[u.GetKind()+" "+u.GetName()] = r
		}
	}
	return all, nil
}

// lifecycleOf returns the fields of a Tenant that determine whether the Tenant may be created or
// deleted.
func lifecycleOf(obj runtime.Object) (*lifecycle.TenantSpec, error) {
	t, id, err := tenantOf(obj)
	if err != nil {
		return nil, err
	}
	policy := t.Spec.DeletionPolicy
	return &lifecycle.TenantSpec{
		ID:        id,
		Replaces:  t.Spec.Replaces,
		Protected: policy != v1alpha1.TenantDeletionDelete && policy != v1alpha1.TenantDeletionOrphan,
	}, nil
}
