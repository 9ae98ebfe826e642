// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Identity is whom a controller acts for, as [IdentityAnnotation] holds it: compact JSON, the
// groups a list and never joined by commas.
//
// The zero value is nobody. An Identity without a user is the tenant's as a
// whole: nobody of it asked.
type Identity struct {
	User   string   `json:"user,omitempty"`
	UID    string   `json:"uid,omitempty"`
	Tenant string   `json:"tenant"`
	Groups []string `json:"groups,omitempty"`
}

// IdentityOf returns the identity of a caller of tenant id.
func IdentityOf(u user.Info, id ID) Identity {
	return Identity{
		User:   u.GetName(),
		UID:    u.GetUID(),
		Tenant: id.String(),
		Groups: u.GetGroups(),
	}
}

// String returns the identity as it is recorded.
func (i Identity) String() string {
	text, err := json.Marshal(i)
	if err != nil { // a struct of strings
		return ""
	}
	return string(text)
}

var errIdentity = errors.New("invalid identity record")

// ParseIdentity reads what is recorded. The error wraps [ErrInvalid] where the tenant is none.
func ParseIdentity(text string) (Identity, error) {
	var out Identity
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return Identity{}, errIdentity // not its text: that may be anybody's
	}
	if _, err := Parse(out.Tenant); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return out, nil
}
