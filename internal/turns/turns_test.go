// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

func fixedFlow(name string) func() Flow { return func() Flow { return Flow{Name: name} } }

// checkIdle checks that a queue is empty.
func checkIdle(t *testing.T, q *Queue) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free != q.places || q.freeMemory != q.memory || q.waiting != 0 || len(q.flows) != 0 || q.turns.Len() != 0 ||
		len(q.longest) != 0 || q.unknown.Len() != 0 {
		t.Errorf("%d of %d places and %d of %d bytes are free, %d requests wait, %d flows, %d turns, %d unknown",
			q.free, q.places, q.freeMemory, q.memory, q.waiting, len(q.flows), q.turns.Len(), q.unknown.Len())
	}
}

// testClients sends requests to a queue and records the order in which their flows are admitted. A
// request leaves the queue when the test releases it.
type testClients struct {
	t *testing.T
	q *Queue

	mu      sync.Mutex
	came    []string // flows in the order of admission
	leaves  map[string][]func()
	refused map[string]int
}

func newTestClients(t *testing.T, q *Queue) *testClients {
	t.Helper()
	return &testClients{
		t:       t,
		q:       q,
		leaves:  map[string][]func(){},
		refused: map[string]int{},
	}
}

// send sends the given number of requests of a flow, one after the other.
func (c *testClients) send(name string, number int) {
	c.sendAs(Flow{Name: name}, number)
}

func (c *testClients) sendAs(f Flow, number int) {
	for range number {
		go func() {
			leave, err := c.q.Enter(c.t.Context(), 1, func() Flow { return f })
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.refused[f.Name]++
				return
			}
			c.came = append(c.came, f.Name)
			c.leaves[f.Name] = append(c.leaves[f.Name], leave)
		}()
		synctest.Wait()
	}
}

// release ends the given number of requests of a flow, and returns the flows of the requests that
// are then admitted.
func (c *testClients) release(name string, number int) string {
	c.mu.Lock()
	before := len(c.came)
	leaves := c.leaves[name][:number]
	c.leaves[name] = c.leaves[name][number:]
	c.mu.Unlock()
	for _, leave := range leaves {
		leave()
		synctest.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.came[before:], " ")
}

// drain ends requests until no request is left, and checks that the queue is then empty.
func (c *testClients) drain() {
	for {
		c.mu.Lock()
		var leaves []func()
		for name := range c.leaves {
			leaves = append(leaves, c.leaves[name]...)
			delete(c.leaves, name)
		}
		c.mu.Unlock()
		if len(leaves) == 0 {
			checkIdle(c.t, c.q)
			return
		}
		for _, leave := range leaves {
			leave()
		}
		synctest.Wait()
	}
}

func (c *testClients) running(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leaves[name])
}

// TestTurns checks that flows are served in turn, and that the requests of a flow are served in
// order. If the queue is full, the requests of the flow with the most waiting requests are
// rejected.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(1, 10, 100)
		c := newTestClients(t, q)
		c.send("first", 1)
		c.send("flood", 100)
		c.send("other", 3)
		if c.refused["flood"] != 93 || c.refused["other"] != 0 {
			t.Errorf("refused: %v, want only 93 requests of the flow flood", c.refused)
		}
		for _, name := range strings.Fields("first flood other flood other flood other flood flood flood") {
			c.release(name, 1)
		}
		if got := strings.Join(c.came, " "); got != "first flood other flood other flood other flood flood flood flood" {
			t.Errorf("admitted: %s", got)
		}
		c.drain()
	})
}

// TestQuietTenant checks that a tenant that sends one request waits for at most one release, even
// if another tenant uses all places and more tenants wait.
func TestQuietTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(22, 1000, 100)
		c := newTestClients(t, q)
		c.send("noisy", 522)
		c.send("quiet", 1)
		if got := c.release("noisy", 1); got != "quiet" {
			t.Errorf("admitted after one release: %q", got)
		}
		c.send("b", 10)
		c.send("c", 10)
		c.send("d", 10)
		c.send("quiet", 1) // the flow has one place, and its share is two
		if got := c.release("noisy", 4); got != "b c d quiet" {
			t.Errorf("admitted after four releases: %q", got)
		}
		c.drain()
	})
}

