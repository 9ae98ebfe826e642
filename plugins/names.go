// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"crypto/rand"
	"strings"
)

// UnguessedName returns a random name that no rule has. An authorization request with this name is
// allowed only if the caller has the right for every name. Without a name, a rule that is only for the
// name "" would allow the request. Do not reveal the name to a caller before the request is decided.
func UnguessedName() string { return strings.ToLower(rand.Text()) }
