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

// Why hygiene refuses an identity; to be tested with [errors.Is]. Beside these it returns the
// errors of [tenant.Of] and of [tenant.Limits.Check].
var (
	ErrNotMinted     = errors.New("the source may not assert this tenant")
	ErrReservedUser  = errors.New("reserved user name")
	ErrReservedGroup = errors.New("reserved group")
	ErrReservedExtra = errors.New("reserved extra key")
	ErrNameless      = errors.New("no user name")
)

// Hygiene is what the identities of one source are held to. The zero value refuses everything,
// since it may mint no tenant.
type Hygiene struct {
	// Source is the configured name: in the extra tenant.SourceKey, in errors and audit events.
	Source string
	// Tenants that the source may mint.
	Tenants tenant.Set
	// UsernamePrefix and GroupsPrefix are put before names, once, before the names are judged.
	UsernamePrefix, GroupsPrefix string
	// Reserved are the names that only the system tenant's callers may bear.
	Reserved *tenant.SystemNames
	// Limits bound the identities as they leave the chain; zero for tenant.DefaultLimits.
	Limits tenant.Limits
	// QualifyNames makes alice of tenant a "a:alice" and her groups "a:<group>".
	QualifyNames bool
	// Remote says that somebody else than the cluster's admin names the identities: names are then
	// reserved whatever the tenant, and so are extra keys.
	Remote bool
	// Extras are the reserved extra keys that a remote source sets itself, beside tenant.ExtraKey.
	Extras []string
	// ServiceAccounts says that the source mints service accounts and nothing else. Their names are
	// never prefixed nor qualified.
	ServiceAccounts bool
}

// Check refuses a the source may not assert this tenant, and names that are reserved for a caller
// of that tenant, before prefixes are put to them. File sources call it at load, so that a file
// holds nothing that would be refused later.
func (h *Hygiene) Check(name string, groups []string, id tenant.ID) error {
	switch {
	case !h.Tenants.Has(id):
		return ErrNotMinted
	case name == "":
		return ErrNameless
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
	systems := id.IsSystem() && !h.Remote // may bear the system's names
	if name = h.UsernamePrefix + name; tenant.IsServiceAccountName(name) ||
		!systems && (h.Reserved.ReservedUser(name) || h.Reserved.ReservedUser(qualifier+name)) {
		return ErrReservedUser
	}
	for _, group := range groups {
		group = h.GroupsPrefix + group
		if tenant.IsServiceAccountName(group) || strings.HasPrefix(group, tenant.GroupPrefix) ||
			!systems && (h.Reserved.ReservedGroup(group) || h.Reserved.ReservedGroup(qualifier+group)) {
			return ErrReservedGroup
		}
	}
	return nil
}

// checkServiceAccount refuses what is not a service account in its own two groups.
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

// qualifier is what names of tenant id begin with when they leave the chain. A tenant "kubeadm"
// could make "kubeadm:cluster-admins" of a harmless group, so names are judged with it too.
func (h *Hygiene) qualifier(id tenant.ID) string {
	if !h.QualifyNames || id.IsSystem() || h.ServiceAccounts {
		return ""
	}
	return id.String() + ":"
}

// refusal is an error that names the source that claimed the credential.
type refusal struct {
	source string
	err    error
	// credential is the credential-id of a caller who was authenticated and is refused all the same.
	credential string
}

func (r *refusal) Error() string { return shortened(fmt.Sprintf("source %q: %v", r.source, r.err)) }
func (r *refusal) Unwrap() error { return r.err }

// maxErrorBytes bounds what is logged of a refusal: errors about certificates
// repeat names that they hold.
const maxErrorBytes = 512

// short is an error of somebody else that is shortened.
type short struct{ error }

func (s *short) Error() string { return shortened(s.error.Error()) }
func (s *short) Unwrap() error { return s.error }

func shortened(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorBytes], "") + "..."
}

func refusalIn(err error) *refusal {
	if err == nil { // before anything is allocated
		return nil
	}
	var r *refusal
	errors.As(err, &r)
	return r
}

// apply takes the three results of the source's authenticator and returns them cleaned.
//
//nolint:revive // ok is one of them
func (h *Hygiene) apply(resp *authenticator.Response, ok bool, err error) (*authenticator.Response, bool, error) {
	if err != nil {
		return nil, false, &refusal{source: h.Source, err: err}
	}
	if !ok {
		return nil, false, nil
	}
	clean, err := h.clean(resp.User)
	if err != nil {
		return nil, false, &refusal{source: h.Source, err: err}
	}
	return &authenticator.Response{User: clean, Audiences: resp.Audiences}, true, nil
}

// clean returns the identity that leaves the chain, or why none does.
func (h *Hygiene) clean(u user.Info) (user.Info, error) {
	id, err := tenant.Of(u)
	if err != nil {
		return nil, err
	}
	if err := h.Check(u.GetName(), u.GetGroups(), id); err != nil {
		return nil, err
	}
	extra := maps.Clone(u.GetExtra())
	for key := range extra {
		switch own := slices.Contains(h.Extras, key); {
		case key == tenant.ExtraKey, own:
		case h.Remote && tenant.IsReservedExtraKey(key), isOwnKey(key) && key != tenant.SourceKey:
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

// isOwnKey reports whether an extra key is of our domain, in any spelling of case.
func isOwnKey(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && strings.EqualFold(domain, tenant.Domain)
}
