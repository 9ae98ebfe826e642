// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var begin = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)

// clock is a clock whose time a test sets.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.set(begin)
	return c
}

func (c *clock) now() time.Time      { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) set(t time.Time)     { c.at.Store(t.UnixNano()) }
func (c *clock) add(d time.Duration) { c.at.Add(int64(d)) }

// directory contains the existing tenants with their UIDs.
type directory struct {
	mu   sync.Mutex
	uids map[string]string
}

func (d *directory) set(name, uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uids[name] = uid
}

func (d *directory) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uids, name)
}

func (d *directory) exists(id tenant.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, found := d.uids[id.String()]
	return found
}

func (d *directory) uid(id tenant.ID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.uids[id.String()]
}

func newDirectory(names ...string) *directory {
	d := &directory{uids: map[string]string{}}
	for _, name := range names {
		d.set(name, "uid-of-"+name)
	}
	return d
}

// sink contains the last record of each key, like a correct consumer of records.
type sink struct {
	tb     testing.TB
	latest map[usage.Key]usage.Record
}

func newSink(tb testing.TB) *sink { return &sink{tb, map[usage.Key]usage.Record{}} }

// collect reads all changes of a recorder, as [usage.Records] does.
func (s *sink) collect(r *usage.Recorder) {
	s.tb.Helper()
	for _, hour := range r.Changed() {
		for _, rec := range r.RecordsOf(hour) {
			last := s.latest[rec.Key()]
			for name, numbers := range map[string][2]int64{
				"requests": {last.Requests, rec.Requests},
				"denied":   {last.Denied, rec.Denied},
				"limited":  {last.Limited, rec.Limited},
				"watches":  {last.Watches, rec.Watches},
				"seats":    {last.SeatMilliseconds, rec.SeatMilliseconds},
			} {
				if numbers[1] < numbers[0] || numbers[1] < 0 {
					s.tb.Errorf("%s of %+v fell from %d to %d", name, rec.Key(), numbers[0], numbers[1])
				}
			}
			s.latest[rec.Key()] = rec
		}
	}
	r.Prune(nil)
}

func (s *sink) sum() (all usage.Totals) {
	for _, r := range s.latest {
		all.Requests += r.Requests
		all.Denied += r.Denied
		all.Limited += r.Limited
		all.SeatMilliseconds += r.SeatMilliseconds
		all.Watches = max(all.Watches, r.Watches)
	}
	return all
}

func (s *sink) totalsOf(name string) (all usage.Totals, records int) {
	for _, r := range s.latest {
		if r.Tenant == name {
			all.Requests += r.Requests
			all.Denied += r.Denied
			all.Limited += r.Limited
			all.SeatMilliseconds += r.SeatMilliseconds
			all.Watches = max(all.Watches, r.Watches)
			records++
		}
	}
	return all, records
}

// TestRecorder checks which number each method of the recorder changes, and in which entry.
func TestRecorder(t *testing.T) {
	c, d := newClock(), newDirectory("acme", "initech")
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	acme := tenanttest.ID(t, "acme")
	r.Allowed(acme)
	r.Denied(acme)
	r.Limited(acme)
	r.Executed(acme, 3, 2*time.Second)
	r.Executed(acme, 3, -time.Hour) // the clock was set back
	r.Executed(acme, 0, time.Hour)
	first := r.Stream(acme)
	second := r.Stream(acme)
	first()
	first() // a second call has no effect
	third := r.Stream(acme)
	r.Allowed(tenant.ID{})
	r.Denied(tenanttest.ID(t, "invented-1"))
	r.Denied(tenanttest.ID(t, "invented-2"))
	s := newSink(t)
	s.collect(r)
	for name, want := range map[string]usage.Totals{
		"acme": {
			Requests:         2,
			Denied:           1,
			Limited:          1,
			Watches:          2,
			SeatMilliseconds: 6000,
		},
		usage.NoTenant:     {Requests: 1},
		usage.OtherTenants: {Requests: 2, Denied: 2},
		"initech":          {},
		"invented-1":       {},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := s.totalsOf(name); got != want {
				t.Errorf("%+v; want %+v", got, want)
			}
		})
	}
	if len(r.Changed()) != 0 {
		t.Error("hours changed without a request")
	}
	// Active streams are counted in the next hour, even without a request.
	c.add(time.Hour)
	s.collect(r)
	second()
	third()
	c.add(time.Hour)
	s.collect(r)
	if _, records := s.totalsOf("acme"); records != 2 {
		t.Errorf("%d hours; want 2, one with requests and one with active streams", records)
	}
	for key, rec := range s.latest {
		if key.UID == "uid-of-acme" && (key.Tenant != "" || rec.Tenant != "acme") || rec.Started != begin {
			t.Errorf("key %+v of %+v", key, rec)
		}
	}
}

