// Package issued carries with an identity when its credential was issued, from a source that knows it to the chain.
package issued

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

type dated struct {
	user.Info
	at time.Time
}

// With returns an identity whose credential was issued at a time.
func With(u user.Info, at time.Time) user.Info { return &dated{u, at} }

// At returns when the credential of an identity was issued; zero where nobody said so.
func At(u user.Info) time.Time {
	if d, is := u.(*dated); is {
		return d.at
	}
	return time.Time{}
}
