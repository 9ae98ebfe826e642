package authn

import (
	"context"
	"time"
)

// Expiry is told when the credential ends by which a request is authenticated: of an X.509 certificate its notAfter (RFC 5280, section
// 4.1.2.5), of a JSON Web Token its exp (RFC 7519, section 4.1.4), of a Keystone token its expires_at. One goroutine uses it at a time.
type Expiry struct {
	// At is zero for a credential that does not say when it ends, and before the request is authenticated.
	At time.Time
}

type expiryKey struct{}

// WithExpiry returns a context by which the chain tells e.
func WithExpiry(ctx context.Context, e *Expiry) context.Context {
	return context.WithValue(ctx, expiryKey{}, e)
}

// noteExpiry tells who wants to know when the credential of a request ends.
func noteExpiry(ctx context.Context, at time.Time) {
	if e, wanted := ctx.Value(expiryKey{}).(*Expiry); wanted {
		e.At = at
	}
}
