// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// spoolInterval is the interval at which changed totals are written to the spool. After a
	// crash, the usage since the last write is lost.
	spoolInterval = 10 * time.Second
	// currentInterval is the interval at which the records of the current hour are sent.
	currentInterval = 10 * time.Minute
	// recordRetention is how long records are retained if the target does not acknowledge them.
	recordRetention = 7 * 24 * time.Hour
	// maxSpool is the maximum size of the spool, in bytes.
	maxSpool = 1 << 30
	// maxBatch is the maximum size of one delivery, in bytes. A longer line is delivered alone.
	maxBatch = 512 << 10
	// minRetryDelay and maxRetryDelay are the bounds of the delay after a failed delivery, before
	// the delay is randomized.
	minRetryDelay = time.Second
	maxRetryDelay = 5 * time.Minute
	// finalDeliveryTimeout is the maximum duration of the last delivery when the process ends.
	finalDeliveryTimeout = 5 * time.Second
)

// RecordsOptions configure [NewRecords]. Target, Directory, Server and Component are required.
type RecordsOptions struct {
	Recorder *Recorder
	Target   Target
	// Directory is the path of the directory for records that are not acknowledged. No other
	// process may use it.
	Directory string
	// Cluster, Server and Component are part of each record.
	Cluster, Server string
	Component       Component
	Metrics         *Metrics
}

// Records writes the totals of a [Recorder] to a spool, and sends them to a [Target] until the
// target acknowledges them.
type Records struct {
	RecordsOptions
	spool      *spool
	max        int64 // maximum size of the spool in bytes
	wake       chan struct{}
	hasPending chan struct{}

	mu sync.Mutex
	// pending contains the hours that must be written to the spool. The value of an hour is the
	// value of lastNote when the hour was last added.
	pending  map[int32]uint64
	lastNote uint64

	// isFaulty specifies whether the last write to the spool failed. Only the first failure is
	// logged. Only the goroutine that writes the spool uses isFaulty.
	isFaulty bool

	// Only the goroutine that delivers uses the following fields.
	current     time.Time              // when the current hour was last sent
	sent        map[string]uint64      // the version of each file that was sent
	failed      map[string]bool        // files that the target did not acknowledge
	sentBatches map[string]sentBatches // the delivered batches of files that the target has partly acknowledged
}

// sentBatches is the number of batches of one version of a file that the target has acknowledged.
type sentBatches struct {
	version uint64
	batches int
}

// NewRecords returns a Records. It is inactive before [Start].
func NewRecords(o RecordsOptions) *Records {
	return &Records{
		RecordsOptions: o,
		spool:          newSpool(o.Directory),
		max:            maxSpool,
		wake:           make(chan struct{}, 1),
		hasPending:     make(chan struct{}, 1),
		pending:        map[int32]uint64{},
		sent:           map[string]uint64{},
		failed:         map[string]bool{},
		sentBatches:    map[string]sentBatches{},
		current:        o.Recorder.started,
	}
}

// addPending adds hours whose totals have changed. It returns all hours that are not written to the
// spool yet.
func (s *Records) addPending(hours []time.Time) (missing []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastNote++
	for _, hour := range hours {
		s.pending[hourOf(hour)] = s.lastNote
	}
	for hour := range s.pending {
		missing = append(missing, timeOf(hour))
	}
	signal(s.hasPending)
	return missing
}

// unwritten returns the hours that must be written to the spool.
func (s *Records) unwritten() map[int32]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pending)
}

// confirm removes an hour that has been written to the spool, unless the hour was added again.
func (s *Records) confirm(hour int32, note uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[hour] == note {
		delete(s.pending, hour)
	}
}

// drop counts records that the recorder removed before they were written to the spool.
func (s *Records) drop(lost int) {
	s.Metrics.records.WithLabelValues(resultDropped).Add(float64(lost))
}

// writeSpool writes changed hours to the spool until ctx ends. It then writes the last changed
// hours.
func (s *Records) writeSpool(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.hasPending:
			s.flush(ctx)
		}
	}
	s.flush(ctx)
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// flush writes the changed hours to the spool. If it fails, the next call writes the remaining
// hours.
func (s *Records) flush(ctx context.Context) {
	for hour, note := range s.unwritten() {
		if err := s.writeHour(hour); err != nil {
			s.Metrics.errors.WithLabelValues(operationSpool).Inc()
			if !s.isFaulty {
				klog.FromContext(ctx).Error(err, "Failed to write usage records to usage.directory, will retry. Requests are "+
					"not affected", "directory", s.Directory)
			}
			s.isFaulty = true
			return
		}
		s.confirm(hour, note)
	}
	s.isFaulty = false
	signal(s.wake)
}

// writeHour writes the records of an hour to the spool.
func (s *Records) writeHour(hour int32) error {
	records := s.Recorder.RecordsOf(timeOf(hour))
	if len(records) == 0 { // the recorder removed them, because the disk was full for too long
		return nil
	}
	for i := range records {
		records[i].Cluster, records[i].Server, records[i].Component = s.Cluster, s.Server, s.Component
	}
	lines, err := Lines(records)
	if err != nil {
		return err
	}
	return s.spool.write(s.Recorder.startedOf(hour), hour, lines)
}

