// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// countAccepted returns the number of operations that a name can perform before its budget is
// exhausted.
func countAccepted(b *budget.Budgets, name string) (n int) {
	for b.Limiter(name).TryAccept() {
		n++
	}
	return n
}

// TestBudgetsAreIndependent checks that an exhausted budget does not affect other names.
func TestBudgetsAreIndependent(t *testing.T) {
	b := budget.New(0.0001, 5)
	for _, name := range []string{"a", "b", ""} {
		if n := countAccepted(b, name); n != 5 {
			t.Errorf("%q: %d, want the burst of 5", name, n)
		}
	}
	if n := countAccepted(b, "a"); n != 0 {
		t.Errorf("%d operations accepted after the burst, want 0", n)
	}
}

// TestLeastRecentlyUsedIsDropped checks that many new names drop the budget of a name that is not
// used, but not a budget in use.
func TestLeastRecentlyUsedIsDropped(t *testing.T) {
	b := budget.New(0.0001, 1)
	countAccepted(b, "busy")
	countAccepted(b, "idle")
	for i := range 5000 {
		countAccepted(b, fmt.Sprint(i))
		if n := countAccepted(b, "busy"); n != 0 {
			t.Fatalf("the budget of a name in use was dropped after %d other names", i)
		}
	}
	if n := countAccepted(b, "idle"); n != 1 {
		t.Errorf("%d operations accepted, want 1 from a new budget", n)
	}
}

// TestConcurrentCallsShareABudget checks that concurrent calls with one name share one budget.
func TestConcurrentCallsShareABudget(t *testing.T) {
	b := budget.New(0.0001, 50)
	var sum atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { sum.Add(int64(countAccepted(b, "a"))) })
	}
	all.Wait()
	if sum.Load() != 50 {
		t.Errorf("%d operations accepted, want 50", sum.Load())
	}
}

// TestBytes checks that a name may write its burst immediately, and then as many bytes per second
// as its rate. If a name is charged more bytes than it has left, it must wait longer. Each name
// has its own budget.
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.NewBytes(100, 1000)
		b.Charge("a", 999)
		if !b.HasBytes("a") {
			t.Error("no bytes are left before the burst is used up")
		}
		b.Charge("a", 201)
		if b.HasBytes("a") || !b.HasBytes("b") {
			t.Errorf("a has %v, b has %v", b.HasBytes("a"), b.HasBytes("b"))
		}
		time.Sleep(2 * time.Second)
		if b.HasBytes("a") {
			t.Error("bytes charged beyond the budget are ignored")
		}
		time.Sleep(time.Second)
		if !b.HasBytes("a") {
			t.Error("the budget does not grow")
		}
		time.Sleep(time.Hour)
		b.Charge("a", 1000)
		if b.HasBytes("a") {
			t.Error("the budget exceeds its burst")
		}
	})
}
