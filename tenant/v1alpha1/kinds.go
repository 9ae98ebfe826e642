package v1alpha1

// FieldManager is the field manager of objects that the project itself writes.
const FieldManager = "kubetenant"

// The resources of the project's kinds.
const (
	ResourceAccessGrants       = "accessgrants"
	ResourceTenantQuotas       = "tenantquotas"
	ResourceTenants            = "tenants"
	ResourceRetiredTenants     = "retiredtenants"
	ResourceNamespaceTemplates = "namespacetemplates"
	ResourceTenantMembers      = "tenantmembers"
	ResourcePublications       = "publications"
)

// ResourceNames returns the resources of the project's kinds in order.
func ResourceNames() []string {
	return []string{
		ResourceAccessGrants, ResourceNamespaceTemplates, ResourcePublications, ResourceRetiredTenants,
		ResourceTenantMembers, ResourceTenantQuotas, ResourceTenants,
	}
}
