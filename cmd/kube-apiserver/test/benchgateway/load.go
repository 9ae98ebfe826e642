// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rounds is the number of rounds. Each round loads every target, one after the other. The
	// medians of the rounds are printed.
	rounds = 9
	// duration is the length of a run at saturation. fixedRateDuration is the length of a run
	// at a fixed rate. At a quarter of the rate that saturates the gateway in front of
	// kube-apiserver, 12 to 18 requests of a run are slower than p99.
	duration          = 3 * time.Second
	fixedRateDuration = 5 * time.Second
	// callers is the number of concurrent callers that saturate a target.
	callers = 32
	// handshakeRequests is the number of requests that handshakes sends.
	handshakeRequests = 10_000
)

// client returns a client that verifies the server. It opens only as many HTTP/2 connections as
// its concurrent requests need.
func (b *bench) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: callers,
		TLSClientConfig:     &tls.Config{RootCAs: b.authorities, MinVersion: tls.VersionTLS12},
	}}
}

// send sends a GET request with the caller's token, except to /version. Any status except 200
// is an error.
func send(ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(url, "/version") { // the client of this path has its own credentials
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, err
}

// get sends a GET request and discards the body of the response.
func get(ctx context.Context, c *http.Client, url string) error {
	resp, err := send(ctx, c, url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// saturate returns the number of requests that a target answers per second. Each caller sends
// its next request as soon as the previous one is answered.
func (b *bench) saturate(ctx context.Context, t *target) (float64, error) {
	c := b.client()
	defer c.CloseIdleConnections()
	var answered atomic.Int64
	var failed atomic.Pointer[error]
	end := time.Now().Add(duration)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := get(ctx, c, t.base+small); err != nil {
					failed.Store(&err)
					return
				}
				answered.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(answered.Load()) / duration.Seconds(), nil
}

// sample is the result of one round.
type sample struct {
	cpu         time.Duration   // processor time of the target for each request
	all         []time.Duration // durations of the requests, in ascending order
	undisturbed []time.Duration // durations of the requests that no steal time disturbed, in ascending order
	stolen      float64         // share of steal time
	unused      float64         // idle share
}

// quantile returns the duration that the given share of the sorted durations does not exceed. The
// slice must not be empty.
func quantile(sorted []time.Duration, share float64) time.Duration {
	return sorted[int(float64(len(sorted)-1)*share)]
}

// load sends requests at a fixed rate, whether or not responses arrive. It measures each request
// from the time at which it was due.
func (b *bench) load(ctx context.Context, t *target, rate float64) (sample, error) {
	c := b.client()
	defer c.CloseIdleConnections()
	if err := get(ctx, c, t.base+small); err != nil {
		return sample{}, err
	}
	n := int(rate * fixedRateDuration.Seconds())
	took := make([]time.Duration, n)
	var failed atomic.Pointer[error]
	before, err := cpuOf(t)
	if err != nil {
		return sample{}, err
	}
	host, err := watchHost()
	if err != nil {
		return sample{}, err
	}
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		all.Go(func() {
			if err := get(ctx, c, t.base+small); err != nil {
				failed.Store(&err)
			}
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	after, err := cpuOf(t)
	if err != nil {
		return sample{}, err
	}
	if err := failed.Load(); err != nil {
		return sample{}, *err
	}
	stolen, unused, disturbed, err := host.stop()
	if err != nil {
		return sample{}, err
	}
	s := sample{cpu: (after - before) / time.Duration(n), stolen: stolen, unused: unused}
	for i, d := range took {
		if !disturbed(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))) {
			s.undisturbed = append(s.undisturbed, d)
		}
	}
	slices.Sort(took)
	slices.Sort(s.undisturbed)
	s.all = took
	return s, nil
}

// tick is the unit of a process's times in /proc (proc(5), sysconf(_SC_CLK_TCK)).
const tick = 10 * time.Millisecond

// cpuOf returns the processor time that a target has used so far.
func cpuOf(t *target) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(t.process.Process.Pid) + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}

// memoryOf returns the resident memory of a target in bytes.
func memoryOf(t *target) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(t.process.Process.Pid) + "/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

func median[T int64 | float64 | time.Duration](all []T) T {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// targetResults contains the results of a target in all rounds.
type targetResults struct {
	name   string
	rounds []sample
}

// summary contains the medians of the rounds, and the means of the idle and stolen shares.
type summary struct {
	cpu, p50, p99  time.Duration
	unused, stolen float64
}

func (m targetResults) summarize() (s summary) {
	var cpu, p50, p99 []time.Duration
	for _, r := range m.rounds {
		cpu, p50, p99 = append(cpu, r.cpu), append(p50, quantile(r.all, 0.5)), append(p99, quantile(r.all, 0.99))
		s.unused += r.unused / float64(len(m.rounds))
		s.stolen += r.stolen / float64(len(m.rounds))
	}
	s.cpu, s.p50, s.p99 = median(cpu), median(p50), median(p99)
	return s
}

// printResults prints the results of each target, and their differences from the results of the
// first target. The second target is the same program as the first, so the difference between these
// two is noise.
func printResults(all []targetResults) {
	plain := all[0].summarize()
	baseline, _ := undisturbed(all[0].rounds)
	for i, m := range all {
		s := m.summarize()
		times, share := undisturbed(m.rounds)
		fmt.Printf("    %-12s CPU of the process a request %v, p50 %s, p99 %s ms; idle %.0f %%, stolen %.1f %%; "+
			"undisturbed %.0f %%",
			m.name, s.cpu.Round(time.Microsecond), ms(s.p50), ms(s.p99), 100*s.unused, 100*s.stolen, 100*share)
		if len(times) > 0 {
			fmt.Printf(": p99 %s ms", ms(quantile(times, 0.99)))
		}
		fmt.Println()
		if i == 0 {
			continue
		}
		fmt.Printf("    %12s CPU %.2f, p99 %s ms later, of single rounds %s",
			"", float64(s.cpu)/float64(plain.cpu), ms(s.p99-plain.p99), delays(all[0].rounds, m.rounds))
		if len(times) > 0 && len(baseline) > 0 {
			fmt.Printf("; undisturbed %s", ms(quantile(times, 0.99)-quantile(baseline, 0.99)))
		}
		fmt.Println()
	}
}

// delays returns the difference between p99 of each round and p99 of the same round of the
// baseline, in ms and in ascending order.
func delays(baseline, rounds []sample) string {
	all := make([]time.Duration, len(rounds))
	for i := range rounds {
		all[i] = quantile(rounds[i].all, 0.99) - quantile(baseline[i].all, 0.99)
	}
	slices.Sort(all)
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = ms(d)
	}
	return strings.Join(texts, " ")
}

func ms(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1e3, 'f', 2, 64) }

// undisturbed returns the durations, in ascending order, of the requests of all rounds that no
// steal time disturbed. It also returns the share of these requests among all requests.
func undisturbed(rounds []sample) (times []time.Duration, share float64) {
	n := 0
	for _, s := range rounds {
		times = append(times, s.undisturbed...)
		n += len(s.all)
	}
	slices.Sort(times)
	return times, float64(len(times)) / float64(n)
}

// shares are the rates of the comparison, as shares of the rate that saturates the gateway.
var shares = []float64{0.5, 0.25}

// orders contains all orders of three targets. The rounds use them in turn.
var orders = [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}}

// compare measures the rate that saturates each target. It then loads the targets one after the
// other at shares of the gateway's rate, and prints the results.
func (b *bench) compare(ctx context.Context, title string, processes targets) error {
	all := []*target{processes.plain, processes.twin, processes.gateway}
	maxRates := make([]float64, len(all))
	for i, t := range all {
		var err error
		if maxRates[i], err = b.saturate(ctx, t); err != nil {
			return err
		}
	}
	fmt.Printf(
		"  %s: saturated at %.0f requests/s (plain %.0f, second plain %.0f)\n",
		title,
		maxRates[2],
		maxRates[0],
		maxRates[1],
	)
	for _, share := range shares {
		rate := share * maxRates[2]
		results := []targetResults{{name: "plain"}, {name: "second plain"}, {name: "gateway"}}
		for round := range rounds {
			for _, i := range orders[round%len(orders)] {
				s, err := b.load(ctx, all[i], rate)
				if err != nil {
					return err
				}
				results[i].rounds = append(results[i].rounds, s)
			}
		}
		fmt.Printf("   at %.0f/s, %v of what saturates the gateway:\n", rate, share)
		printResults(results)
	}
	runtime.GC()
	return nil
}
