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

// The errors of [Of], in addition to [ErrInvalid]. Callers test for them with [errors.Is].
var (
	// ErrUnbound reports that an identity names no tenant.
	ErrUnbound = errors.New("no tenant")
	// ErrAmbiguous reports that an identity names several tenants.
	ErrAmbiguous = errors.New("more than one tenant")
)

// Of returns the tenant that the extra [ExtraKey] of u names.
//
// The error wraps [ErrUnbound] if u has no such key, and [ErrAmbiguous] if the key has several
// values. It wraps [ErrInvalid] if the key has no value or [Parse] rejects the value. It also wraps
// [ErrInvalid] if a key equals ExtraKey only under case folding, because other software might
// accept that key. With an error, the ID is zero. A nil u has no tenant.
//
// Security: callers MUST have authenticated u. A client that can write the extra can choose the
// tenant.
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
	if !hasOnlyCommonKeys(extra, others) {
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

// hasOnlyCommonKeys reports whether extra, apart from [ExtraKey], contains only the keys that most
// callers have. others is the number of keys other than ExtraKey. The function avoids a loop over
// extra for each decision.
func hasOnlyCommonKeys(extra map[string][]string, others int) bool {
	if others == 0 {
		return true
	}
	if _, ok := extra[SourceKey]; ok {
		others--
	}
	if others == 0 {
		return true
	}
	_, ok := extra[user.CredentialIDKey]
	return ok && others == 1
}

// Bind returns a copy of u whose extra names only id as the tenant. The copy shares no map with u.
// With a zero id, the copy names no tenant.
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
