// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// WriterRule specifies the rights that the author of a change to a field must have. The server uses
// the same rights when it applies the field.
type WriterRule struct {
	// Rights returns the rights that a change of the field in a Tenant requires. It returns no
	// rights if the field does not change.
	Rights func(field string, was, is *v1alpha1.Tenant) []lifecycle.Right
	// Reason explains why Rights is nil.
	Reason string
}

// The reasons why fields in [WriterRules] have no Rights.
const (
	reasonNoWrite  = "the server writes no other object because of this field"
	reasonBind     = "TenantRoleBinding requires the right to bind the ClusterRoles"
	reasonUse      = "TenantRoleBinding requires the right to use the NamespaceTemplate"
	reasonMembers  = "the writer of the Tenant was asked for the right to bind the ClusterRoles"
	reasonRules    = "TenantRoleBinding requires the rights that the Roles give, or the right to escalate the Roles"
	reasonTemplate = "TenantManaged requires the rights to create, update and delete the objects"
	reasonGrant    = "TenantGrant requires the rights that the grant allows"
	reasonPublish  = "TenantManaged requires the rights to get the source and to write its copies"
	reasonQuota    = "the field applies to the writer's own object"
)

// WriterRules returns the rules of the spec fields of the kinds that callers write, keyed by kind
// and field path. A test checks that every field has a rule.
func WriterRules() map[string]map[string]WriterRule {
	noRights := func(reason string) WriterRule { return WriterRule{Reason: reason} }
	requires := func(rights func(string, *v1alpha1.Tenant, *v1alpha1.Tenant) []lifecycle.Right) WriterRule {
		return WriterRule{Rights: rights}
	}
	return map[string]map[string]WriterRule{
		v1alpha1.KindTenant: {
			"spec.id":                     noRights(reasonNoWrite),
			"spec.access":                 noRights(reasonNoWrite),
			"spec.suspension":             noRights(reasonNoWrite),
			"spec.replaces":               noRights(reasonNoWrite),
			"spec.acceptUndated":          noRights(reasonNoWrite),
			"spec.fairUse":                noRights(reasonNoWrite),
			"spec.admins":                 noRights(reasonBind),
			"spec.bindings":               noRights(reasonBind),
			"spec.memberRoles":            noRights(reasonBind),
			"spec.quota":                  requires(quotaRights),
			"spec.deletionPolicy":         requires(policyRights),
			"spec.deletionDelay":          requires(delayRights),
			"spec.namespaces.labels":      requires(labelRights),
			"spec.namespaces.podSecurity": requires(podSecurityRights),
			"spec.namespaces.max":         requires(namespaceLimitRights),
			"spec.namespaces.prefix":      noRights(reasonNoWrite),
			"spec.namespaces.templates":   noRights(reasonUse),
		},
		v1alpha1.KindTenantMembers: {
			"spec.id":       noRights(reasonNoWrite),
			"spec.bindings": noRights(reasonMembers),
			"spec.roles":    noRights(reasonRules),
		},
		v1alpha1.KindNamespaceTemplate: {
			"spec.hold":    noRights(reasonNoWrite),
			"spec.objects": noRights(reasonTemplate),
		},
		v1alpha1.KindPublication: {
			"spec.from":              noRights(reasonPublish),
			"spec.tenants":           noRights(reasonPublish),
			"spec.namespaceSelector": noRights(reasonPublish),
			"spec.onConflict":        noRights(reasonPublish),
			"spec.hold":              noRights(reasonPublish),
		},
		v1alpha1.KindTenantQuota: {
			"spec.tenant": noRights(reasonQuota),
			"spec.hard":   noRights(reasonQuota),
		},
		v1alpha1.KindAccessGrant: {
			"spec.from":     noRights(reasonGrant),
			"spec.to":       noRights(reasonGrant),
			"spec.expires":  noRights(reasonGrant),
			"spec.announce": noRights(reasonNoWrite),
			"spec.grantor":  noRights(reasonNoWrite),
		},
	}
}

// writerRights returns the rights that the author of a change of a Tenant must have. oldObj is nil
// if the Tenant is created. An invalid old Tenant is treated as an empty one.
func writerRights(oldObj, newObj runtime.Object) (all []lifecycle.Right, err error) {
	newTenant, _, err := tenantOf(newObj)
	if err != nil {
		return nil, err
	}
	oldTenant := &v1alpha1.Tenant{}
	if oldObj != nil {
		if old, _, err := tenantOf(oldObj); err == nil {
			oldTenant = old
		}
	}
	rules := WriterRules()[v1alpha1.KindTenant]
	for _, field := range slices.Sorted(maps.Keys(rules)) {
		if rights := rules[field].Rights; rights != nil {
			all = append(all, rights(field, oldTenant, newTenant)...)
		}
	}
	return all, nil
}

