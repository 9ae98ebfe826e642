// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// owners returns a function that returns the tenant of a name, which is the part before the
// hyphen.
func owners(t *testing.T, ids ...string) func(string) tenant.ID {
	t.Helper()
	all := map[string]tenant.ID{}
	for _, id := range ids {
		all[id] = tenanttest.ID(t, id)
	}
	return func(name string) tenant.ID {
		of, _, _ := strings.Cut(name, "-")
		return all[of]
	}
}

// model is a simple implementation of queue, with which the test compares queue. It has a list of
// all waiting names, and the time of each tenant's last turn.
type model struct {
	most     int
	clock    int
	waiting  []string
	again    map[string]bool
	taken    map[string]bool
	since    map[tenant.ID]int
	occupied map[tenant.ID]int
	owner    func(string) tenant.ID
}

func (m *model) wait(name string) {
	id := m.owner(name)
	m.clock++
	if !slices.ContainsFunc(m.waiting, func(other string) bool { return m.owner(other) == id }) {
		m.since[id] = m.clock
	}
	m.waiting = append(m.waiting, name)
}

func (m *model) add(name string) {
	switch {
	case m.taken[name]:
		m.again[name] = true
	case !slices.Contains(m.waiting, name):
		m.wait(name)
	}
}

func (m *model) get() (next string, ok bool) {
	for _, name := range m.waiting {
		id := m.owner(name)
		if m.occupied[id] < m.most && (!ok || m.since[id] < m.since[m.owner(next)]) {
			next, ok = name, true
		}
	}
	if ok {
		id := m.owner(next)
		m.clock++
		m.since[id] = m.clock
		m.waiting = slices.DeleteFunc(m.waiting, func(name string) bool { return name == next })
		m.taken[next] = true
		m.occupied[id]++
	}
	return next, ok
}

func (m *model) done(name string) {
	delete(m.taken, name)
	m.occupied[m.owner(name)]--
	if m.again[name] {
		delete(m.again, name)
		m.wait(name)
	}
}

// TestQueueModel checks that queue returns the same names as model in random sequences of
// operations.
func TestQueueModel(t *testing.T) {
	owner := owners(t, "a", "b", "c")
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test that repeats
		q := newQueue(sparedWorkers+2, owner)
		m := &model{
			most:     q.maxWorkers,
			again:    map[string]bool{},
			taken:    map[string]bool{},
			since:    map[tenant.ID]int{},
			occupied: map[tenant.ID]int{},
			owner:    owner,
		}
		var taken []string
		for step := range 300 {
			switch random.IntN(3) {
			case 0:
				name := fmt.Sprintf("%c-%d", "abcd"[random.IntN(4)], random.IntN(6))
				q.Add(name)
				m.add(name)
			case 1:
				want, ok := m.get()
				if !ok {
					continue // the queue would wait
				}
				if got, _ := q.Get(); got != want {
					t.Fatalf("seed %d, step %d: Get() = %s, want %s", seed, step, got, want)
				}
				taken = append(taken, want)
			case 2:
				if len(taken) == 0 {
					continue
				}
				at := random.IntN(len(taken))
				q.Done(taken[at])
				m.done(taken[at])
				taken = slices.Delete(taken, at, at+1)
			}
		}
		if len(q.waiting.order) != len(q.waiting.items) || len(q.processing) != len(taken) {
			t.Fatalf("seed %d: the queue has %v, %v", seed, q.waiting, q.processing)
		}
	}
}

// TestQueueUnderLoad checks that no name is lost, that no name is processed by two workers, and
// that no tenant occupies all workers.
func TestQueueUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, names = 6, 10
		q := newQueue(all, owners(t, "a", "b"))
		var mu sync.Mutex
		at, ran := map[string]int{}, map[string]int{}
		tenants, most := map[string]int{}, 0
		var running, adding sync.WaitGroup
		for range all {
			running.Go(func() {
				for {
					name, down := q.Get()
					if down {
						return
					}
					mu.Lock()
					at[name]++
					tenants[name[:1]]++
					most = max(most, tenants["a"], tenants["b"])
					if at[name] > 1 {
						t.Errorf("two workers process %s", name)
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					at[name]--
					tenants[name[:1]]--
					ran[name]++
					mu.Unlock()
					q.Done(name)
				}
			})
		}
		for of := range 2 {
			adding.Go(func() {
				for i := range 20 * names {
					name := fmt.Sprintf("%c-%d", "ab"[of], i%names)
					q.Add(name)
					q.AddAfter(name, time.Duration(i)*time.Microsecond)
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		adding.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		clear(ran)
		mu.Unlock()
		for i := range names { // each name is processed again
			q.Add(fmt.Sprintf("a-%d", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ran) != names || most != all-sparedWorkers {
			t.Errorf("%d of %d names were processed, and a tenant had %d workers", len(ran), names, most)
		}
		q.ShutDown()
		running.Wait()
		if q.Add("a-1"); len(q.added) != 0 {
			t.Error("a queue that is shut down accepts a name")
		}
	})
}

// TestQueueRetries checks that the delay of a failed name grows with each retry, and that Forget
// resets it.
func TestQueueRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(workers, owners(t, "a"))
		start := time.Now()
		var after []time.Duration
		for range 3 {
			q.AddRateLimited("a-1")
			name, _ := q.Get()
			after = append(after, time.Since(start))
			q.Done(name)
		}
		if want := []time.Duration{retryAtFirst, 3 * retryAtFirst, 7 * retryAtFirst}; !slices.Equal(after, want) ||
			q.NumRequeues("a-1") != 3 {
			t.Errorf("retries after %v, want %v", after, want)
		}
		if q.Forget("a-1"); q.NumRequeues("a-1") != 0 {
			t.Error("Forget did not reset the retries")
		}
	})
}

// TestWriteQueue checks that writes that remove rights have priority, and that every fourth write
// has the class adds. In each class, tenants are served in turn.
func TestWriteQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		turns := newWriteQueue(flowcontrol.NewTokenBucketRateLimiter(1, 1))
		owner := owners(t, "a", "b", "c")
		var mu sync.Mutex
		var got []string
		var waiting sync.WaitGroup
		wait := func(name string, of class) {
			waiting.Go(func() {
				err := turns.wait(ctx, owner(name), of)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					got = append(got, name)
				}
			})
			synctest.Wait()
		}
		for i := range 3 {
			wait(fmt.Sprintf("a-add%d", i), adds)
		}
		wait("b-add0", adds)
		for i := range 3 {
			wait(fmt.Sprintf("a-revoke%d", i), revokes)
		}
		wait("c-revoke0", revokes)
		var running sync.WaitGroup
		running.Go(func() { turns.run(ctx) })
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "a-revoke0 c-revoke0 a-revoke1 a-add0 a-revoke2 b-add0 a-add1 a-add2"
		if text := strings.Join(got, " "); text != want {
			t.Errorf("the order is %s, want %s", text, want)
		}
		wait("a-last", adds)
		wait("a-canceled", adds) // canceled before the rate limit allows it
		cancel()
		waiting.Wait()
		running.Wait()
		if len(turns.waiting[adds].order)+len(turns.waiting[adds].items) > 0 {
			t.Errorf("writes that were canceled still wait: %v", turns.waiting)
		}
	})
}
