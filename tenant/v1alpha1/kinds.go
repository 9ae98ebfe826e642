// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// FieldManager is the field manager of objects that the project's own components write.
const FieldManager = "kubetenant"

// UsageManager is the field manager of the field "stored" of a TenantUsage. The field manager of
// a server's own entry is this name, a hyphen, and the name of the server.
const UsageManager = "kubetenant-usage"

// The resource names of the project's kinds.
const (
	ResourceAccessGrants       = "accessgrants"
	ResourceTenantQuotas       = "tenantquotas"
	ResourceTenants            = "tenants"
	ResourceRetiredTenants     = "retiredtenants"
	ResourceNamespaceTemplates = "namespacetemplates"
	ResourceTenantMembers      = "tenantmembers"
	ResourcePublications       = "publications"
	ResourceTenantUsages       = "tenantusages"
)

// ResourceNames returns the resources of the project's kinds in alphabetical order.
func ResourceNames() []string {
	return []string{
		ResourceAccessGrants, ResourceNamespaceTemplates, ResourcePublications, ResourceRetiredTenants,
		ResourceTenantMembers, ResourceTenantQuotas, ResourceTenants, ResourceTenantUsages,
	}
}