// TestShare checks that no flow gets more than an eighth of the places while flows with less than
// their share wait. If each waiting flow has its share, the flows are served in turn.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(16, 1000, 100)
		c := newTestClients(t, q)
		c.send("noisy", 100)
		if c.running("noisy") != 16 {
			t.Errorf("%d run while no other request waits, want all 16", c.running("noisy"))
		}
		for i := range 7 {
			c.send(fmt.Sprint("t", i), 5)
		}
		c.release("noisy", 16)
		if got := c.running("noisy"); got != 2 {
			t.Errorf("the noisy tenant has %d places, want its share of 2", got)
		}
		for i := range 7 {
			if got := c.running(fmt.Sprint("t", i)); got != 2 {
				t.Errorf("t%d has %d places, want its share of 2", i, got)
			}
		}
		if got := c.release("t0", 2); got != "t0 t0" {
			t.Errorf("admitted after two releases of t0: %q, want the only flow with less than its share", got)
		}
		c.drain()
	})
}

// TestWorkConserving checks that a flow uses more than its share if no other flow needs the
// places, and that flows that use their share are served in turn.
func TestWorkConserving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClients(t, New(8, 100, 100))
		c.send("a", 20)
		c.send("b", 20)
		c.release("a", 8)
		if a, b := c.running("a"), c.running("b"); a+b != 8 || a != 4 || b != 4 {
			t.Errorf("a has %d places, b %d, want 4 each", a, b)
		}
		c.drain()
	})
}

// TestExempt checks that an exempt flow can use more than its share while other flows wait, and is
// served in turn with them. A non-exempt flow with the same name is a different flow.
func TestExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClients(t, New(8, 1000, 100))
		c.send("noisy", 50)
		acme, err := tenant.Parse("acme")
		if err != nil {
			t.Fatal(err)
		}
		system := FlowOf(tenant.System(), "system")
		if !system.Exempt || FlowOf(acme, "system").Exempt {
			t.Fatal("only the system tenant is exempt")
		}
		c.sendAs(system, 20)
		c.send("quiet", 3)
		if got := c.release("noisy", 4); got != "system quiet system system" {
			t.Errorf("admitted: %q", got)
		}
		if got := c.release("noisy", 4); got != "system system system noisy" {
			t.Errorf("admitted: %q", got)
		}
		c.drain()

		c = newTestClients(t, New(8, 1000, 100))
		c.send("noisy", 50)
		c.send("system", 20) // a client forged the name
		c.send("quiet", 3)
		if got := c.release("noisy", 3); got != "system quiet noisy" && got != "system quiet system" {
			t.Errorf("admitted with a forged name: %q", got)
		}
		c.drain()
	})
}

// TestFullQueueRejectsLargestFlow checks that a full queue rejects requests of the flow with the
// most waiting requests. A queue without room for waiting requests admits as many requests as there
// are places.
func TestFullQueueRejectsLargestFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClients(t, New(1, 4, 100))
		c.send("a", 1)
		c.send("a", 4)
		for i := range 3 {
			c.send(fmt.Sprint("t", i), 1)
		}
		c.send("late", 1) // each waiting flow has one request that waits
		if c.refused["a"] != 3 || c.refused["late"] != 1 || len(c.refused) != 2 {
			t.Errorf("refused: %v", c.refused)
		}
		c.drain()
		none := newTestClients(t, New(2, 0, 100))
		none.send("a", 3)
		if none.running("a") != 2 || none.refused["a"] != 1 {
			t.Errorf("%d run, %v are refused", none.running("a"), none.refused)
		}
		none.drain()
	})
}

// TestResize checks that a change of the limits neither loses nor duplicates places.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(10, 100, 100)
		c := newTestClients(t, q)
		c.send("a", 10)
		c.send("b", 10)
		q.Resize(4, 5)
		c.send("b", 1) // more requests wait than the new limit allows
		if got := c.release("a", 6); got != "" || c.refused["b"] != 1 {
			t.Errorf("admitted while more requests run than the new limit: %q, refused: %v", got, c.refused)
		}
		if got := c.release("a", 1); got != "b" {
			t.Errorf("admitted after the next release: %q", got)
		}
		q.Resize(6, 100)
		synctest.Wait()
		if a, b := c.running("a"), c.running("b"); a != 3 || b != 3 {
			t.Errorf("%d and %d run after the limit was raised, want 3 and 3", a, b)
		}
		c.drain()
	})
}

