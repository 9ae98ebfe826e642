// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package validity carries with an identity from when until when its credential counts, from a
// source that knows it to the chain.
package validity

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

type dated struct {
	user.Info
	from, until time.Time
}

// With returns an identity whose credential was issued at a time, and ends at one.
func With(u user.Info, from, until time.Time) user.Info { return &dated{u, from, until} }

// Of returns when the credential of an identity was issued, and when it ends;
// zero where nobody said so.
func Of(u user.Info) (from, until time.Time) {
	if d, is := u.(*dated); is {
		return d.from, d.until
	}
	return time.Time{}, time.Time{}
}
