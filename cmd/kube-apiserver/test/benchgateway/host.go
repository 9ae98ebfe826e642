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

// sampleInterval is the interval at which the host's steal time is read.
const sampleInterval = 100 * time.Millisecond

// host measures the steal time of this machine. Steal time is the processor time that the
// hypervisor uses for other virtual machines.
type host struct {
	began, ended  machine
	from          time.Time
	stolen        []bool // for each interval, whether it had steal time
	err           error
	done, stopped chan struct{}
}

// watchHost starts a measurement that ends when stop is called.
func watchHost() (*host, error) {
	h := &host{from: time.Now(), done: make(chan struct{}), stopped: make(chan struct{})}
	if h.began, h.err = readMachine(); h.err != nil {
		return nil, h.err
	}
	h.ended = h.began
	go func() {
		defer close(h.stopped)
		for h.err == nil {
			select {
			case <-h.done:
				h.sample()
				return
			case <-time.After(time.Until(h.from.Add(time.Duration(len(h.stolen)+1) * sampleInterval))):
				h.sample()
			}
		}
	}()
	return h, nil
}

// sample records the intervals that have ended.
func (h *host) sample() {
	previous := h.ended
	if h.ended, h.err = readMachine(); h.err != nil {
		return
	}
	for until := max(int(time.Since(h.from)/sampleInterval), len(h.stolen)+1); len(h.stolen) < until; {
		h.stolen = append(h.stolen, h.ended.stolen > previous.stolen)
	}
}

// stop ends the measurement. It returns the share of steal time, the idle share, and the function
// disturbed. The function reports whether steal time could have affected a request that was due at
// the given time. It checks the interval of that time and the intervals before and after it,
// regardless of how long the request took. Requests of the interval before may still be queued.
func (h *host) stop() (stolen, unused float64, disturbed func(at time.Time) bool, err error) {
	close(h.done)
	<-h.stopped
	if h.err != nil {
		return 0, 0, nil, h.err
	}
	all := h.ended.all - h.began.all
	return (h.ended.stolen - h.began.stolen) / all, (h.ended.unused - h.began.unused) / all, func(at time.Time) bool {
		i := int(at.Sub(h.from) / sampleInterval)
		return slices.Contains(h.stolen[min(max(i-1, 0), len(h.stolen)):min(i+2, len(h.stolen))], true)
	}, nil
}

// machine contains the times of all processors since boot, in ticks (proc(5), /proc/stat).
type machine struct{ all, unused, stolen float64 }

func readMachine() (m machine, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(first)[1:9] { // the user time already includes the guest time
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
