// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import "errors"

// IsInvalid reports whether err is the error for the JSON of a [Record] that has valid types, but
// values that no server writes. The text of this error does not contain the values.
func IsInvalid(err error) bool { return errors.Is(err, errRecord) }
