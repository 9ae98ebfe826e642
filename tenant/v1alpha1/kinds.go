package v1alpha1

import (
	_ "embed" // the definition

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
)

// GroupVersion is the group and version of the project's kinds and files.
const GroupVersion = "kubetenant.dev/v1alpha1"

// FieldManager is the field manager of what the project writes itself.
const FieldManager = "kubetenant"

// The resources of the project's kinds.
const (
	ResourceAccessGrants       = "accessgrants"
	ResourceTenantQuotas       = "tenantquotas"
	ResourceTenants            = "tenants"
	ResourceRetiredTenants     = "retiredtenants"
	ResourceNamespaceTemplates = "namespacetemplates"
	ResourceTenantMembers      = "tenantmembers"
)

// ResourceNames returns all of them.
func ResourceNames() []string {
	return []string{
		ResourceAccessGrants, ResourceNamespaceTemplates, ResourceRetiredTenants,
		ResourceTenantMembers, ResourceTenantQuotas, ResourceTenants,
	}
}

// Resource returns one of them with its group and version.
func Resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: name}
}

//go:embed tenantquotas.yaml
var tenantQuotaDefinition string

//go:embed tenants.yaml
var tenantDefinition string

//go:embed retiredtenants.yaml
var retiredTenantDefinition string

//go:embed namespacetemplates.yaml
var namespaceTemplateDefinition string

//go:embed tenantmembers.yaml
var tenantMembersDefinition string

// Definitions returns the CustomResourceDefinitions of the project's kinds,
// YAML, by their file names.
func Definitions() map[string]string {
	return map[string]string{
		"accessgrants.yaml":       accessGrantDefinition,
		"tenantquotas.yaml":       tenantQuotaDefinition,
		"tenants.yaml":            tenantDefinition,
		"retiredtenants.yaml":     retiredTenantDefinition,
		"namespacetemplates.yaml": namespaceTemplateDefinition,
		"tenantmembers.yaml":      tenantMembersDefinition,
	}
}
