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

// serviceAccountNames is the prefix of the user names and group names of service accounts.
const serviceAccountNames = "system:serviceaccount"

// SystemNames are the names that make an identity belong to the system tenant, even if the
// identity does not name a tenant. Callers of other tenants may not have these names.
//
// With the zero value or nil, no identity belongs to the system tenant by its name. The prefixes
// "system:" and "tenant:" are reserved even then. SystemNames is safe for concurrent use if it is
// not changed.
type SystemNames struct {
	Users        []string // exact user names
	UserPrefixes []string // prefixes of user names
	Groups       []string // exact group names; membership in one group is enough
	// Organizations are also reserved as group names. An old-format certificate (package
	// authn/x509) with one of these organizations belongs to the system tenant.
	Organizations []string
	// CommonNames are reserved as user names. An old-format certificate with one of these common
	// names belongs to the system tenant. [SystemNames.Has] ignores them.
	CommonNames []string
}

// Has reports whether u belongs to the system tenant by its user name or by one of its groups.
//
// Security: callers MUST have checked that u was not impersonated by a tenant's caller.
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

// ReservedUser reports whether only callers of the system tenant may have the user name.
func (n *SystemNames) ReservedUser(name string) bool {
	return strings.HasPrefix(name, "system:") || n.hasUser(name) || n != nil && slices.Contains(n.CommonNames, name)
}

// ReservedGroup reports whether only callers of the system tenant may have the group. It is also true
// for groups that begin with "tenant:". Only the server itself adds them, except with FromGroups.
func (n *SystemNames) ReservedGroup(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, GroupPrefix) ||
		n.hasGroup(name) || n != nil && slices.Contains(n.Organizations, name)
}

// IsServiceAccountName reports whether a user or group name has the prefix of service accounts.
// Only the cluster's own service-account tokens may contain names with this prefix.
func IsServiceAccountName(name string) bool { return strings.HasPrefix(name, serviceAccountNames) }

// ServiceAccountNamespace returns the namespace in the user name of a service account. ok is
// false if the name is not the name of a service account.
//
// It is [serviceaccount.SplitUsername] without the regular expressions, because each decision and
// each admission plugin calls it for a service account. A fuzz target compares the two functions.
func ServiceAccountNamespace(name string) (namespace string, ok bool) {
	name, ok = strings.CutPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
	namespace, account, _ := strings.Cut(name, serviceaccount.ServiceAccountUsernameSeparator)
	if !ok || len(namespace) > validation.DNS1123LabelMaxLength || !isDNSLabel(namespace) || !isDNSSubdomain(account) {
		return "", false
	}
	return namespace, true
}

// isDNSSubdomain reports whether s consists of DNS labels separated by dots. As in upstream, only
// the total length is limited.
func isDNSSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return len(s) <= validation.DNS1123SubdomainMaxLength
}

// isDNSLabel reports whether s is a non-empty lower-case label of RFC 1123. Its length is not
// limited.
func isDNSLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[len(s)-1] != '-'
}

// IsReservedExtraKey reports whether the domain of an extra key is reserved, ignoring case. The
// domains kubetenant.dev, kubernetes.io and k8s.io and their subdomains are reserved, because
// servers exchange information in these keys. A remote source may not set these keys, and a
// tenant may not impersonate them, except [ExtraKey] with its own ID.
func IsReservedExtraKey(key string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	for _, reserved := range []string{Domain, "kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return true
		}
	}
	return false
}
