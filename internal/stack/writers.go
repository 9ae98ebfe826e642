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

// WriterRule specifies the rights that the writer of a field needs. They are the rights that the
// server uses to carry out the field.
type WriterRule struct {
	// Rights returns the rights that the change of a Tenant needs because of the field.
	Rights func(field string, was, is *v1alpha1.Tenant) []lifecycle.Right
	// Reason states why Rights is nil.
	Reason string
}

// The reasons of fields for which [WriterRules] has no rights.
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

// WriterRules returns the rules of all fields of the specs that callers write, by kind and path. A
// field without a rule is an error of the project, which a test reports.
func WriterRules() map[string]map[string]WriterRule {
	because := func(reason string) WriterRule { return WriterRule{Reason: reason} }
	asks := func(rights func(string, *v1alpha1.Tenant, *v1alpha1.Tenant) []lifecycle.Right) WriterRule {
		return WriterRule{Rights: rights}
	}
	return map[string]map[string]WriterRule{
		v1alpha1.KindTenant: {
			"spec.id":                     because(reasonNoWrite),
			"spec.access":                 because(reasonNoWrite),
			"spec.suspension":             because(reasonNoWrite),
			"spec.replaces":               because(reasonNoWrite),
			"spec.acceptUndated":          because(reasonNoWrite),
			"spec.fairUse":                because(reasonNoWrite),
			"spec.admins":                 because(reasonBind),
			"spec.bindings":               because(reasonBind),
			"spec.memberRoles":            because(reasonBind),
			"spec.quota":                  asks(quotaRights),
			"spec.deletionPolicy":         asks(policyRights),
			"spec.deletionDelay":          asks(delayRights),
			"spec.namespaces.labels":      asks(labelRights),
			"spec.namespaces.podSecurity": asks(levelRights),
			"spec.namespaces.max":         asks(maxRights),
			"spec.namespaces.prefix":      because(reasonNoWrite),
			"spec.namespaces.templates":   because(reasonUse),
		},
		v1alpha1.KindTenantMembers: {
			"spec.id":       because(reasonNoWrite),
			"spec.bindings": because(reasonMembers),
			"spec.roles":    because(reasonRules),
		},
		v1alpha1.KindNamespaceTemplate: {
			"spec.hold":    because(reasonNoWrite),
			"spec.objects": because(reasonTemplate),
		},
		v1alpha1.KindPublication: {
			"spec.from":              because(reasonPublish),
			"spec.tenants":           because(reasonPublish),
			"spec.namespaceSelector": because(reasonPublish),
			"spec.onConflict":        because(reasonPublish),
			"spec.hold":              because(reasonPublish),
		},
		v1alpha1.KindTenantQuota: {
			"spec.tenant": because(reasonQuota),
			"spec.hard":   because(reasonQuota),
		},
		v1alpha1.KindAccessGrant: {
			"spec.from":     because(reasonGrant),
			"spec.to":       because(reasonGrant),
			"spec.expires":  because(reasonGrant),
			"spec.announce": because(reasonNoWrite),
			"spec.grantor":  because(reasonNoWrite),
		},
	}
}

// writerRights returns the rights that the writer of a Tenant needs. was is nil if the Tenant is
// created. An old Tenant that does not decode is treated as an empty one.
func writerRights(was, is runtime.Object) (all []lifecycle.Right, err error) {
	now, _, err := tenantOf(is)
	if err != nil {
		return nil, err
	}
	before := &v1alpha1.Tenant{}
	if was != nil {
		if old, _, err := tenantOf(was); err == nil {
			before = old
		}
	}
	rules := WriterRules()[v1alpha1.KindTenant]
	for _, field := range slices.Sorted(maps.Keys(rules)) {
		if rights := rules[field].Rights; rights != nil {
			all = append(all, rights(field, before, now)...)
		}
	}
	return all, nil
}

func namespacesResource() schema.GroupResource { return corev1.Resource("namespaces") }

func quotasResource() schema.GroupResource { return v1alpha1.Resource(v1alpha1.ResourceTenantQuotas) }

// labelRights returns the right with which the server labels the namespaces.
func labelRights(field string, was, is *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(was.Spec.Namespaces.Labels, is.Spec.Namespaces.Labels) {
		return nil
	}
	return []lifecycle.Right{{Field: field, Verb: "update", GroupResource: namespacesResource()}}
}

// levelRights is like labelRights.
func levelRights(field string, was, is *v1alpha1.Tenant) []lifecycle.Right {
	if was.Spec.Namespaces.PodSecurity == is.Spec.Namespaces.PodSecurity {
		return nil
	}
	return []lifecycle.Right{{Field: field, Verb: "update", GroupResource: namespacesResource()}}
}

// quotaRights returns the rights with which the server writes the TenantQuota of the Tenant.
func quotaRights(field string, was, is *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(was.Spec.Quota, is.Spec.Quota) {
		return nil
	}
	if len(is.Spec.Quota) == 0 {
		return quotaDeletion(field)
	}
	return quotaWrites(field)
}

// maxRights is like quotaRights.
func maxRights(field string, was, is *v1alpha1.Tenant) []lifecycle.Right {
	if equality.Semantic.DeepEqual(was.Spec.Namespaces.Max, is.Spec.Namespaces.Max) {
		return nil
	}
	if is.Spec.Namespaces.Max == nil {
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

// deletes returns the resources that the server deletes at the end of a Tenant.
func deletes(policy v1alpha1.TenantDeletionPolicy) []schema.GroupResource {
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

// policyRights returns the rights with which the server ends the Tenant, except those that its
// earlier policy used.
func policyRights(field string, was, is *v1alpha1.Tenant) (all []lifecycle.Right) {
	before := deletes(was.Spec.DeletionPolicy)
	for _, r := range deletes(is.Spec.DeletionPolicy) {
		if !slices.Contains(before, r) {
			all = append(all, lifecycle.Right{Field: field, Verb: "delete", GroupResource: r})
		}
	}
	return all
}

// delayRights returns the rights with which the server ends a Tenant that is being deleted, if the
// end comes earlier.
func delayRights(field string, was, is *v1alpha1.Tenant) (all []lifecycle.Right) {
	if is.DeletionTimestamp == nil || delayOf(is) >= delayOf(was) {
		return nil
	}
	for _, r := range deletes(is.Spec.DeletionPolicy) {
		all = append(all, lifecycle.Right{Field: field, Verb: "delete", GroupResource: r})
	}
	return all
}

func delayOf(t *v1alpha1.Tenant) time.Duration {
	if t.Spec.DeletionDelay == nil {
		return 0
	}
	return t.Spec.DeletionDelay.Duration
}
