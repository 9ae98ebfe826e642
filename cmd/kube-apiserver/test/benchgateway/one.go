// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oneCaller measures a caller that sends one request after the other. It prints the median time and
// the CPU of the process for each target.
func (b *bench) oneCaller(ctx context.Context, processes targets) error {
	all := []*target{processes.plain, processes.twin, processes.gateway}
	took, cpu := make([][]time.Duration, len(all)), make([][]time.Duration, len(all))
	for round := range rounds {
		for _, i := range orders[round%len(orders)] {
			p50, each, err := b.sequence(ctx, all[i])
			if err != nil {
				return fmt.Errorf("one caller through %s: %w", all[i].name, err)
			}
			took[i], cpu[i] = append(took[i], p50), append(cpu[i], each)
		}
	}
	fmt.Println("  one caller, one request after the other:")
	for i, name := range []string{"plain", "second plain", "gateway"} {
		fmt.Printf("    %-12s p50 %s ms, CPU of the process a request %v\n",
			name, ms(median(took[i])), median(cpu[i]).Round(time.Microsecond))
	}
	return nil
}

// sequence sends requests one after the other. It returns their median duration, and the processor
// time that the target used for each.
func (b *bench) sequence(ctx context.Context, t *target) (p50, cpu time.Duration, err error) {
	c := b.client()
	defer c.CloseIdleConnections()
	if err := get(ctx, c, t.base+small); err != nil {
		return 0, 0, err
	}
	before, err := cpuOf(t)
	if err != nil {
		return 0, 0, err
	}
	var took []time.Duration
	for end := time.Now().Add(duration); time.Now().Before(end); {
		began := time.Now()
		if err := get(ctx, c, t.base+small); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(began))
	}
	after, err := cpuOf(t)
	slices.Sort(took)
	return quantile(took, 0.5), (after - before) / time.Duration(len(took)), err
}
