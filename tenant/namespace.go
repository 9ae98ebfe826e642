// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// NamespaceSeparator separates the tenant ID from the rest of the name of a tenant's namespace.
const NamespaceSeparator = "--"

// NamespacePrefix returns the prefix "<id>--" that the names of the tenant's namespaces must
// have if prefixes are required. It returns "" for a tenant that cannot create namespaces in
// this case. These are the system tenant, and a tenant whose ID is not a lower-case DNS label or
// contains the separator. No name can therefore begin with the prefixes of two tenants.
func (id ID) NamespacePrefix() string {
	if id.IsSystem() || !isDNSLabel(id.name) || strings.Contains(id.name, NamespaceSeparator) {
		return ""
	}
	return id.name + NamespaceSeparator
}

// PrefixOwner returns the tenant whose [ID.NamespacePrefix] is a prefix of the namespace's name
// and is shorter than the name. It returns the zero ID if there is no matching tenant.
func PrefixOwner(namespace string) ID {
	name, rest, _ := strings.Cut(namespace, NamespaceSeparator)
	id, err := Parse(name)
	if err != nil || rest == "" || id.NamespacePrefix() == "" {
		return ID{}
	}
	return id
}

// ObjectName returns the name of a cluster-scoped object of a kind that has one object for each
// tenant. The name is the ID if the ID is a lower-case DNS label. Otherwise, the name is
// [ID.DistinctObjectName]. For the zero ID, ObjectName returns "".
func (id ID) ObjectName() string {
	if isDNSLabel(id.name) {
		return id.name
	}
	return id.DistinctObjectName()
}

// DistinctObjectName returns a valid object name from the ID and a hash of the ID. Use it if
// another object may already have the name [ID.ObjectName].
func (id ID) DistinctObjectName() string {
	if id.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(id.name))
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(id.name)) + "." + hex.EncodeToString(sum[:4])
}
