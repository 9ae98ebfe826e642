// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
)

// unsavedName is the name of the file in usage.directory for the totals that a process could not
// write to TenantUsages before it ended.
const unsavedName = "unsaved.json"

// unsavedTotals are totals of one hour that the server's entry in a TenantUsage lacks.
type unsavedTotals struct {
	Totals
	// isSum specifies whether the totals include the hour's totals in the server's entry. If false,
	// they must be added to the entry.
	isSum bool
}

// after returns the totals of the server's entry after t was applied to it.
func (t unsavedTotals) after(entry Totals) Totals {
	if !t.isSum {
		return entry.plus(t.Totals)
	}
	return Totals{
		Requests:         max(entry.Requests, t.Requests),
		Denied:           max(entry.Denied, t.Denied),
		Limited:          max(entry.Limited, t.Limited),
		Watches:          max(entry.Watches, t.Watches),
		SeatMilliseconds: max(entry.SeatMilliseconds, t.SeatMilliseconds),
	}
}

// unsavedHour is the JSON form of unsavedTotals and their hour.
type unsavedHour struct {
	IsSum  bool   `json:"isSum,omitempty"`
	Record Record `json:"record"`
}

// unsavedOf returns the totals that the TenantUsage of a tenant lacks.
func (e *entry) unsavedOf() map[int32]unsavedTotals {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[int32]unsavedTotals{}
	for _, b := range e.buckets {
		state := b.state.Load()
		own := b.totals()
		if state&(unsaved|changed) == 0 {
			continue
		}
		if restored := e.restored[b.hour]; state&written == 0 {
			all[b.hour] = unsavedTotals{restored.plus(own), restored.isSum}
		} else {
			all[b.hour] = unsavedTotals{own.plus(e.base[b.hour]), true}
		}
	}
	return all
}

// unsavedHours returns the totals that the TenantUsages lack.
func (w *Writer) unsavedHours() []unsavedHour {
	w.mu.Lock()
	all := w.restored // the tenants of these totals do not exist in the cache yet
	w.mu.Unlock()
	for _, e := range w.Recorder.existing() {
		for hour, totals := range e.unsavedOf() {
			all = append(all, unsavedHour{totals.isSum, Record{
				Server:  w.Server,
				Started: w.Recorder.started,
				UID:     e.uid,
				Tenant:  e.name,
				Hour:    timeOf(hour),
				Totals:  totals.Totals,
			}})
		}
	}
	return all
}

// saveUnsaved writes the totals that the TenantUsages lack to a file for the next process.
func (s *Records) saveUnsaved(ctx context.Context, w *Writer) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	all := w.unsavedHours()
	if len(all) == 0 {
		return
	}
	var err error
	for i := range all {
		err = errors.Join(err, encoder.Encode(&all[i]))
	}
	if err == nil {
		err = s.spool.writeFile(unsavedName, out.Bytes())
	}
	if err != nil {
		s.Metrics.errors.WithLabelValues(operationSpool).Inc()
		klog.FromContext(ctx).Error(err, "Failed to write the totals that TenantUsages lack to usage.directory",
			"directory", s.Directory)
	}
}

// loadUnsaved reads the totals that the last process could not write to TenantUsages. It removes
// the file, so that no total is added twice. If this process then ends without [Running.Stop],
// these totals are lost.
func (s *Records) loadUnsaved(ctx context.Context, w *Writer) {
	if err := s.spool.open(); err != nil {
		return // the spool reports the error
	}
	name := filepath.Join(s.Directory, unsavedName)
	data, err := readBounded(name, maxSpoolFile)
	if err == nil {
		err = os.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = syncDirectory(s.Directory)
	}
	var hours []unsavedHour
	decoder := json.NewDecoder(bytes.NewReader(data))
	for err == nil {
		var hour unsavedHour
		if err = decoder.Decode(&hour); err == nil && hour.Record.Server == w.Server {
			hours = append(hours, hour)
		}
	}
	if !errors.Is(err, io.EOF) {
		klog.FromContext(ctx).Error(err, "Failed to read the totals that TenantUsages lack from usage.directory",
			"file", name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = hours
}

// restore adds the unsaved totals of an earlier process to the entries of existing tenants. It
// omits totals that are too old.
func (w *Writer) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := hourOf(w.Recorder.now()) - MaxHours
	var unknown []unsavedHour
	for i := range w.restored {
		h := &w.restored[i]
		if hourOf(h.Record.Hour) > oldest && !w.Recorder.restore(h) {
			unknown = append(unknown, *h)
		}
	}
	w.restored = unknown
}

// restore adds totals to the entry of their tenant. It returns false if the tenant does not exist
// in the cache, or has another UID.
func (r *Recorder) restore(h *unsavedHour) bool {
	id, err := tenant.Parse(h.Record.Tenant)
	if err != nil {
		return true
	}
	e := r.entry(id)
	if e == r.otherTenants || e.uid != h.Record.UID {
		return false
	}
	e.restore(hourOf(h.Record.Hour), unsavedTotals{h.Record.Totals, h.IsSum})
	return true
}

func (e *entry) restore(hour int32, totals unsavedTotals) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, _ := e.insert(hour, 0)
	if b.hour != hour || b.state.Load()&written != 0 {
		return
	}
	if e.restored == nil {
		e.restored = map[int32]unsavedTotals{}
	}
	e.restored[hour] = totals
	b.state.Or(unsaved)
}
