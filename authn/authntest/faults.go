// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authntest

import (
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// Flood writes begin and then 1 GiB of data. It stops at the first write error.
func Flood(w io.Writer, begin string) {
	_, _ = io.WriteString(w, begin)
	chunk := strings.Repeat("x", 1<<16)
	for range 1 << 14 {
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
	}
}

// Clock is the system clock with an offset. The offset of the zero value is 0. It is safe for
// concurrent use.
type Clock struct{ offset atomic.Int64 }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// Advance increases the offset of the clock.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
