// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Identity is the identity for which a controller acts. [IdentityAnnotation] contains it as
// compact JSON. The groups are a list, because the name of a group may contain a comma.
//
// The zero value is no identity. An Identity without a user represents the tenant as a whole.
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

// String returns the identity as compact JSON, the form of [IdentityAnnotation].
func (i Identity) String() string {
	text, err := json.Marshal(i)
	if err != nil { // not possible with a struct of strings
		return ""
	}
	return string(text)
}

var errIdentity = errors.New("invalid identity record")

// ParseIdentity parses the value of an [IdentityAnnotation]. If the tenant is not valid, the
// error wraps [ErrInvalid].
func ParseIdentity(text string) (Identity, error) {
	var out Identity
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return Identity{}, errIdentity // err may contain the text, which any client may have written
	}
	if _, err := Parse(out.Tenant); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", errIdentity, err)
	}
	return out, nil
}
