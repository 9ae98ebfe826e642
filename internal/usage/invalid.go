// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import "errors"

// IsInvalid reports whether the JSON of a [Record] has valid types, but values that no server
// writes. The text of such an error does not contain the values.
func IsInvalid(err error) bool { return errors.Is(err, errRecord) }
