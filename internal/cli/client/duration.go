// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// errDuration reports an invalid duration.
var errDuration = errors.New("must be a duration, such as 90m, 8h or 30d")

const day = 24 * time.Hour

// ParseDuration parses a duration like [time.ParseDuration]. It also accepts a number of days of 24
// hours at the beginning, as in 30d or 3d12h. The error does not contain the text.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days = "0"
		rest = text
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > uint64(math.MaxInt64/day) {
		return 0, errDuration
	}
	long := time.Duration(n) * day
	if rest == "" && ok {
		return long, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || ok && (more < 0 || rest[0] == '+') || more > math.MaxInt64-long {
		return 0, errDuration
	}
	return long + more, nil
}
