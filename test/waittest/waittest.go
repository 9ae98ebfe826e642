// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package waittest lets tests wait for what another goroutine or process does.
package waittest

import (
	"testing"
	"time"
)

// Limit is how long [Until] waits: long enough for a busy machine. Interval is the first pause
// between two looks, and longest is the last one: a look may start a process, which takes time from
// what the test waits for.
const (
	Limit    = 30 * time.Second
	Interval = 10 * time.Millisecond
	longest  = 500 * time.Millisecond
)

// Until looks until f returns nil. It fails the test with the last error after [Limit].
func Until(tb testing.TB, f func() error) {
	tb.Helper()
	Within(tb, Limit, f)
}

// Within is [Until] with a limit of its own, for what must happen before something else does.
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

// Pause returns the time until the next look of a wait that began at start: a tenth of
// what it has taken so far.
func Pause(start time.Time) time.Duration {
	return min(max(time.Since(start)/10, Interval), longest)
}