// TestMemoryLimitIsNotExceeded checks that the requests together never use more than the memory of
// the queue, and that a request that needs more than this memory gets all of it.
func TestMemoryLimitIsNotExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(100, 100, 100)
		var in, most atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			weight := []int64{10, 60, 1000}[i%3]
			wg.Go(func() {
				leave, err := q.Enter(t.Context(), weight, fixedFlow(fmt.Sprint(i%5)))
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
		if most.Load() > 100 {
			t.Errorf("%d bytes were in use at the same time", most.Load())
		}
		checkIdle(t, q)
	})
}

// TestLargeRequest checks that a request that needs all memory is admitted, even if small requests
// arrive all the time.
func TestLargeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(100, 1000, 100)
		var over atomic.Bool
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				for !over.Load() {
					leave, err := q.Enter(t.Context(), 10, fixedFlow("small"))
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
		leave, err := q.Enter(ctx, 100, fixedFlow("large"))
		if err != nil {
			t.Error("the large request was not admitted")
		} else {
			leave()
		}
		over.Store(true)
		wg.Wait()
		checkIdle(t, q)
	})
}

// TestCancel checks that a canceled request retains no place and no memory, whether its context
// ends before, during or after its admission.
func TestCancel(t *testing.T) {
	q := New(2, 100, 100)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*10*time.Microsecond)
			defer cancel()
			leave, err := q.Enter(ctx, int64(i%90), fixedFlow(fmt.Sprint(i%3)))
			if err != nil {
				if !errors.Is(err, ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				return
			}
			time.Sleep(time.Duration(i%5) * time.Microsecond)
			leave()
		})
	}
	wg.Wait()
	checkIdle(t, q)
}

// TestCancelDuringAdmission checks that the next request gets the place of a request whose context
// ends at the moment of its admission.
func TestCancelDuringAdmission(t *testing.T) {
	for range 500 {
		q := New(1, 10, 100)
		leave, err := q.Enter(t.Context(), 1, fixedFlow("a"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if leave, err := q.Enter(ctx, 1, fixedFlow("b")); err == nil {
				leave()
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			leave, err := q.Enter(t.Context(), 1, fixedFlow("c"))
			if err != nil {
				t.Error(err)
				return
			}
			leave()
		})
		wg.Go(cancel)
		wg.Go(leave)
		wg.Wait()
		checkIdle(t, q)
	}
}

// TestErrorIsContextCause checks that the error for a canceled request is the cause of its context.
func TestErrorIsContextCause(t *testing.T) {
	q := New(1, 10, 100)
	leave, err := q.Enter(t.Context(), 1, fixedFlow("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	revoked := errors.New("revoked")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(revoked)
	if _, err := q.Enter(ctx, 1, fixedFlow("a")); !errors.Is(err, revoked) {
		t.Errorf("got %v, want the cause", err)
	}
}

// TestManyFlows checks that the queue stores nothing for flows without requests.
func TestManyFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(4, 2000, 100)
		c := newTestClients(t, q)
		c.send("a", 4)
		for i := range 1000 {
			c.send(fmt.Sprint("tenant-", i), 1)
		}
		c.drain()
	})
}

// FuzzQueue sends, ends and cancels requests in any order, and checks three rules after each
// step. No place is free while a request waits. There are at most as many running requests as
// places. No flow that has its share is admitted before a flow that has less.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{7, 5, 0, 0, 0, 1, 2, 64, 64, 128, 128, 3, 64})
	f.Add([]byte{0, 0, 0, 1, 64, 128, 2, 192, 3})
	f.Add([]byte{31, 60, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 64, 65, 66, 193, 210, 67, 130, 131})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) < 3 || len(steps) > 300 {
			return
		}
		synctest.Test(t, func(t *testing.T) { newModel(t, steps).run(steps[2:]) })
	})
}

// model contains a queue and the observed state of its requests.
type model struct {
	t      *testing.T
	q      *Queue
	places int
	ask    []*modelRequest
}

// modelRequest is a request of the model.
type modelRequest struct {
	flow    int
	cancel  context.CancelFunc
	leave   func()
	err     error
	done    chan struct{}
	over    bool
	started bool
}

func newModel(t *testing.T, steps []byte) *model {
	t.Helper()
	places := 1 + int(steps[0])%40
	return &model{t: t, q: New(places, int(steps[1]), 1<<40), places: places}
}

func (m *model) run(steps []byte) {
	for _, step := range steps {
		waiting := m.waiting()
		m.step(step)
		synctest.Wait()
		m.collect()
		m.check(waiting)
	}
	for _, a := range m.ask {
		a.cancel()
	}
	synctest.Wait()
	m.collect()
	for _, a := range m.ask {
		if a.leave != nil && !a.over {
			a.leave()
			a.over = true
		}
	}
	synctest.Wait()
	m.collect()
	checkIdle(m.t, m.q)
}