// deliver sends records until ctx ends. It then sends the last records.
func (s *Records) deliver(ctx context.Context) {
	defer s.spool.close()
	var delay time.Duration
	reported := false
	for {
		err := s.deliverOnce(ctx, s.due)
		switch {
		case ctx.Err() != nil:
			// The next process may have another directory, so send the remaining records now.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalDeliveryTimeout)
			defer cancel()
			_ = s.deliverOnce(last, func(f *spoolEntry) bool { return !s.isSent(f) })
			return
		case err == nil:
			delay = 0
			reported = false
		default:
			delay = min(max(2*delay, minRetryDelay), maxRetryDelay)
			if !reported {
				klog.FromContext(ctx).Error(err, "Failed to send usage records, will retry. They remain in usage.directory",
					"directory", s.Directory)
			}
			reported = true
		}
		if delay > 0 {
			sleep(ctx, delay/2+rand.N(delay)) // #nosec G404 -- spreads retries
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// isComplete reports whether the content of a file is final.
func (s *Records) isComplete(f *spoolEntry) bool {
	return f.started != s.Recorder.startedOf(f.hour).UnixNano() || f.hour != hourOf(s.Recorder.now())
}

func (s *Records) isSent(f *spoolEntry) bool {
	version, sent := s.sent[f.name]
	return sent && version == f.version
}

// due reports whether a file must be sent now.
func (s *Records) due(f *spoolEntry) bool {
	if s.isComplete(f) {
		return true
	}
	since := s.Recorder.now().Sub(s.current)
	return !s.isSent(f) && (since >= currentInterval || since < 0)
}

// deliverOnce sends the files of the spool that are due. It stops at the first failure, unless the
// target rejected only the records of one file. It then removes files that are too old and files
// above the size limit.
func (s *Records) deliverOnce(ctx context.Context, due func(*spoolEntry) bool) error {
	files, err := s.spool.files()
	if err != nil {
		s.Metrics.errors.WithLabelValues(operationSpool).Inc()
		return err
	}
	for i := range files {
		f := &files[i]
		if err != nil && !errors.Is(err, ErrRejected) {
			break
		}
		if !due(f) {
			continue
		}
		if !s.isSent(f) {
			if failed := s.sendFile(ctx, f); failed != nil {
				s.failed[f.name] = true
				err = failed
				continue
			}
		}
		delete(s.failed, f.name)
		delete(s.sentBatches, f.name)
		s.sent[f.name] = f.version
		if !s.isComplete(f) {
			s.current = s.Recorder.now()
			continue
		}
		if err := s.spool.remove(f); err != nil {
			return err
		}
		delete(s.sent, f.name)
	}
	return errors.Join(err, s.enforceLimits(ctx))
}

// sendFile sends the records of a file. It drops lines that are not records, and the content of a
// file that is too large.
func (s *Records) sendFile(ctx context.Context, f *spoolEntry) error {
	lines, err := s.spool.read(f)
	if err != nil {
		return err
	}
	records, invalid := Parse(lines)
	if invalid > 0 || f.size > maxSpoolFile {
		s.Metrics.records.WithLabelValues(resultDropped).Add(float64(max(invalid, 1)))
		klog.FromContext(ctx).Info("Skipped lines of usage.directory that are not usage records", "file", f.name,
			"lines", invalid)
		if lines, err = Lines(records); err != nil {
			return err
		}
	}
	for i, batch := range batches(lines, maxBatch) {
		if done := s.sentBatches[f.name]; done.version == f.version && i < done.batches {
			continue
		}
		number := float64(bytes.Count(batch, []byte{'\n'}))
		if err := s.Target.Send(ctx, batch); err != nil {
			s.Metrics.records.WithLabelValues(resultFailed).Add(number)
			return err
		}
		s.Metrics.records.WithLabelValues(resultSent).Add(number)
		s.sentBatches[f.name] = sentBatches{f.version, i + 1}
	}
	return nil
}

// enforceLimits removes the oldest complete files if the spool is too large. It also removes a
// file that is too old if the target did not acknowledge it. A clock that is set forward does not
// remove a file before a delivery of the file has failed.
func (s *Records) enforceLimits(ctx context.Context) error {
	files, err := s.spool.files()
	if err != nil {
		return err
	}
	var total int64
	for i := range files {
		total += files[i].size
	}
	oldest := hourOf(s.Recorder.now().Add(-recordRetention))
	for i := range files {
		f := &files[i]
		isOld := f.hour < oldest && s.failed[f.name]
		if !isOld && (total <= s.max || !s.isComplete(f)) {
			continue
		}
		lines, err := s.spool.read(f)
		if err != nil {
			return err
		}
		if err := s.spool.remove(f); err != nil {
			return err
		}
		total -= f.size
		delete(s.failed, f.name)
		delete(s.sent, f.name)
		delete(s.sentBatches, f.name)
		number := max(bytes.Count(lines, []byte{'\n'}), 1)
		s.Metrics.records.WithLabelValues(resultDropped).Add(float64(number))
		klog.FromContext(ctx).Info("Dropped usage records that were not acknowledged", "hour", timeOf(f.hour),
			"records", number)
	}
	return nil
}
