// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"time"
)

// Expiry is told when the credential ends by which a request is authenticated: of an X.509
// certificate when the last of its chains does (the first notAfter in it; RFC 5280, section
// 4.1.2.5), of a JSON Web Token its exp (RFC 7519, section 4.1.4), of a Keystone token its
// expires_at. One goroutine uses it at a time.
type Expiry struct {
	// At is zero before the request is authenticated, and for what does not say when it ends: a line
	// of a file, what a front proxy says, and whoever [Chain.BuiltIn] knows.
	At time.Time
}

type expiryKey struct{}

// WithExpiry returns a context by which the chain tells e.
func WithExpiry(ctx context.Context, e *Expiry) context.Context {
	return context.WithValue(ctx, expiryKey{}, e)
}

// noteExpiry tells who wants to know when the credential ends by which somebody was let in.
func noteExpiry(ctx context.Context, at time.Time) {
	if e, wanted := ctx.Value(expiryKey{}).(*Expiry); wanted {
		e.At = at
	}
}
