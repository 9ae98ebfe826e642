// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"crypto/rand"
	"strings"
)

// UnguessableName returns a random name that no RBAC rule lists. An authorization request with
// this name is allowed only if the caller has the permission for every name. With an empty name,
// a rule that lists only the name "" would allow the request. A caller MUST NOT learn the name
// before the request is decided.
func UnguessableName() string { return strings.ToLower(rand.Text()) }
