// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"slices"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

// entries returns all entries, including those of deleted tenants.
func (r *Recorder) entries() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(make([]*entry, 0, 2+r.tenants+len(r.ended)), r.noTenant, r.otherTenants)
	for i := range r.shards {
		if of := r.shards[i].Load(); of != nil {
			all = slices.AppendSeq(all, maps.Values(*of))
		}
	}
	return slices.AppendSeq(all, maps.Values(r.ended))
}

// Changed returns the hours whose totals have changed since the last call, in order. The caller
// MUST record all totals of these hours, see [Recorder.RecordsOf].
func (r *Recorder) Changed() []time.Time {
	hours := map[int32]bool{}
	for _, e := range r.entries() {
		if open := e.open.Load(); open > 0 { // the current hour may have no requests
			r.bucket(e).updateWatches(open)
		}
		e.mu.Lock()
		for _, b := range e.buckets {
			if b.state.Load()&changed != 0 {
				b.state.Or(unsaved)
				b.state.And(^uint32(changed)) // cleared before the totals are read
				hours[b.hour] = true
			}
		}
		e.mu.Unlock()
	}
	all := make([]time.Time, 0, len(hours))
	for _, hour := range slices.Sorted(maps.Keys(hours)) {
		all = append(all, timeOf(hour))
	}
	return all
}

// RecordsOf returns the records of the given hour, without the names of the cluster, the server
// and the component.
func (r *Recorder) RecordsOf(hour time.Time) []Record {
	var all []Record
	for _, e := range r.entries() {
		e.mu.Lock()
		for _, b := range e.buckets {
			if b.hour != hourOf(hour) {
				continue
			}
			if t := b.totals(); t != (Totals{}) {
				// The key contains the epoch, so this record does not replace the record of
				// totals of the same hour that were removed.
				all = append(all, Record{
					Started: r.startedIn(b.state.Load() >> epochShift),
					UID:     e.uid,
					Tenant:  e.name,
					Hour:    timeOf(b.hour),
					Totals:  t,
				})
			}
		}
		e.mu.Unlock()
	}
	return all
}

// startedIn returns the start time of the process in the records of an epoch. The start times of
// two epochs differ by nanoseconds.
func (r *Recorder) startedIn(epoch uint32) time.Time { return r.started.Add(time.Duration(epoch)) }

// startedOf returns the start time of the process for the spool file of an hour. It differs from
// the actual start time if totals of this hour were removed.
func (r *Recorder) startedOf(hour int32) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hour <= r.pruned {
		return r.startedIn(r.epoch)
	}
	return r.started
}

// Check ends the entry of a tenant that no longer exists or whose Tenant object was replaced. The
// totals of the entry remain until they are recorded. If a tenant without a Tenant object gets one,
// its new entry also writes the earlier totals to the TenantUsage.
func (r *Recorder) Check(id tenant.ID) {
	all := r.shard(id).Load()
	if all == nil {
		return
	}
	e, found := (*all)[id]
	if !found || r.exists(id) && r.uid(id) == e.uid {
		return
	}
	if !r.end(id, e) || e.uid != "" {
		return
	}
	if adopted := r.entry(id); adopted != r.otherTenants {
		for hour, totals := range e.unsavedOf() {
			adopted.restore(hour, totals)
		}
	}
}

// end moves an entry to the ended entries. It returns false if the entry had already ended.
func (r *Recorder) end(id tenant.ID, e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.shard(id).Load()
	if (*current)[id] != e {
		return false
	}
	remaining := maps.Clone(*current)
	delete(remaining, id)
	r.shard(id).Store(&remaining)
	r.tenants--
	r.ended[identity{e.name, e.uid}] = e
	return true
}

