// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

// The names of entries that do not belong to one tenant. No tenant has one of these names, because
// an ID contains no parentheses.
const (
	// NoTenant is the name of the entry of callers without a tenant.
	NoTenant = "(none)"
	// OtherTenants is the name of the entry of tenants that do not exist or have no entry of their
	// own.
	OtherTenants = "(others)"
)

const (
	// MaxHours is the maximum number of hours of a tenant in a [Recorder] and a TenantUsage: the
	// current hour and the 48 hours before it.
	MaxHours = 49
	// maxTenants is the maximum number of entries of tenants. It applies while it is unknown which
	// tenants exist.
	maxTenants = 100_000
	// shards is the number of maps of entries. Adding an entry copies one of the maps.
	shards = 256

	hourSeconds = int64(time.Hour / time.Second)
)

// Totals contains the usage of a tenant's callers in one hour.
type Totals struct {
	// Requests is the number of requests and reviews that the tenant boundary checked. Denied is
	// the number of these requests that the tenant boundary denied.
	Requests, Denied int64
	// Limited is the number of requests that got status 429 because of a limit of the tenant.
	Limited int64
	// Watches is the maximum number of concurrent watches and other streams.
	Watches int64
	// SeatMilliseconds is how long the requests occupied seats of API Priority and Fairness.
	SeatMilliseconds int64
}

// plus returns the combined usage of two processes in the same hour.
func (t Totals) plus(other Totals) Totals {
	return Totals{
		Requests:         t.Requests + other.Requests,
		Denied:           t.Denied + other.Denied,
		Limited:          t.Limited + other.Limited,
		Watches:          max(t.Watches, other.Watches),
		SeatMilliseconds: t.SeatMilliseconds + other.SeatMilliseconds,
	}
}

// The flags in the state of a bucket. The higher bits contain the epoch of the bucket.
const (
	changed    = 1 << iota // the totals have changed since the last call of [Recorder.Changed]
	written                // the totals have been written to the TenantUsage at least once
	unsaved                // the TenantUsage lacks changes that [Recorder.Changed] has returned
	epochShift = iota
)

// bucket contains the totals of one hour. It has only 48 bytes, because there are many buckets.
type bucket struct {
	hour  int32 // hours since 1970
	state atomic.Uint32

	requests, denied, limited, watches, seatMicros atomic.Int64
}

func (b *bucket) totals() Totals {
	return Totals{
		Requests:         b.requests.Load(),
		Denied:           b.denied.Load(),
		Limited:          b.limited.Load(),
		Watches:          b.watches.Load(),
		SeatMilliseconds: b.seatMicros.Load() / 1000,
	}
}

// touch records that the totals have changed. It must be called after the change.
func (b *bucket) touch() {
	if b.state.Load()&changed == 0 {
		b.state.Or(changed)
	}
}

// updateWatches raises the maximum number of streams to open, if open is greater.
func (b *bucket) updateWatches(open int64) {
	for {
		highest := b.watches.Load()
		if highest >= open {
			return
		}
		if b.watches.CompareAndSwap(highest, open) {
			b.touch()
			return
		}
	}
}

// entry contains the totals of one tenant with one UID of its Tenant object.
type entry struct {
	name    string // or NoTenant or OtherTenants
	uid     string
	open    atomic.Int64 // active streams
	current atomic.Pointer[bucket]

	mu      sync.Mutex
	buckets []*bucket // sorted by hour
	// base contains the totals that earlier processes of this server have written to the
	// TenantUsage, for the hours of this process.
	base map[int32]Totals
	// restored contains the totals that an earlier process of this server could not write to the
	// TenantUsage.
	restored   map[int32]unsavedTotals
	hasWritten bool // this process has written the server's entry in the TenantUsage
}

// Recorder records the usage of tenants at this server. It is safe for concurrent use.
type Recorder struct {
	now     func() time.Time
	exists  func(tenant.ID) bool
	uid     func(tenant.ID) string
	started time.Time
	// elapsed returns the time since the start. Changes to the clock do not affect it.
	elapsed func() time.Duration
	// hasWriter specifies whether a [Writer] writes the totals to TenantUsages.
	hasWriter    bool
	seed         maphash.Seed
	shards       [shards]atomic.Pointer[map[tenant.ID]*entry]
	noTenant     *entry
	otherTenants *entry

	mu      sync.Mutex
	tenants int
	// ended contains the entries of deleted tenants until their hours are recorded.
	ended  map[identity]*entry
	pruned int32 // the last hour whose totals were removed
	epoch  uint32
}

// identity identifies a tenant with one UID of its Tenant object.
type identity struct{ name, uid string }

// NewRecorder returns a recorder. now is the clock. exists reports whether a tenant exists. uid
// returns the UID of a tenant's Tenant object, or "" if the tenant has none.
func NewRecorder(now func() time.Time, exists func(tenant.ID) bool, uid func(tenant.ID) string) *Recorder {
	started := now().UTC()
	return &Recorder{
		now:          now,
		exists:       exists,
		uid:          uid,
		started:      started,
		elapsed:      func() time.Duration { return now().Sub(started) },
		seed:         maphash.MakeSeed(),
		noTenant:     &entry{name: NoTenant},
		otherTenants: &entry{name: OtherTenants},
		ended:        map[identity]*entry{},
		pruned:       math.MinInt32,
	}
}

// maxDrift is the maximum change of the clock that clockChanged ignores.
const maxDrift = time.Hour

