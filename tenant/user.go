// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Errors of [Of], to be tested with [errors.Is]; the third is [ErrInvalid].
var (
	// ErrUnbound says that an identity carries no tenant.
	ErrUnbound = errors.New("no tenant")
	// ErrAmbiguous says that an identity carries several tenants.
	ErrAmbiguous = errors.New("more than one tenant")
)

// Of returns the tenant that u carries in its extra [ExtraKey].
//
// The error wraps [ErrUnbound] (no such key), [ErrAmbiguous] (several values) or [ErrInvalid] (a
// value that [Parse] refuses, no value, or a key that is ExtraKey only under case folding, which
// some other reader might take for it). With an error the ID is zero. A nil u is unbound.
//
// Security: callers MUST have authenticated u; whoever may write its extra names its tenant.
func Of(u user.Info) (ID, error) {
	if u == nil {
		return ID{}, ErrUnbound
	}
	extra := u.GetExtra()
	values, found := extra[ExtraKey]
	others := len(extra)
	if found {
		others--
	}
	if !areKnown(extra, others) {
		for key := range extra {
			if key != ExtraKey && strings.EqualFold(key, ExtraKey) {
				return ID{}, fmt.Errorf("%w: extra key in the wrong case", ErrInvalid)
			}
		}
	}
	switch {
	case !found:
		return ID{}, ErrUnbound
	case len(values) == 0:
		return ID{}, fmt.Errorf("%w: extra key without a value", ErrInvalid)
	case len(values) > 1:
		return ID{}, ErrAmbiguous
	}
	return Parse(values[0])
}

// areKnown reports whether the keys of extra other than [ExtraKey], of which there are so many, are
// but those that most callers have, which saves the walk through it for each decision.
func areKnown(extra map[string][]string, others int) bool {
	if others == 0 {
		return true
	}
	if _, has := extra[SourceKey]; has {
		others--
	}
	if others == 0 {
		return true
	}
	_, has := extra[user.CredentialIDKey]
	return has && others == 1
}

// Bind returns a copy of u whose extra names id, and nothing else, as the tenant. The copy shares
// no map with u. A zero id gives a copy that is unbound.
func Bind(u user.Info, id ID) *user.DefaultInfo {
	extra := make(map[string][]string, len(u.GetExtra())+1)
	maps.Copy(extra, u.GetExtra())
	maps.DeleteFunc(extra, func(key string, _ []string) bool { return strings.EqualFold(key, ExtraKey) })
	if !id.IsZero() {
		extra[ExtraKey] = []string{id.name}
	}
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: u.GetGroups(),
		Extra:  extra,
	}
}
