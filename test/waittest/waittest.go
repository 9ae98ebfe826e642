// Package waittest lets tests wait for what another goroutine or process does.
package waittest

import (
	"testing"
	"time"
)

// Limit is how long [Until] waits: long enough for a busy machine. Interval is the time between two looks.
const (
	Limit    = 30 * time.Second
	Interval = 10 * time.Millisecond
)

// Until looks until f returns nil. It fails the test with the last error after [Limit].
func Until(tb testing.TB, f func() error) {
	tb.Helper()
	Within(tb, Limit, f)
}

// Within is [Until] with a limit of its own, for what must happen before something else does.
func Within(tb testing.TB, limit time.Duration, f func() error) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(limit); ; time.Sleep(Interval) {
		if err = f(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("after %v: %v", limit, err)
		}
	}
}