func (m *model) step(step byte) {
	n := int(step & 63)
	switch step >> 6 {
	case 0:
		ctx, cancel := context.WithCancel(m.t.Context())
		a := &modelRequest{flow: n % 12, cancel: cancel, done: make(chan struct{})}
		m.ask = append(m.ask, a)
		go func() {
			defer close(a.done)
			a.leave, a.err = m.q.Enter(ctx, 1, func() Flow { return Flow{fmt.Sprint(a.flow), a.flow == 0} })
		}()
	case 1, 2: // the nth running request ends
		for _, a := range m.ask {
			if a.leave != nil && !a.over {
				if n--; n < 0 {
					a.over = true
					a.leave()
					return
				}
			}
		}
	case 3: // the nth waiting request is canceled
		for _, a := range m.ask {
			if !a.started {
				if n--; n < 0 {
					a.cancel()
					return
				}
			}
		}
	}
}

// collect records which requests have returned.
func (m *model) collect() {
	for _, a := range m.ask {
		select {
		case <-a.done:
			a.started = true
			if a.leave == nil {
				a.over = true
			}
		default:
		}
	}
}

// running returns the number of running requests of each flow.
func (m *model) running() map[int]int {
	out := map[int]int{}
	for _, a := range m.ask {
		if a.leave != nil && !a.over {
			out[a.flow]++
		}
	}
	return out
}

// waiting returns the waiting requests.
func (m *model) waiting() []*modelRequest {
	var out []*modelRequest
	for _, a := range m.ask {
		if !a.started {
			out = append(out, a)
		}
	}
	return out
}

func (m *model) check(waited []*modelRequest) {
	m.t.Helper()
	total := 0
	now := m.running()
	for _, n := range now {
		total += n
	}
	waiting := m.waiting()
	if total > m.places || total < m.places && len(waiting) > 0 {
		m.t.Fatalf("%d of %d places are used while %d requests wait", total, m.places, len(waiting))
	}
	if m.q.waiting != len(waiting) {
		m.t.Fatalf("the queue has %d requests that wait, want %d", m.q.waiting, len(waiting))
	}
	share := max(1, m.places/8)
	below := func(flow int) bool { return flow == 0 || now[flow] < share }
	for _, a := range waited {
		letIn := a.leave != nil
		if !letIn || a.flow == 0 || now[a.flow] <= share {
			continue // a step admits at most one request
		}
		for _, other := range waiting {
			if below(other.flow) {
				m.t.Fatalf("flow %d has %d places of a share of %d while flow %d with %d waits",
					a.flow, now[a.flow], share, other.flow, now[other.flow])
			}
		}
	}
}

// BenchmarkEnter measures a request that does not wait.
func BenchmarkEnter(b *testing.B) {
	q := New(100, 100, 100)
	whose := fixedFlow("acme")
	b.ReportAllocs()
	for b.Loop() {
		leave, err := q.Enter(b.Context(), 1, whose)
		if err != nil {
			b.Fatal(err)
		}
		leave()
	}
}

// BenchmarkEnterFull measures a request to a full queue with very many flows.
func BenchmarkEnterFull(b *testing.B) {
	q := New(1, 10000, 100)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	if _, err := q.Enter(b.Context(), 1, fixedFlow("first")); err != nil {
		b.Fatal(err)
	}
	for i := range 10000 {
		go func() { _, _ = q.Enter(ctx, 1, fixedFlow(fmt.Sprint(i))) }()
	}
	for q.Waiting() < 10000 {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	whose := fixedFlow("acme")
	for b.Loop() {
		if _, err := q.Enter(b.Context(), 1, whose); !errors.Is(err, ErrBusy) {
			b.Fatal(err)
		}
	}
}

// TestPanic checks that a panic in the flow function of a request does not block the queue.
func TestPanic(t *testing.T) {
	q := New(1, 1, 0)
	leave, err := q.Enter(t.Context(), 0, func() Flow { panic("no flow") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enter(ctx, 0, func() Flow { return Flow{Name: "a"} }); !errors.Is(err, context.Canceled) {
		t.Errorf("Enter() = %v", err)
	}
	leave()
	if _, err := q.Enter(t.Context(), 0, func() Flow { return Flow{Name: "a"} }); err != nil {
		t.Errorf("Enter() after the request has left = %v", err)
	}
}
