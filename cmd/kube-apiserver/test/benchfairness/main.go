// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command benchfairness measures how long a quiet tenant waits while a noisy tenant has many
// requests in flight. It compares upstream's API Priority and Fairness with and without the wrapper
// of the compiled-in server. The results are in docs/design/benchmarks.md.
//
// The requests call upstream's filter directly, without a network. HTTP would use more processor
// time than the filter, so the processors would limit the throughput instead of the seats.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	// asserted is the number of the noisy tenant's requests in flight for which the aims apply.
	// With reported requests in flight, the results are only printed.
	asserted, reported = 500, 3000
	// minRequests is the smallest number of requests from which p99 is calculated.
	minRequests = 1000
)

func main() {
	requests := flag.Int("requests", 1500, "number of requests of the quiet tenant in each measurement")
	flag.Parse()
	klog.LogToStderr(false) // only errors, which klog still writes to stderr
	klog.SetOutput(io.Discard)
	if *requests < minRequests {
		fmt.Fprintf(os.Stderr, "benchfairness: --requests must be at least %d\n", minRequests)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *requests)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfairness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, requests int) error {
	upstream, compiledIn, err := newModes(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d seats, requests of %v, %d requests of the quiet tenant, %d a second; the noisy tenant has %d "+
		"service accounts\n\n", seats, execution, requests, quietRate, accounts)
	fmt.Println("| | p50 | p99 | worst | 429s | noisy tenant | its 429s | seats in use | processors |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	results := map[string]*result{}
	for _, inFlight := range []int{0, asserted, reported} {
		for _, m := range []mode{upstream, compiledIn} {
			r, err := measure(ctx, m, requests, inFlight)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s, %d in flight", m.name, inFlight)
			results[name] = r
			fmt.Printf("| %s | %s | %s | %s | %d | %.0f/s | %.0f/s | %d | %.2f |\n", name, ms(r.quantile(0.5)),
				ms(r.quantile(0.99)), ms(r.quantile(1)), r.refused, r.noisy, r.noisyRefused, r.maxExecuting, r.cores)
		}
	}
	fmt.Println()
	alone, fair := results["compiled in, 0 in flight"], results[fmt.Sprintf("compiled in, %d in flight", asserted)]
	unfair := results[fmt.Sprintf("upstream, %d in flight", asserted)]
	limit := max(3*alone.quantile(0.99), alone.quantile(0.99)+50*time.Millisecond)
	fmt.Printf("aim: with %d in flight, compiled in has a p99 of at most %s: %s\n", asserted, ms(limit),
		verdict(fair.quantile(0.99) <= limit))
	fmt.Printf("aim: and no 429 of the quiet tenant: %s\n", verdict(fair.refused == 0))
	ratio := float64(unfair.quantile(0.99)) / float64(fair.quantile(0.99))
	fmt.Printf("aim: upstream's p99 is at least 3 times as long: %.1f times: %s\n", ratio, verdict(ratio >= 3))
	return cost(ctx, upstream, compiledIn)
}

func verdict(isMet bool) string { //nolint:revive // a result that is printed
	if isMet {
		return "met"
	}
	return "missed"
}

// ms formats a duration in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
