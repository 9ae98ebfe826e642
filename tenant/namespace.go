// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// NamespaceSeparator stands between a tenant and the rest of the name of its namespace.
const NamespaceSeparator = "--"

// NamespacePrefix returns what the names of the tenant's namespaces begin with where a prefix is
// required, "<id>--". It is empty for an ID that may create none then: the system tenant's, and
// one that is no lower-case DNS label or holds the separator. So no name begins with the
// prefixes of two tenants.
func (id ID) NamespacePrefix() string {
	if id.IsSystem() || !isDNSLabel(id.name) || strings.Contains(id.name, NamespaceSeparator) {
		return ""
	}
	return id.name + NamespaceSeparator
}

// PrefixOwner returns the one tenant with whose [ID.NamespacePrefix] the name of a namespace
// begins, having more behind it; the zero ID where there is none.
func PrefixOwner(namespace string) ID {
	name, rest, _ := strings.Cut(namespace, NamespaceSeparator)
	id, err := Parse(name)
	if err != nil || rest == "" || id.NamespacePrefix() == "" {
		return ID{}
	}
	return id
}

// ObjectName returns the name of a cluster-scoped object that there is one of for a
// tenant: the ID where that can be an object's name, and else one that no other tenant's
// can be. The zero ID has none.
func (id ID) ObjectName() string {
	if isDNSLabel(id.name) {
		return id.name
	}
	return id.DistinctObjectName()
}

// DistinctObjectName is [ID.ObjectName] with a hash of the ID, for where that name may be taken.
func (id ID) DistinctObjectName() string {
	if id.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(id.name))
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(id.name)) + "." + hex.EncodeToString(sum[:4])
}
