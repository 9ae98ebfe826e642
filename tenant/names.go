// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// serviceAccountNames begins every user and group name of a service account.
const serviceAccountNames = "system:serviceaccount"

// SystemNames are the names that stand for the system tenant where nothing else tells the tenant,
// and that nobody else may therefore bear.
//
// The zero value, and nil, hold no identity to be the system's; the reserved prefixes "system:" and
// "tenant:" are reserved even so. It is safe for concurrent use as long as nobody changes it.
type SystemNames struct {
	Users        []string // exact user names
	UserPrefixes []string // beginnings of user names
	Groups       []string // exact group names; one is enough
	// Organizations are reserved as group names too: an old-format certificate that bears one is
	// the system tenant's.
	Organizations []string
	// CommonNames are reserved as user names. An old-format certificate with one of them belongs to
	// the system tenant. Other callers do not become system callers by such a name.
	CommonNames []string
}

// Has reports whether u is the system tenant's by its name or by one of its groups.
//
// Security: callers MUST have ruled out that u was impersonated by a tenant's caller.
func (n *SystemNames) Has(u user.Info) bool {
	return n.hasUser(u.GetName()) || slices.ContainsFunc(u.GetGroups(), n.hasGroup)
}

func (n *SystemNames) hasUser(name string) bool {
	return n != nil && (slices.Contains(n.Users, name) ||
		slices.ContainsFunc(n.UserPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }))
}

func (n *SystemNames) hasGroup(name string) bool {
	return n != nil && slices.Contains(n.Groups, name)
}

// ReservedUser reports whether only the system tenant's callers may bear the user name.
func (n *SystemNames) ReservedUser(name string) bool {
	return strings.HasPrefix(name, "system:") || n.hasUser(name) || n != nil && slices.Contains(n.CommonNames, name)
}

// ReservedGroup reports whether only the system tenant's callers, or, for groups that begin
// "tenant:", no credential at all may bring the group.
func (n *SystemNames) ReservedGroup(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, GroupPrefix) ||
		n.hasGroup(name) || n != nil && slices.Contains(n.Organizations, name)
}

// IsServiceAccountName reports whether a user or group name is in the space that only the
// cluster's own service-account tokens may fill.
func IsServiceAccountName(name string) bool { return strings.HasPrefix(name, serviceAccountNames) }

// ServiceAccountNamespace returns the namespace of a service account's user name; ok is false for
// a name that is no service account's.
//
// It is [serviceaccount.SplitUsername] without the regular expressions: each decision, and each
// admission plugin, asks it of a service account. A fuzz target holds the two equal.
func ServiceAccountNamespace(name string) (namespace string, ok bool) {
	name, ok = strings.CutPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
	namespace, account, _ := strings.Cut(name, serviceaccount.ServiceAccountUsernameSeparator)
	if !ok || len(namespace) > validation.DNS1123LabelMaxLength || !isDNSLabel(namespace) || !isDNSSubdomain(account) {
		return "", false
	}
	return namespace, true
}

// isDNSSubdomain reports whether s is dot-separated labels, which as upstream has it
// are limited together only.
func isDNSSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return len(s) <= validation.DNS1123SubdomainMaxLength
}

// isDNSLabel reports whether s is a label of RFC 1123 in lower case, of any length but none.
func isDNSLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[len(s)-1] != '-'
}

// IsReservedExtraKey reports whether an extra key lies under kubetenant.dev/, *.kubernetes.io/ or
// *.k8s.io/, in any case: the keys by which servers speak to each other, which no remote content
// and no impersonation by a tenant may set.
func IsReservedExtraKey(key string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	for _, reserved := range []string{Domain, "kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return true
		}
	}
	return false
}
