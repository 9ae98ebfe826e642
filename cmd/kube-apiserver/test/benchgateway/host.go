// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// moment is how finely it is known when the host gave processors to others.
const moment = 100 * time.Millisecond

// host tells how much of the machine its host gives to others, and when.
type host struct {
	began, ended machine
	from         time.Time
	stolen       []bool // in each moment
	err          error
	done, ceased chan struct{}
}

// watchHost watches until it is stopped.
func watchHost() (*host, error) {
	h := &host{from: time.Now(), done: make(chan struct{}), ceased: make(chan struct{})}
	if h.began, h.err = readMachine(); h.err != nil {
		return nil, h.err
	}
	h.ended = h.began
	go func() {
		defer close(h.ceased)
		for h.err == nil {
			select {
			case <-h.done:
				h.look()
				return
			case <-time.After(time.Until(h.from.Add(time.Duration(len(h.stolen)+1) * moment))):
				h.look()
			}
		}
	}()
	return h, nil
}

// look notes the moments that ended.
func (h *host) look() {
	was := h.ended
	if h.ended, h.err = readMachine(); h.err != nil {
		return
	}
	for until := max(int(time.Since(h.from)/moment), len(h.stolen)+1); len(h.stolen) < until; {
		h.stolen = append(h.stolen, h.ended.stolen > was.stolen)
	}
}

// stop returns which share of the machine others had and which nobody had, and a function: whether
// others had any of it in the moment of a time, in the one before, whose queues last on, or in the
// one after, however long what began then took.
func (h *host) stop() (stolen, unused float64, disturbed func(at time.Time) bool, err error) {
	close(h.done)
	<-h.ceased
	if h.err != nil {
		return 0, 0, nil, h.err
	}
	all := h.ended.all - h.began.all
	return (h.ended.stolen - h.began.stolen) / all, (h.ended.unused - h.began.unused) / all, func(at time.Time) bool {
		i := int(at.Sub(h.from) / moment)
		return slices.Contains(h.stolen[min(max(i-1, 0), len(h.stolen)):min(i+2, len(h.stolen))], true)
	}, nil
}

// machine is the time of all processors so far, in ticks (proc(5), /proc/stat).
type machine struct{ all, unused, stolen float64 }

func readMachine() (m machine, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(first)[1:9] { // what guests take is user's, too
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return m, err
		}
		m.all += ticks
		switch i {
		case 3, 4: // idle, and waiting for a disk
			m.unused += ticks
		case 7:
			m.stolen = ticks
		}
	}
	return m, nil
}
