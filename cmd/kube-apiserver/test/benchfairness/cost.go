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
	// rounds is the number of measured runs of each server.
	rounds = 9
	// parts is the number of parts of a run, and part is the number of requests in each part. The
	// servers take turns after each part, so that other programs affect all servers equally.
	parts, part = 50, 2_000
)

// cost prints the processor time that the wrapper of the compiled-in server
// (apiserver.FlowByTenant) adds to a request. It also prints the difference between two
// servers without the wrapper. Smaller differences are noise.
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
			i := (n + n/len(servers)) % len(servers) // a different order in each turn
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

// loop sends one part of the requests, one after the other. It returns the processor time that this
// process used.
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

// differences returns a minus b for each round, in ascending order.
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