// clockChanged reports whether the clock was changed by more than maxDrift since the start. Hours
// may then appear older than they are, so hours are removed only if there are too many.
func (r *Recorder) clockChanged() bool {
	byClock := r.now().Round(0).Sub(r.started.Round(0)) // without the monotonic clock
	return (byClock - r.elapsed()).Abs() > maxDrift
}

// Started returns the time at which the recorder started. It is part of the key of each [Record].
func (r *Recorder) Started() time.Time { return r.started }

// Allowed records a request that the tenant boundary did not deny. The zero ID represents callers
// without a tenant.
func (r *Recorder) Allowed(id tenant.ID) {
	b := r.bucket(r.entry(id))
	b.requests.Add(1)
	b.touch()
}

// Denied records a request that the tenant boundary denied.
func (r *Recorder) Denied(id tenant.ID) {
	b := r.bucket(r.entry(id))
	b.requests.Add(1)
	b.denied.Add(1)
	b.touch()
}

// Limited records a request that was rejected because of a limit of the tenant.
func (r *Recorder) Limited(id tenant.ID) {
	b := r.bucket(r.entry(id))
	b.limited.Add(1)
	b.touch()
}

// Stream records a watch or another stream. The caller calls ended when the stream ends.
func (r *Recorder) Stream(id tenant.ID) (ended func()) {
	e := r.entry(id)
	r.bucket(e).updateWatches(e.open.Add(1))
	return sync.OnceFunc(func() { e.open.Add(-1) })
}

// Executed records a request that occupied seats of API Priority and Fairness. It ignores a
// negative duration, which can occur after the clock was set back.
func (r *Recorder) Executed(id tenant.ID, seats uint64, lasted time.Duration) {
	if lasted <= 0 || seats == 0 {
		return
	}
	const limit = math.MaxInt32
	b := r.bucket(r.entry(id))
	b.seatMicros.Add(int64(min(seats, limit)) * min(lasted.Microseconds(), limit)) // #nosec G115 -- at most 2^31
	b.touch()
}

// hourOf returns the number of hours since 1970.
func hourOf(t time.Time) int32 {
	hour := t.Unix() / hourSeconds
	return int32(min(max(hour, 0), math.MaxInt32)) // #nosec G115 -- within the range
}

// timeOf returns the beginning of an hour.
func timeOf(hour int32) time.Time { return time.Unix(int64(hour)*hourSeconds, 0).UTC() }

func (r *Recorder) shard(id tenant.ID) *atomic.Pointer[map[tenant.ID]*entry] {
	return &r.shards[maphash.String(r.seed, id.String())%shards]
}

// entry returns the entry of a tenant. It adds the entry if the tenant exists and has no entry.
func (r *Recorder) entry(id tenant.ID) *entry {
	if id.IsZero() {
		return r.noTenant
	}
	if all := r.shard(id).Load(); all != nil {
		if e, found := (*all)[id]; found {
			return e
		}
	}
	if !r.exists(id) {
		return r.otherTenants
	}
	return r.add(id)
}

// add adds the entry of a tenant and returns it. If there are too many entries, it returns the
// entry [OtherTenants].
func (r *Recorder) add(id tenant.ID) *entry {
	uid := r.uid(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	shard := r.shard(id)
	before := map[tenant.ID]*entry{}
	if all := shard.Load(); all != nil {
		if e, found := (*all)[id]; found {
			return e
		}
		before = *all
	}
	if r.tenants >= maxTenants {
		return r.otherTenants
	}
	key := identity{id.String(), uid}
	e, existed := r.ended[key]
	if delete(r.ended, key); !existed {
		e = &entry{name: id.String(), uid: uid}
	}
	all := maps.Clone(before)
	all[id] = e
	shard.Store(&all)
	r.tenants++
	return e
}

// bucket returns the bucket of the current hour.
func (r *Recorder) bucket(e *entry) *bucket {
	hour := hourOf(r.now())
	if b := e.current.Load(); b != nil && b.hour == hour {
		return b
	}
	return r.addHour(e, hour)
}

// addHour returns the bucket of the given hour, and adds it if it does not exist. If the entry has
// too many hours because the clock jumps, addHour returns the bucket of its last hour.
func (r *Recorder) addHour(e *entry, hour int32) *bucket {
	r.mu.Lock()
	pruned, epoch := r.pruned, r.epoch
	r.mu.Unlock()
	if hour > pruned {
		epoch = 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, added := e.insert(hour, epoch)
	if added {
		b.updateWatches(e.open.Load())
	}
	if b.hour == hour {
		e.current.Store(b)
	}
	return b
}

// insert returns the bucket of the given hour, and adds it if it does not exist. If the entry has
// too many hours, insert returns the bucket of its last hour. The caller must hold e.mu.
func (e *entry) insert(hour int32, epoch uint32) (b *bucket, added bool) {
	at := len(e.buckets)
	for i, b := range e.buckets {
		if b.hour == hour {
			return b, false
		}
		if b.hour > hour {
			at = i
			break
		}
	}
	if len(e.buckets) >= MaxHours {
		return e.buckets[len(e.buckets)-1], false
	}
	b = &bucket{hour: hour}
	b.state.Store(epoch << epochShift)
	if len(e.buckets) == cap(e.buckets) {
		e.buckets = append(make([]*bucket, 0, min(max(2*cap(e.buckets), 4), MaxHours)), e.buckets...)
	}
	e.buckets = append(e.buckets, nil)
	copy(e.buckets[at+1:], e.buckets[at:])
	e.buckets[at] = b
	return b, true
}
