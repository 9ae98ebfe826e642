// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"time"
)

// Expiry receives the expiry time of the credential that authenticates a request. It is not safe
// for concurrent use.
//
//   - An X.509 certificate expires when its last chain expires. A chain expires at the earliest
//     notAfter (RFC 5280, section 4.1.2.5) of its certificates.
//   - A JSON Web Token expires at the time in the claim exp (RFC 7519, section 4.1.4) of its payload.
//   - A Keystone token expires at expires_at.
type Expiry struct {
	// At is zero before the request is authenticated. It remains zero if the expiry is unknown,
	// for example for credentials from files, for front proxies and for [Chain.BuiltIn].
	At time.Time
}

type expiryKey struct{}

// WithExpiry returns a context for a request. If the chain accepts the request's credential, it
// stores the expiry of the credential in e.
func WithExpiry(ctx context.Context, e *Expiry) context.Context {
	return context.WithValue(ctx, expiryKey{}, e)
}

// recordExpiry sets the [Expiry] of the context, if there is one.
func recordExpiry(ctx context.Context, at time.Time) {
	if e, wanted := ctx.Value(expiryKey{}).(*Expiry); wanted {
		e.At = at
	}
}
