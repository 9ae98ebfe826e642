// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// Collect writes changed totals to the spool and removes old totals, as [Start] does.
func (s *Records) Collect(ctx context.Context) {
	s.addPending(s.Recorder.Changed())
	s.flush(ctx)
	collect(s.Recorder, s)
}

// BlockSpool blocks the spool before it creates a file, until the channel release closes.
func (s *Records) BlockSpool(release chan struct{}) {
	create := s.spool.create
	s.spool.create = func(name string) (spoolFile, error) {
		<-release
		return create(name)
	}
}

// DeliverOnce sends the files that are due.
func (s *Records) DeliverOnce(ctx context.Context) error { return s.deliverOnce(ctx, s.due) }

// Deliver sends records until ctx ends.
func (s *Records) Deliver(ctx context.Context) { s.deliver(ctx) }

// Close unlocks the spool.
func (s *Records) Close() { s.spool.close() }

// SetMax sets the maximum size of the spool.
func (s *Records) SetMax(bytes int64) { s.max = bytes }

// WriteTo makes the spool write to the file at path, such as /dev/full, or to its own files if path
// is empty.
func (s *Records) WriteTo(path string) {
	s.spool.create = newSpool(s.Directory).create
	if path != "" {
		s.spool.create = func(string) (spoolFile, error) { return os.OpenFile(path, os.O_WRONLY, 0) }
	}
}

// SetElapsed sets the function that returns the time since the start, which changes to the clock do
// not affect.
func (r *Recorder) SetElapsed(elapsed func() time.Duration) { r.elapsed = elapsed }

// Pass writes TenantUsages.
func (w *Writer) Pass(ctx context.Context) {
	w.pass(ctx, flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond))
}

// Collect determines the changed totals and removes old totals, as [Start] does.
func (w *Writer) Collect() {
	collect(w.Recorder, nil)
}

// ParseSpoolName returns the hour in the name of a spool file.
func ParseSpoolName(name string) (hour int32, ok bool) {
	_, hour, ok = parseSpoolName(name)
	return hour, ok
}
