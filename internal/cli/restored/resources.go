// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// resource is a resource whose objects are compared with the audit logs.
type resource struct {
	schema.GroupVersionResource
	kind string
	// recreatedEffect describes the effect if a deleted object exists again. olderEffect describes
	// the effect if an object is missing or has older content.
	recreatedEffect, olderEffect string
	// isOfService specifies that only objects in the namespace of the webhook service or gateway
	// are compared.
	isOfService bool
	// deletions specifies that only deletions are compared.
	deletions bool
}

// resources returns the compared resources, in the order in which their findings are reported.
func resources() []resource {
	tenantResource := func(name, kind, again, older string) resource {
		return resource{
			GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource(name),
			kind:                 kind,
			recreatedEffect:      again,
			olderEffect:          older,
		}
	}
	rbac := func(name, kind string) resource {
		return resource{
			GroupVersionResource: rbacv1.SchemeGroupVersion.WithResource(name),
			kind:                 kind,
			recreatedEffect:      "its rights are valid again",
			olderEffect:          "removed rights may be valid again",
		}
	}
	core := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: name}
	}
	return []resource{
		tenantResource(
			v1alpha1.ResourceTenants,
			v1alpha1.KindTenant,
			"its callers have access again, and its name is not reserved",
			"a suspension may be missing, and removed admins may have access again",
		),
		tenantResource(v1alpha1.ResourceRetiredTenants, v1alpha1.KindRetiredTenant, "it reserves the name again",
			"the name of the deleted tenant is not reserved"),
		tenantResource(v1alpha1.ResourceTenantMembers, v1alpha1.KindTenantMembers, "its members have their roles again",
			"removed members may have their roles again"),
		tenantResource(v1alpha1.ResourceAccessGrants, v1alpha1.KindAccessGrant, "the grant is valid again",
			"the grant may allow more than its owner wants"),
		tenantResource(v1alpha1.ResourceTenantQuotas, v1alpha1.KindTenantQuota, "it limits the tenant again",
			"the tenant may have its former limits"),
		tenantResource(v1alpha1.ResourcePublications, v1alpha1.KindPublication, "it copies its object to tenants again",
			"it may copy to tenants that it no longer names"),
		tenantResource(v1alpha1.ResourceNamespaceTemplates, v1alpha1.KindNamespaceTemplate, "tenants may use it again",
			"namespaces may lack objects of the template"),
		{
			GroupVersionResource: core("namespaces"),
			kind:                 "Namespace",
			recreatedEffect:      "its objects and the tokens of its service accounts are valid again",
			olderEffect:          "it may have its former labels",
		},
		rbac("clusterrolebindings", "ClusterRoleBinding"),
		rbac("clusterroles", "ClusterRole"),
		rbac("rolebindings", "RoleBinding"),
		rbac("roles", "Role"),
		{
			GroupVersionResource: core("serviceaccounts"),
			kind:                 "ServiceAccount",
			recreatedEffect:      "its tokens are valid again",
			deletions:            true,
		},
		{
			GroupVersionResource: core("secrets"),
			kind:                 "Secret",
			recreatedEffect:      "the service may use it again",
			olderEffect:          "later revocations and changes of the configuration are not in effect",
			isOfService:          true,
		},
	}
}

// compared returns the entry of a resource, or nil if the resource is not compared.
func compared(groupResource schema.GroupResource) *resource {
	rows := resources()
	for i := range rows {
		if rows[i].GroupResource() == groupResource {
			return &rows[i]
		}
	}
	return nil
}

// object contains the metadata of an object that is needed to compare it.
type object struct {
	created, written  time.Time
	deleting, managed bool
}

func newObject(m *metav1.PartialObjectMetadata) object {
	o := object{
		created:  m.CreationTimestamp.Time,
		written:  m.CreationTimestamp.Time,
		deleting: m.DeletionTimestamp != nil,
		managed:  m.Labels[tenant.ManagedLabel] != "",
	}
	for _, by := range m.ManagedFields {
		if by.Subresource == "" && by.Time != nil && by.Time.After(o.written) {
			o.written = by.Time.Time
		}
	}
	return o
}
