// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// NamespaceSeparator separates the tenant from the rest of the name of its namespace.
const NamespaceSeparator = "--"

// NamespacePrefix returns the prefix "<id>--" that the names of the tenant's namespaces must have
// if prefixes are required. It is empty for an ID that may not create namespaces then. These are
// the system tenant, and an ID that is not a lower-case DNS label or contains the separator. No
// name can therefore begin with the prefixes of two tenants.
func (id ID) NamespacePrefix() string {
	if id.IsSystem() || !isDNSLabel(id.name) || strings.Contains(id.name, NamespaceSeparator) {
		return ""
	}
	return id.name + NamespaceSeparator
}

// PrefixOwner returns the only tenant whose [ID.NamespacePrefix] is a prefix of the name of a
// namespace, with more text after it. It returns the zero ID if there is none.
func PrefixOwner(namespace string) ID {
	name, rest, _ := strings.Cut(namespace, NamespaceSeparator)
	id, err := Parse(name)
	if err != nil || rest == "" || id.NamespacePrefix() == "" {
		return ID{}
	}
	return id
}

// ObjectName returns the name of a cluster-scoped object of which each tenant has one. It is the ID
// if that is a valid object name. Otherwise, it is a name that no other tenant can have. The zero
// ID has no object name.
func (id ID) ObjectName() string {
	if isDNSLabel(id.name) {
		return id.name
	}
	return id.DistinctObjectName()
}

// DistinctObjectName returns [ID.ObjectName] with a hash of the ID, for use if that name may be
// taken.
func (id ID) DistinctObjectName() string {
	if id.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(id.name))
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(id.name)) + "." + hex.EncodeToString(sum[:4])
}
