// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package validity attaches the validity period of a credential to an identity, for use between a
// source and the chain.
package validity

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

type dated struct {
	user.Info
	from, until time.Time
}

// With returns the identity u with the validity period of its credential. The credential was issued
// or became valid at from, and expires at until.
func With(u user.Info, from, until time.Time) user.Info { return &dated{u, from, until} }

// Of returns the validity period that [With] attached to u. Both times are zero if u is not a
// result of With.
func Of(u user.Info) (from, until time.Time) {
	if d, ok := u.(*dated); ok {
		return d.from, d.until
	}
	return time.Time{}, time.Time{}
}
