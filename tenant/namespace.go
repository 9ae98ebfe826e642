package tenant

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NamespaceSeparator stands between a tenant and the rest of the name of its namespace.
const NamespaceSeparator = "--"

// NamespacePrefix returns what the names of the tenant's namespaces begin with where a prefix is required, "<id>--".
// It is empty for an ID that may create none then: the system tenant's, and one that is no lower-case DNS label or
// holds the separator. So no name begins with the prefixes of two tenants.
func (id ID) NamespacePrefix() string {
	if id.IsSystem() || len(validation.IsDNS1123Label(id.name)) > 0 || strings.Contains(id.name, NamespaceSeparator) {
		return ""
	}
	return id.name + NamespaceSeparator
}

// PrefixOwner returns the one tenant with whose [ID.NamespacePrefix] the name of a namespace begins, having more
// behind it; the zero ID where there is none.
func PrefixOwner(namespace string) ID {
	name, rest, _ := strings.Cut(namespace, NamespaceSeparator)
	id, err := Parse(name)
	if err != nil || rest == "" || id.NamespacePrefix() == "" {
		return ID{}
	}
	return id
}
