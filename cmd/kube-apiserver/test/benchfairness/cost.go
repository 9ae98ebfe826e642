// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	// rounds is the number of runs of each server, in turn.
	rounds = 9
	// parts is the number of parts of a run, and part the number of requests of each. The servers take
	// turns with each part, so that other programs affect them equally.
	parts, part = 50, 2_000
)

// cost prints the processor time that the wrapper adds to a request. It also compares upstream with
// itself, because a smaller difference than that is noise.
func cost(ctx context.Context, upstream, compiledIn mode) error {
	var servers [3]*server // upstream, upstream again, and with the wrapper
	for i, m := range []mode{upstream, upstream, compiledIn} {
		var err error
		if servers[i], err = newServer(ctx, seats, m, http.HandlerFunc(noop)); err != nil {
			return err
		}
	}
	var took [len(servers)][]time.Duration
	for round := range rounds + 1 {
		var all [len(servers)]time.Duration
		for n := range parts * len(servers) {
			i := (n + n/len(servers)) % len(servers) // each server follows each other one
			each, err := servers[i].loop(ctx)
			if err != nil {
				return err
			}
			all[i] += each
		}
		for i := range servers {
			if round > 0 { // the first round warms up
				took[i] = append(took[i], all[i]/(parts*part))
			}
		}
	}
	itself, added := differences(took[1], took[0]), differences(took[2], took[0])
	fmt.Printf("\nprocessor time of a request, medians of %d runs of %d requests: upstream %v, compiled in %v\n",
		rounds, parts*part, median(took[0]), median(took[2]))
	fmt.Printf("the wrapper adds %v (from %v to %v); upstream minus upstream: %v (from %v to %v)\n",
		median(added), added[0], added[rounds-1], median(itself), itself[0], itself[rounds-1])
	fmt.Printf("aim: the wrapper adds at most 1us: %s\n", verdict(median(added) <= time.Microsecond))
	return nil
}

func noop(http.ResponseWriter, *http.Request) {}

// loop sends one request after the other, and returns their processor time.
func (s *server) loop(ctx context.Context) (time.Duration, error) {
	r := get(ctx, quietTenant, "robot")
	began := processorTime()
	for range part {
		if status := s.send(r); status != http.StatusOK {
			return 0, fmt.Errorf("status %d of a request that nothing delays", status)
		}
	}
	return processorTime() - began, ctx.Err()
}

// differences returns a minus b of each round, in ascending order.
func differences(a, b []time.Duration) []time.Duration {
	d := make([]time.Duration, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	slices.Sort(d)
	return d
}

func median(durations []time.Duration) time.Duration {
	durations = slices.Clone(durations)
	slices.Sort(durations)
	return durations[len(durations)/2]
}
