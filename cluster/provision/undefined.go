package provision

import (
	"strings"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// undefinedFor returns which definitions cannot be used of the kinds from which the namespaces of a Tenant get something,
// "" for none.
func (e *Engine) undefinedFor(t *v1alpha1.Tenant) string {
	var needed []string
	if len(t.Spec.Namespaces.Templates) > 0 {
		needed = append(needed, v1alpha1.ResourceNamespaceTemplates)
	}
	if len(t.Spec.MemberRoles) > 0 {
		needed = append(needed, v1alpha1.ResourceTenantMembers)
	}
	if len(t.Spec.Hard()) > 0 {
		needed = append(needed, v1alpha1.ResourceTenantQuotas)
	}
	return e.undefined(needed...)
}

// undefinedForAll returns which definitions cannot be used of the kinds on which requests of every tenant depend, "" for none.
func (e *Engine) undefinedForAll() string {
	return e.undefined(v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants, v1alpha1.ResourceAccessGrants,
		v1alpha1.ResourceTenantQuotas)
}

func (e *Engine) undefined(resources ...string) string {
	var said []string
	for _, resource := range resources {
		if problem := e.Definitions.Undefined(resource); problem != "" {
			said = append(said, problem)
		}
	}
	return strings.Join(said, "; ")
}
