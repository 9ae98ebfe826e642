// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package waittest waits for the effects of another goroutine or process in tests.
package waittest

import (
	"testing"
	"time"
)

// Limit is the maximum time that [Until] waits, which is enough for a busy machine. Interval is the
// first pause between two checks, and longest is the last one. A check may start a process, which
// slows down the tested code.
const (
	Limit    = 30 * time.Second
	Interval = 10 * time.Millisecond
	longest  = 500 * time.Millisecond
)

// Until calls f until it returns nil. It fails the test with the last error after [Limit].
func Until(tb testing.TB, f func() error) {
	tb.Helper()
	Within(tb, Limit, f)
}

// Within is like [Until] with a specified limit, for a change that must precede another.
func Within(tb testing.TB, limit time.Duration, f func() error) {
	tb.Helper()
	for start := time.Now(); ; time.Sleep(Pause(start)) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(start) > limit {
			tb.Fatalf("after %v: %v", limit, err)
		}
	}
}

// Pause returns the time until the next check of a wait that began at start. It is a tenth of the
// elapsed time.
func Pause(start time.Time) time.Duration {
	return min(max(time.Since(start)/10, Interval), longest)
}
