package v1alpha1

import _ "embed" // the definition

//go:embed tenantquotas.yaml
var tenantQuotaDefinition string

// Definitions returns the CustomResourceDefinitions of the project's kinds, YAML, by their file names.
func Definitions() map[string]string {
	return map[string]string{"accessgrants.yaml": accessGrantDefinition, "tenantquotas.yaml": tenantQuotaDefinition}
}