// TestHours checks that a request belongs to the hour in which it was recorded.
func TestHours(t *testing.T) {
	c, d := newClock(), newDirectory("acme")
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	acme := tenanttest.ID(t, "acme")
	c.add(time.Hour - time.Nanosecond)
	r.Allowed(acme)
	c.add(time.Nanosecond)
	r.Allowed(acme)
	r.Allowed(acme)
	if hours := r.Changed(); len(hours) != 2 || hours[0] != begin || hours[1] != begin.Add(time.Hour) {
		t.Fatalf("hours %v", hours)
	}
	for name, c := range map[string]struct {
		hour time.Time
		want int64
	}{
		"the first hour":           {begin, 1},
		"the next hour":            {begin.Add(time.Hour), 2},
		"an hour without requests": {begin.Add(2 * time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := int64(0)
			for _, rec := range r.RecordsOf(c.hour) {
				got += rec.Requests
			}
			if got != c.want {
				t.Errorf("%d requests; want %d", got, c.want)
			}
		})
	}
}

// TestRecreatedTenantHasNewTotals checks that a tenant with the name of a deleted tenant does not
// get the totals of the deleted tenant, and that these totals are still recorded.
func TestRecreatedTenantHasNewTotals(t *testing.T) {
	c, d := newClock(), newDirectory("acme")
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	s, acme := newSink(t), tenanttest.ID(t, "acme")
	r.Allowed(acme)
	d.set("acme", "second")
	r.Check(acme)
	r.Denied(acme)
	d.remove("acme")
	r.Check(acme)
	r.Allowed(acme) // a credential of the deleted tenant
	d.set("acme", "second")
	r.Denied(acme) // the cache of Tenants is incomplete
	s.collect(r)
	got := map[string]int64{}
	for key, rec := range s.latest {
		got[key.UID+key.Tenant] += rec.Requests
	}
	want := map[string]int64{"uid-of-acme": 1, "second": 2, usage.OtherTenants: 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("requests by UID %v; want %v", got, want)
	}
	// The entry of the deleted tenant is removed after its hour.
	c.add(3 * time.Hour)
	s.collect(r)
	if n := len(r.RecordsOf(begin)); n != 2 {
		t.Errorf("%d entries of the first hour; want 2, without the deleted tenant", n)
	}
}

// TestInventedNames checks that names of tenants that do not exist have no entries.
func TestInventedNames(t *testing.T) {
	c, d := newClock(), newDirectory("acme")
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	const names = 20_000
	for i := range names {
		r.Denied(tenanttest.ID(t, fmt.Sprintf("invented-%d", i)))
	}
	if all := r.RecordsOf(begin); len(all) != 1 || all[0].Tenant != usage.OtherTenants || all[0].Denied != names {
		t.Errorf("%+v; want one record of all", all)
	}
	// The number of entries is limited while it is unknown which tenants exist.
	open := usage.NewRecorder(c.now, func(tenant.ID) bool { return true }, func(tenant.ID) string { return "" })
	const many = 110_000
	for i := range many {
		open.Denied(tenanttest.ID(t, fmt.Sprintf("invented-%d", i)))
	}
	total := int64(0)
	all := open.RecordsOf(begin)
	for i := range all {
		total += all[i].Requests
	}
	if len(all) > 100_001 || total != many {
		t.Errorf("%d entries with %d requests; want at most 100,001 with %d", len(all), total, many)
	}
}

