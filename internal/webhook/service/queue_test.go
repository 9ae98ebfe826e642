package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func of(name string) func() string { return func() string { return name } }

// TestTurns: a tenant that sends very many waits for itself; another's come in by turns,
// and find room in the queue.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 10, 100)
		leave, err := q.enter(t.Context(), 1, of("nobody"))
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var came []string
		var refused atomic.Int64
		send := func(name string) {
			go func() {
				leave, err := q.enter(t.Context(), 1, of(name))
				if err != nil {
					refused.Add(1)
					return
				}
				mu.Lock()
				came = append(came, name)
				mu.Unlock()
				leave()
			}()
			synctest.Wait()
		}
		for range 100 {
			send("flood")
		}
		for range 3 {
			send("other")
		}
		if refused.Load() != 93 {
			t.Errorf("%d are refused, want those of the flood that ten places do not hold with three others", refused.Load())
		}
		leave()
		synctest.Wait()
		if got := fmt.Sprint(came); got != "[flood other flood other flood other flood flood flood flood]" {
			t.Errorf("they came %s", got)
		}
	})
}

// TestWeight: what the requests may take of memory together has an end; one that may
// take more has all of it.
func TestWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, 100, 100)
		var in, most atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			weight := []int64{10, 60, 1000}[i%3]
			wg.Go(func() {
				leave, err := q.enter(t.Context(), weight, of(fmt.Sprint(i%5)))
				if err != nil {
					t.Error(err)
					return
				}
				now := in.Add(min(weight, 100))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				time.Sleep(time.Second)
				in.Add(-min(weight, 100))
				leave()
			})
		}
		wg.Wait()
		if most.Load() > 100 || q.free != 100 || q.slots != 100 || q.waiting != 0 || len(q.flows) != 0 {
			t.Errorf("at most %d at once; in the end %d bytes and %d places free, %d wait",
				most.Load(), q.free, q.slots, q.waiting)
		}
	})
}

// TestLargeOnesTurn: one that needs all the memory comes in, however many
// small ones come all the time.
func TestLargeOnesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, 1000, 100)
		var over atomic.Bool
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				for !over.Load() {
					leave, err := q.enter(t.Context(), 10, of("small"))
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					leave()
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		leave, err := q.enter(ctx, 100, of("large"))
		if err != nil {
			t.Error("it never comes in")
		} else {
			leave()
		}
		over.Store(true)
		wg.Wait()
	})
}

// TestLeaveQueue: one that gives up takes nothing with it, at whatever moment it does.
func TestLeaveQueue(t *testing.T) {
	q := newQueue(2, 100, 100)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*10*time.Microsecond)
			defer cancel()
			leave, err := q.enter(ctx, int64(i%90), of(fmt.Sprint(i%3)))
			if err != nil {
				if !errors.Is(err, errBusy) {
					t.Error(err)
				}
				return
			}
			time.Sleep(time.Duration(i%5) * time.Microsecond)
			leave()
		})
	}
	wg.Wait()
	if q.free != 100 || q.slots != 2 || q.waiting != 0 || len(q.flows) != 0 {
		t.Errorf("%d bytes and %d places free, %d wait in %d flows", q.free, q.slots, q.waiting, len(q.flows))
	}
}

// TestFlow: whose a request is shows before its object has come, and without it.
func TestFlow(t *testing.T) {
	owner := func(namespace string) string { return map[string]string{"acme--web": "acme"}[namespace] }
	for body, want := range map[string]string{
		`{"request":{"uid":"u","userInfo":{"username":"a","groups":["g"],` +
			`"extra":{"kubetenant.dev/tenant":["acme"]}},"object":{"metadata":{"na`: "acme",
		`{"request":{"userInfo":{"username":"a","groups":["g","tenant:acme"]},"object":{`:               "acme",
		`{"request":{"userInfo":{"username":"system:serviceaccount:acme--web:default"},"object":{"x":1`: "acme",
		`{"spec":{"resourceAttributes":{"verb":"get"},"user":"a","groups":["g"],` +
			`"extra":{"kubetenant.dev/tenant":["acme"]}}}`: "acme",
		`{"request":{"userInfo":{"username":"a"},` +
			`"object":{"metadata":{"extra":{"kubetenant.dev/tenant":["globex"]}}}}}`: "user a",
		`{"request":{"object":{"userInfo":{"username":"a"}},"userInfo":{"username":"b"}}}`: "user ",
		`{"request":{"username":`: "user ",
		`garbage`:                 "user ",
	} {
		if got := flowOf([]byte(body), owner); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
