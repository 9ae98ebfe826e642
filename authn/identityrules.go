// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// The errors of identity validation. Test for them with [errors.Is]. Identity validation also
// returns the errors of [tenant.Of] and of [tenant.Limits.Check].
var (
	ErrTenantNotAllowed = errors.New("the source may not assert this tenant")
	ErrReservedUser     = errors.New("reserved user name")
	ErrReservedGroup    = errors.New("reserved group")
	ErrReservedExtra    = errors.New("reserved extra key")
	ErrNoUsername       = errors.New("no user name")
)

// IdentityRules has the rules of identity validation for one source. The zero value rejects every
// identity, because it allows no tenant.
type IdentityRules struct {
	// Source is the configured name of the source. It is used in the extra tenant.SourceKey, errors
	// and audit events.
	Source string
	// Tenants are the tenants that the source may assert.
	Tenants tenant.Set
	// UsernamePrefix and GroupsPrefix are added to user names and groups once, before the check
	// for reserved names.
	UsernamePrefix, GroupsPrefix string
	// Reserved are the names that only callers of the system tenant may have. Callers from a
	// remote source may never have them.
	Reserved *tenant.SystemNames
	// Limits are the limits for the validated identities. The zero value means tenant.DefaultLimits.
	Limits tenant.Limits
	// QualifyNames changes user alice of tenant a to "a:alice", and the user's groups to "a:<group>".
	// Names of callers of the system tenant are not changed.
	QualifyNames bool
	// Remote specifies that the cluster's admin does not control the identities. Reserved names and
	// extra keys are then rejected for every tenant, including the system tenant.
	Remote bool
	// Extras are the reserved extra keys that the source may set, in addition to
	// tenant.ExtraKey.
	Extras []string
	// ServiceAccounts specifies that the source returns only service accounts. Their names are never
	// prefixed or qualified.
	ServiceAccounts bool
}

// Check rejects a tenant that the source may not assert, malformed names, and names that callers of
// this tenant may not have. The parameters are the names before the prefixes are added. File
// sources call Check when they load a file. It does not check Limits.
func (h *IdentityRules) Check(name string, groups []string, id tenant.ID) error {
	switch {
	case !h.Tenants.Has(id):
		return ErrTenantNotAllowed
	case name == "":
		return ErrNoUsername
	}
	if err := tenant.CheckForm("the user name", name); err != nil {
		return err
	}
	for _, group := range groups {
		if err := tenant.CheckForm("a group", group); err != nil {
			return err
		}
	}
	if h.ServiceAccounts {
		return checkServiceAccount(name, groups)
	}
	qualifier := h.qualifier(id)
	mayUseReserved := id.IsSystem() && !h.Remote
	if name = h.UsernamePrefix + name; tenant.IsServiceAccountName(name) ||
		!mayUseReserved && (h.Reserved.ReservedUser(name) || h.Reserved.ReservedUser(qualifier+name)) {
		return ErrReservedUser
	}
	for _, group := range groups {
		group = h.GroupsPrefix + group
		if tenant.IsServiceAccountName(group) || strings.HasPrefix(group, tenant.GroupPrefix) ||
			!mayUseReserved && (h.Reserved.ReservedGroup(group) || h.Reserved.ReservedGroup(qualifier+group)) {
			return ErrReservedGroup
		}
	}
	return nil
}

// checkServiceAccount rejects a name that is not the name of a service account, and groups other
// than the two groups of this service account.
func checkServiceAccount(name string, groups []string) error {
	namespace, ok := tenant.ServiceAccountNamespace(name)
	if !ok {
		return ErrReservedUser
	}
	if !slices.Equal(groups, serviceaccount.MakeGroupNames(namespace)) {
		return ErrReservedGroup
	}
	return nil
}

// qualifier returns the prefix that QualifyNames adds to the names of a tenant, or "". In a tenant
// named "kubeadm", the prefix would turn the group "cluster-admins" into the reserved group
// "kubeadm:cluster-admins". Therefore, names with the prefix are checked too.
func (h *IdentityRules) qualifier(id tenant.ID) string {
	if !h.QualifyNames || id.IsSystem() || h.ServiceAccounts {
		return ""
	}
	return id.String() + ":"
}

// refusal is the error for a rejected credential. It names the source that claimed the
// credential, or the check that rejected it.
type refusal struct {
	source string
	err    error
	// credential is the credential-id of a caller that was authenticated and then rejected.
	// Otherwise, it is empty.
	credential string
}

func (r *refusal) Error() string { return truncate(fmt.Sprintf("source %q: %v", r.source, r.err)) }
func (r *refusal) Unwrap() error { return r.err }

// maxErrorBytes is the size to which an error is truncated. Errors about certificates may contain
// long names.
const maxErrorBytes = 512

// shortError truncates the text of an error from another package.
type shortError struct{ error }

func (s *shortError) Error() string { return truncate(s.error.Error()) }
func (s *shortError) Unwrap() error { return s.error }

func truncate(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorBytes], "") + "..."
}

func refusalIn(err error) *refusal {
	if err == nil { // avoids the allocation of r
		return nil
	}
	var r *refusal
	errors.As(err, &r)
	return r
}

// apply validates the identity that the source's authenticator returned. Its parameters are the
// results of that authenticator.
//
//nolint:revive // ok is a result of the authenticator, and not a switch of the caller
func (h *IdentityRules) apply(resp *authenticator.Response, ok bool, err error) (*authenticator.Response, bool, error) {
	if err != nil {
		return nil, false, &refusal{source: h.Source, err: err}
	}
	if !ok {
		return nil, false, nil
	}
	clean, err := h.mapUser(resp.User)
	if err != nil {
		return nil, false, &refusal{source: h.Source, err: err}
	}
	return &authenticator.Response{User: clean, Audiences: resp.Audiences}, true, nil
}

// mapUser returns the validated identity with its final names, groups and extras, or the reason to
// reject it.
func (h *IdentityRules) mapUser(u user.Info) (user.Info, error) {
	id, err := tenant.Of(u)
	if err != nil {
		return nil, err
	}
	if err := h.Check(u.GetName(), u.GetGroups(), id); err != nil {
		return nil, err
	}
	extra := maps.Clone(u.GetExtra())
	for key := range extra {
		if key == tenant.ExtraKey || slices.Contains(h.Extras, key) {
			continue
		}
		if h.Remote && tenant.IsReservedExtraKey(key) || isOwnKey(key) && key != tenant.SourceKey {
			return nil, ErrReservedExtra
		}
	}
	extra[tenant.SourceKey] = []string{h.Source}

	qualifier := h.qualifier(id)
	groups := make([]string, 0, len(u.GetGroups())+2)
	for _, group := range u.GetGroups() {
		groups = append(groups, qualifier+h.GroupsPrefix+group)
	}
	clean := &user.DefaultInfo{
		Name:   qualifier + h.UsernamePrefix + u.GetName(),
		UID:    u.GetUID(),
		Groups: groups,
		Extra:  extra,
	}
	if err := h.Limits.OrDefault().Check(clean); err != nil {
		return nil, err
	}
	clean.Groups = append(groups, id.Group(), user.AllAuthenticated)
	return clean, nil
}

// isOwnKey reports whether the domain of an extra key is [tenant.Domain], ignoring case.
func isOwnKey(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && strings.EqualFold(domain, tenant.Domain)
}