// TestClockJumps checks that a clock that jumps causes no negative numbers, no entries with more
// than 49 hours, and no lost totals.
func TestClockJumps(t *testing.T) {
	for name, jumps := range map[string][]time.Duration{
		"back an hour":              {-time.Hour},
		"back and forth":            {-time.Hour, time.Hour, -time.Hour, time.Hour},
		"days back":                 {-100 * time.Hour},
		"days ahead":                {100 * time.Hour},
		"days ahead, and corrected": {1000 * time.Hour, -1000 * time.Hour},
		"days back, and corrected":  {-1000 * time.Hour, 1000 * time.Hour},
		"before 1970":               {-100 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := newClock(), newDirectory("acme")
			r := usage.NewRecorder(c.now, d.exists, d.uid)
			s, acme := newSink(t), tenanttest.ID(t, "acme")
			ended := r.Stream(acme)
			count := int64(0)
			use := func() {
				for range 10 {
					r.Allowed(acme)
					count++
				}
				s.collect(r)
				r.Allowed(acme)
				count++
			}
			use()
			for _, jump := range jumps {
				c.add(jump)
				use()
				c.add(20 * time.Minute)
				use()
			}
			ended()
			s.collect(r)
			if got := s.sum(); got.Requests != count || got.Watches != 1 {
				t.Errorf("%+v; want %d requests, 1 watch", got, count)
			}
		})
	}
}

// TestManyJumps checks that a clock that jumps before each request loses no requests, and that no
// more than 49 hours exist.
func TestManyJumps(t *testing.T) {
	c, d := newClock(), newDirectory("acme")
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	s, acme := newSink(t), tenanttest.ID(t, "acme")
	random := rand.New(rand.NewPCG(1, 2))
	const requests = 10_000
	for i := range requests {
		c.set(begin.Add(time.Duration(random.IntN(2000)-1000) * time.Hour))
		r.Allowed(acme)
		if i%1000 == 0 {
			s.collect(r)
		}
	}
	hours := r.Changed()
	if len(hours) > usage.MaxHours {
		t.Errorf("%d hours; want at most %d", len(hours), usage.MaxHours)
	}
	for _, hour := range hours {
		for _, rec := range r.RecordsOf(hour) {
			s.latest[rec.Key()] = rec
		}
	}
	if got := s.sum(); got.Requests != requests {
		t.Errorf("%d requests; want %d", got.Requests, requests)
	}
}

// TestSum simulates 24 hours with many tenants and goroutines, while tenants are deleted and
// created again. It checks the requests of each tenant, and that the sum over all entries is the
// total.
func TestSum(t *testing.T) {
	const tenants, workers, perHour = 50, 8, 4000
	names := make([]string, tenants)
	ids := make([]tenant.ID, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
		ids[i] = tenanttest.ID(t, names[i])
	}
	c, d := newClock(), newDirectory(names...)
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	s := newSink(t)
	var requests, denied, limited, seats atomic.Int64
	var own [tenants]atomic.Int64
	for hour := range 24 {
		c.set(begin.Add(time.Duration(hour) * time.Hour))
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(hour), uint64(w)))
				for range perHour {
					i := random.IntN(tenants)
					requests.Add(1)
					own[i].Add(1)
					switch random.IntN(4) {
					case 0:
						r.Denied(ids[i])
						denied.Add(1)
					case 1:
						r.Allowed(ids[i])
						r.Executed(ids[i], 2, 3*time.Millisecond)
						seats.Add(6)
					case 2:
						r.Allowed(ids[i])
						r.Limited(ids[i])
						limited.Add(1)
					default:
						ended := r.Stream(ids[i])
						r.Allowed(ids[i])
						ended()
					}
				}
			})
		}
		all.Go(func() {
			for range 5 {
				for _, hour := range r.Changed() {
					_ = r.RecordsOf(hour)
				}
				// A new Tenant object replaces the Tenant object of one tenant.
				d.set(names[hour], fmt.Sprintf("replaced-%d", hour))
				r.Check(ids[hour])
			}
		})
		all.Wait()
		// All requests of this hour have been recorded. The goroutine above may have read some of
		// the changes.
		for _, rec := range r.RecordsOf(c.now()) {
			s.latest[rec.Key()] = rec
		}
		s.collect(r)
	}
	got := s.sum()
	want := usage.Totals{
		Requests:         requests.Load(),
		Denied:           denied.Load(),
		Limited:          limited.Load(),
		SeatMilliseconds: seats.Load(),
	}
	got.Watches = 0
	if got != want {
		t.Errorf("sum %+v; want %+v", got, want)
	}
	for i, name := range names {
		if of, _ := s.totalsOf(name); of.Requests != own[i].Load() {
			t.Errorf("%s: %d requests; want %d", name, of.Requests, own[i].Load())
		}
	}
}

