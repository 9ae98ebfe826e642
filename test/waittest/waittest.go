// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package waittest provides functions for tests that wait for the effects of another goroutine or
// process.
package waittest

import (
	"testing"
	"time"
)

// Limit is the maximum time that [Until] waits. It is long enough for a busy machine. Interval is
// the shortest pause between two checks, and longest is the longest pause. The pauses become
// longer, because a check may start a process, which slows down the tested code.
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

// Within is like [Until], but with the given limit. It is for a change that must occur before
// another event.
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

// Pause returns the pause before the next check of a wait that began at start. It is a tenth of the
// elapsed time, between Interval and longest.
func Pause(start time.Time) time.Duration {
	return min(max(time.Since(start)/10, Interval), longest)
}