func namespacesResource() schema.GroupResource { return corev1.Resource("namespaces") }

func quotasResource() schema.GroupResource { return v1alpha1.Resource(v1alpha1.ResourceTenantQuotas) }

// labelRights returns the right to update namespaces, if the labels change.
func labelRights(field string, oldTenant, newTenant *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(oldTenant.Spec.Namespaces.Labels, newTenant.Spec.Namespaces.Labels) {
		return nil
	}
	return []lifecycle.Right{{Field: field, Verb: "update", GroupResource: namespacesResource()}}
}

// podSecurityRights returns the right to update namespaces, if the Pod Security level changes.
func podSecurityRights(field string, oldTenant, newTenant *v1alpha1.Tenant) []lifecycle.Right {
	if oldTenant.Spec.Namespaces.PodSecurity == newTenant.Spec.Namespaces.PodSecurity {
		return nil
	}
	return []lifecycle.Right{{Field: field, Verb: "update", GroupResource: namespacesResource()}}
}

// quotaRights returns the rights to write or delete TenantQuotas, if the quota of the Tenant
// changes.
func quotaRights(field string, oldTenant, newTenant *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(oldTenant.Spec.Quota, newTenant.Spec.Quota) {
		return nil
	}
	if len(newTenant.Spec.Quota) == 0 {
		return quotaDeletion(field)
	}
	return quotaWrites(field)
}

// namespaceLimitRights is like quotaRights, for the maximum number of namespaces.
func namespaceLimitRights(field string, oldTenant, newTenant *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(oldTenant.Spec.Namespaces.Max, newTenant.Spec.Namespaces.Max) {
		return nil
	}
	if newTenant.Spec.Namespaces.Max == nil {
		return quotaDeletion(field)
	}
	return quotaWrites(field)
}

func quotaDeletion(field string) []lifecycle.Right {
	return []lifecycle.Right{{Field: field, Verb: "delete", GroupResource: quotasResource()}}
}

func quotaWrites(field string) []lifecycle.Right {
	return []lifecycle.Right{
		{Field: field, Verb: "create", GroupResource: quotasResource()},
		{Field: field, Verb: "update", GroupResource: quotasResource()},
	}
}

// deletedResources returns the resources whose objects the server deletes after a Tenant with the
// given policy was deleted. The author of the policy needs the right to delete them. TenantUsages
// are also deleted but require no right.
func deletedResources(policy v1alpha1.TenantDeletionPolicy) []schema.GroupResource {
	others := []schema.GroupResource{
		{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}, quotasResource(), membersResource(),
	}
	switch policy {
	case v1alpha1.TenantDeletionDelete:
		return append([]schema.GroupResource{namespacesResource()}, others...)
	case v1alpha1.TenantDeletionOrphan:
		return others
	}
	return nil
}

// policyRights returns the rights to delete the resources that the server deletes because of the
// new deletion policy, and not because of the old one.
func policyRights(field string, oldTenant, newTenant *v1alpha1.Tenant) (all []lifecycle.Right) {
	before := deletedResources(oldTenant.Spec.DeletionPolicy)
	for _, r := range deletedResources(newTenant.Spec.DeletionPolicy) {
		if !slices.Contains(before, r) {
			all = append(all, lifecycle.Right{Field: field, Verb: "delete", GroupResource: r})
		}
	}
	return all
}

// delayRights returns the rights to delete the resources of a Tenant that is being deleted, if the
// change makes the deletion delay shorter.
func delayRights(field string, oldTenant, newTenant *v1alpha1.Tenant) (all []lifecycle.Right) {
	if newTenant.DeletionTimestamp == nil || deletionDelay(newTenant) >= deletionDelay(oldTenant) {
		return nil
	}
	for _, r := range deletedResources(newTenant.Spec.DeletionPolicy) {
		all = append(all, lifecycle.Right{Field: field, Verb: "delete", GroupResource: r})
	}
	return all
}

func deletionDelay(t *v1alpha1.Tenant) time.Duration {
	if t.Spec.DeletionDelay == nil {
		return 0
	}
	return t.Spec.DeletionDelay.Duration
}
