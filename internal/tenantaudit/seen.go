// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

const (
	// rememberFor is the minimum time for which an event is remembered, unless there are more than
	// maxSeen new events.
	rememberFor = 10 * time.Minute
	// maxSeen is half of the maximum number of remembered events. An event uses about 40 bytes.
	maxSeen = 1 << 17
)

// Seen remembers the stored events, because kube-apiserver sends a batch again if it gets no
// response. Safe for concurrent use.
//
// A client can choose the audit ID of its request. If the ID and the stage alone identified an
// event, a caller could hide a request behind another request with the same ID. Two events are
// therefore equal only if their times, user names, verbs, URIs, object names and status codes are
// equal too.
type Seen struct {
	now  func() time.Time
	seed [2]maphash.Seed // random, so that no caller can choose a collision

	mu          sync.Mutex
	recent, old map[event]struct{}
	began       time.Time // the time at which recent was created
	maxEvents   int
}

type event [2]uint64

// NewSeen returns a Seen without events. now defaults to [time.Now].
func NewSeen(now func() time.Time) *Seen {
	if now == nil {
		now = time.Now
	}
	return &Seen{
		now:       now,
		seed:      [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		recent:    map[event]struct{}{},
		began:     now(),
		maxEvents: maxSeen,
	}
}

// New returns the events that are not remembered. If an event occurs twice, it is returned once.
func (s *Seen) New(all []*auditinternal.Event) []*auditinternal.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age()
	out, batch := make([]*auditinternal.Event, 0, len(all)), make(map[event]struct{}, len(all))
	for _, e := range all {
		key := s.keyOf(e)
		_, isRecent := s.recent[key]
		_, isOld := s.old[key]
		_, twice := batch[key]
		if isRecent || isOld || twice {
			continue
		}
		batch[key] = struct{}{}
		out = append(out, e)
	}
	return out
}

// Add remembers the given events.
func (s *Seen) Add(all []*auditinternal.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		s.age()
		s.recent[s.keyOf(e)] = struct{}{}
	}
}

// age forgets the oldest events if rememberFor has passed or if there are too many new events.
// The caller must hold s.mu.
func (s *Seen) age() {
	now := s.now()
	passed := now.Sub(s.began)
	if passed < 0 { // the clock was set back
		s.began = now
	}
	if passed < rememberFor && len(s.recent) < s.maxEvents {
		return
	}
	s.recent, s.old, s.began = map[event]struct{}{}, s.recent, now
	if passed >= 2*rememberFor {
		s.old = nil
	}
}

func (s *Seen) keyOf(e *auditinternal.Event) (key event) {
	for i := range key {
		var h maphash.Hash
		h.SetSeed(s.seed[i])
		text := func(t string) {
			_, _ = h.WriteString(strconv.Itoa(len(t)))
			_ = h.WriteByte(' ')
			_, _ = h.WriteString(t)
		}
		text(string(e.AuditID))
		text(string(e.Stage))
		text(e.Verb)
		text(e.RequestURI)
		text(e.User.Username)
		text(strconv.FormatBool(e.ImpersonatedUser != nil))
		if e.ImpersonatedUser != nil {
			text(e.ImpersonatedUser.Username)
		}
		text(strconv.FormatBool(e.ObjectRef != nil))
		if e.ObjectRef != nil {
			text(e.ObjectRef.Name)
		}
		text(strconv.FormatBool(e.ResponseStatus != nil))
		if e.ResponseStatus != nil {
			text(strconv.Itoa(int(e.ResponseStatus.Code)))
		}
		text(strconv.FormatInt(e.RequestReceivedTimestamp.UnixMicro(), 10))
		text(strconv.FormatInt(e.StageTimestamp.UnixMicro(), 10))
		key[i] = h.Sum64()
	}
	return key
}