// Prune calls [Recorder.Check] for all tenants. It then removes the totals of hours that are at
// least 48 hours old, and of hours in the future, which exist after the clock was set back. It
// does not remove totals that [Recorder.Changed] has not returned yet.
//
// If an entry has fewer than MaxHours hours, Prune also retains the hours that are not recorded
// or not written to the TenantUsage yet. If the clock was changed, Prune then retains all hours
// of the entry. At most 10,000 deleted tenants with unrecorded totals are retained. Prune returns
// the number of records that are lost because of these limits.
func (r *Recorder) Prune(unrecorded []time.Time) (lost int) {
	pending := make(map[int32]bool, len(unrecorded))
	for _, hour := range unrecorded {
		pending[hourOf(hour)] = true
	}
	for i := range r.shards {
		if all := r.shards[i].Load(); all != nil {
			for id := range *all {
				r.Check(id)
			}
		}
	}
	now := hourOf(r.now())
	isOld := func(b *bucket) bool { // removes the oldest hour before the next hour begins
		return b.state.Load()&changed == 0 && (b.hour <= now-(MaxHours-1) || b.hour > now+1)
	}
	retain := func(b *bucket) bool {
		return pending[b.hour] || r.hasWriter && b.state.Load()&unsaved != 0
	}
	if r.clockChanged() {
		retain = func(*bucket) bool { return true }
	}
	entries := r.entries()
	r.recordPruned(entries, isOld)
	for _, e := range entries {
		lost += e.prune(isOld, retain, pending)
	}
	return lost + r.forgetEnded(now, pending)
}

// maxEnded is the maximum number of ended entries that are retained because their totals are not
// recorded yet.
const maxEnded = 10_000

// forgetEnded removes the ended entries whose hours are over and recorded. While there are more
// than maxEnded ended entries, it also removes entries with unrecorded hours. It returns the
// number of records that are lost because of this.
func (r *Recorder) forgetEnded(now int32, pending map[int32]bool) (lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.pruned
	removed := 0
	for key, e := range r.ended {
		isComplete, waiting := e.ending(now, pending)
		if !isComplete || waiting > 0 && len(r.ended) <= maxEnded {
			continue
		}
		lost += waiting
		last = max(last, e.lastHour())
		delete(r.ended, key)
		removed++
	}
	if removed > 0 {
		r.pruned = last
		r.epoch = r.epoch + 1
	}
	return lost
}

// recordPruned records the last hour that is about to be removed and begins a new epoch. A later
// total of this hour or an earlier hour then belongs to the new epoch.
func (r *Recorder) recordPruned(entries []*entry, isOld func(*bucket) bool) {
	var last int32
	found := false
	for _, e := range entries {
		e.mu.Lock()
		for _, b := range e.buckets {
			if isOld(b) {
				last = max(last, b.hour)
				found = true
			}
		}
		e.mu.Unlock()
	}
	if found {
		r.mu.Lock()
		r.pruned = max(r.pruned, last)
		r.epoch = r.epoch + 1
		r.mu.Unlock()
	}
}

// prune removes old hours. It retains an hour for which retain returns true, unless the entry
// already has MaxHours hours. It returns the number of lost records.
func (e *entry) prune(isOld, retain func(*bucket) bool, pending map[int32]bool) (lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	isFull := len(e.buckets) >= MaxHours
	e.buckets = slices.DeleteFunc(e.buckets, func(b *bucket) bool {
		if !isOld(b) || !isFull && retain(b) {
			return false
		}
		if pending[b.hour] && b.totals() != (Totals{}) {
			lost++
		}
		e.current.CompareAndSwap(b, nil)
		delete(e.base, b.hour)
		delete(e.restored, b.hour)
		return true
	})
	return lost
}

// lastHour returns the last hour of an entry, or 0 if it has none.
func (e *entry) lastHour() int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.buckets) == 0 {
		return 0
	}
	return e.buckets[len(e.buckets)-1].hour
}

// ending reports whether an ended entry has no active streams, and only hours that are over and
// collected. waiting is the number of hours that are not recorded yet.
func (e *entry) ending(now int32, pending map[int32]bool) (isComplete bool, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.buckets {
		if b.hour+1 >= now || b.state.Load()&changed != 0 {
			return false, 0
		}
		if pending[b.hour] {
			waiting++
		}
	}
	return e.open.Load() <= 0, waiting
}
