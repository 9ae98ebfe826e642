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

// With returns an identity with the times of issue and expiry of its credential.
func With(u user.Info, from, until time.Time) user.Info { return &dated{u, from, until} }

// Of returns the times of issue and expiry of an identity's credential. They are zero if unknown.
func Of(u user.Info) (from, until time.Time) {
	if d, ok := u.(*dated); ok {
		return d.from, d.until
	}
	return time.Time{}, time.Time{}
}