// TestMemory checks the memory for 10,000 tenants with requests in each of 49 hours.
func TestMemory(t *testing.T) {
	const tenants, most = 10_000, 50 << 20
	names := make([]string, tenants)
	ids := make([]tenant.ID, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
		ids[i] = tenanttest.ID(t, names[i])
	}
	c, d := newClock(), newDirectory(names...)
	before := heap()
	r := usage.NewRecorder(c.now, d.exists, d.uid)
	for range 3 * usage.MaxHours {
		for _, id := range ids {
			r.Allowed(id)
		}
		if hours := r.Changed(); len(hours) != 1 || hours[0] != c.now() {
			t.Fatalf("requests at %v belong to the hours %v", c.now(), hours)
		}
		r.Prune(nil)
		c.add(time.Hour)
	}
	used := heap() - before
	t.Logf("%d tenants and %d hours: %.1f MB", tenants, usage.MaxHours, float64(used)/(1<<20))
	if used > most {
		t.Errorf("%d bytes; want at most %d", used, most)
	}
	if n := len(r.RecordsOf(c.now().Add(-time.Hour))); n != tenants {
		t.Errorf("%d records of the last hour; want %d", n, tenants)
	}
	if n := len(r.RecordsOf(c.now().Add(-(usage.MaxHours - 1) * time.Hour))); n != tenants {
		t.Errorf("%d records of the first of %d hours; want %d", n, usage.MaxHours, tenants)
	}
	if n := len(r.RecordsOf(c.now().Add(-usage.MaxHours * time.Hour))); n != 0 {
		t.Errorf("%d records of an older hour; want none", n)
	}
	runtime.KeepAlive(r)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAllocations checks that recording a request allocates nothing.
func TestAllocations(t *testing.T) {
	d := newDirectory("acme")
	r := usage.NewRecorder(time.Now, d.exists, d.uid)
	acme := tenanttest.ID(t, "acme")
	for name, f := range map[string]func(){
		"allowed":  func() { r.Allowed(acme) },
		"denied":   func() { r.Denied(acme) },
		"limited":  func() { r.Limited(acme) },
		"executed": func() { r.Executed(acme, 1, time.Millisecond) },
		"none":     func() { r.Allowed(tenant.ID{}) },
	} {
		t.Run(name, func(t *testing.T) {
			f()
			if n := testing.AllocsPerRun(1000, f); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkRecorder(b *testing.B) {
	names := make([]string, 1000)
	ids := make([]tenant.ID, len(names))
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
		ids[i] = tenanttest.ID(b, names[i])
	}
	d := newDirectory(names...)
	r := usage.NewRecorder(time.Now, d.exists, d.uid)
	for _, id := range ids {
		r.Allowed(id)
	}
	b.Run("one goroutine", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.Allowed(ids[i%len(ids)])
		}
	})
	b.Run("all processors, one tenant", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Allowed(ids[0])
			}
		})
	})
	b.Run("all processors, 1000 tenants", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(len(ids)); pb.Next(); i++ {
				r.Allowed(ids[i%len(ids)])
			}
		})
	})
}
