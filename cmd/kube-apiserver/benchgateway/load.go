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
	// rounds are run, one target after the other in each; the medians count.
	rounds = 9
	// duration is how long a target is loaded as far as it goes, and steadily how long at a rate: one in a hundred of that is what p99 is read from:
	// of 12 to 18 requests at a quarter of what saturates the gateway before kube-apiserver.
	duration = 3 * time.Second
	steadily = 5 * time.Second
	// callers load a target until it has no more to give.
	callers = 32
	// short requests are counted in handshakes.
	short = 10_000
)

// client returns a client that verifies servers, over at most so many connections of HTTP/2 as its streams need.
func (b *bench) client() *http.Client {
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: callers,
		TLSClientConfig: &tls.Config{RootCAs: b.authorities, MinVersion: tls.VersionTLS12}}}
}

// ask sends a request.
func ask(ctx context.Context, c *http.Client, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(url, "/version") { // which its client asks for as somebody else
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

// get reads an answer to its end.
func get(ctx context.Context, c *http.Client, url string) error {
	resp, err := ask(ctx, c, url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// saturate returns how many requests a second a target answers to callers that do nothing else.
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

// sample is what a round measured.
type sample struct {
	cpu         time.Duration   // of the target's process, for each request
	all         []time.Duration // how long requests took, in order
	undisturbed []time.Duration // those of moments in which the host gave nothing to others, in order
	stolen      float64         // share of the machine that its host gave to others
	unused      float64         // share that nobody had
}

// quantile returns what a share of sorted times, of which there is one at least, does not exceed.
func quantile(sorted []time.Duration, share float64) time.Duration {
	return sorted[int(float64(len(sorted)-1)*share)]
}

// load asks at a rate, whether or not answers come, and measures from when each request was due.
func (b *bench) load(ctx context.Context, t *target, path string, rate float64) (sample, error) {
	c := b.client()
	defer c.CloseIdleConnections()
	if err := get(ctx, c, t.base+path); err != nil {
		return sample{}, err
	}
	n := int(rate * steadily.Seconds())
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
			if err := get(ctx, c, t.base+path); err != nil {
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

// tick is what the kernel counts a process's time in (proc(5), sysconf(_SC_CLK_TCK)).
const tick = 10 * time.Millisecond

// cpuOf returns the processor time of a target so far.
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

// memoryOf returns the resident memory of a target.
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

// figures of a sample.
var (
	cpu    = func(s sample) time.Duration { return s.cpu }
	p50    = func(s sample) time.Duration { return quantile(s.all, 0.5) }
	p99    = func(s sample) time.Duration { return quantile(s.all, 0.99) }
	unused = func(s sample) float64 { return 100 * s.unused }
	stolen = func(s sample) float64 { return 100 * s.stolen }
)

// medianOf returns the median of a figure.
func medianOf(all []sample, f func(sample) time.Duration) time.Duration {
	values := make([]time.Duration, len(all))
	for i, s := range all {
		values[i] = f(s)
	}
	return median(values)
}

// mean returns that of a figure.
func mean(all []sample, f func(sample) float64) (sum float64) {
	for _, s := range all {
		sum += f(s)
	}
	return sum / float64(len(all))
}

// round is how finely times are told.
const round = 10 * time.Microsecond

// tell prints the medians of rounds, and how long the requests of all of them took that the host did not disturb; and what the same medians are of
// two proxies that do not differ: less than lies between them the rounds do not show.
func tell(plain, twin, gateway []sample) {
	fmt.Printf("    medians of %d rounds, while %.0f %% of the machine was idle with the plain proxy, %.0f with the gateway, and the host gave %.1f to others:\n", len(plain), mean(plain, unused), mean(gateway, unused), mean(slices.Concat(plain, gateway), stolen))
	fmt.Printf("      CPU of the proxy's process a request: plain %v, gateway %v: %.2f\n", medianOf(plain, cpu).Round(time.Microsecond), medianOf(gateway, cpu).Round(time.Microsecond), ratio(plain, gateway))
	tellTimes(medianOf(plain, p50), medianOf(gateway, p50), medianOf(plain, p99), medianOf(gateway, p99))
	ofPlain, share := undisturbed(plain)
	ofGateway, shareGateway := undisturbed(gateway)
	fmt.Printf("    %.0f and %.0f %% of the requests of all rounds together, while which it gave none:\n", 100*share, 100*shareGateway)
	if len(ofPlain) > 0 && len(ofGateway) > 0 {
		tellTimes(quantile(ofPlain, 0.5), quantile(ofGateway, 0.5), quantile(ofPlain, 0.99), quantile(ofGateway, 0.99))
	}
	fmt.Printf("    a second plain proxy in the same rounds: CPU %.2f of the first's, p99 %v: %v later\n", ratio(plain, twin), medianOf(twin, p99).Round(round), (medianOf(twin, p99) - medianOf(plain, p99)).Round(round))
	fmt.Print("    p99 of the rounds, plain, second plain and gateway:")
	for i := range plain {
		fmt.Printf(" %.1f-%.1f-%.1f", p99(plain[i]).Seconds()*1e3, p99(twin[i]).Seconds()*1e3, p99(gateway[i]).Seconds()*1e3)
	}
	fmt.Println(" ms")
}

// ratio returns how much processor time others take of the plain proxy's.
func ratio(plain, others []sample) float64 {
	return float64(medianOf(others, cpu)) / float64(medianOf(plain, cpu))
}

// tellTimes prints how long requests took, and how much later the gateway is.
func tellTimes(p50, ofGateway, p99, lateOfGateway time.Duration) {
	fmt.Printf("      p50: plain %v, gateway %v; p99: plain %v, gateway %v: %v later\n", p50.Round(round), ofGateway.Round(round), p99.Round(round), lateOfGateway.Round(round), (lateOfGateway - p99).Round(round))
}

// undisturbed returns the times of all rounds' requests that the host did not disturb, in order, and their share.
func undisturbed(rounds []sample) (times []time.Duration, share float64) {
	n := 0
	for _, s := range rounds {
		times = append(times, s.undisturbed...)
		n += len(s.all)
	}
	slices.Sort(times)
	return times, float64(len(times)) / float64(n)
}

// shares of what saturates the gateway are the rates that it is compared at.
var shares = []float64{0.5, 0.25}

// compare loads all three at the shares of what the gateway can do, one after the other, and prints the medians.
func (b *bench) compare(ctx context.Context, what string, of targets) error {
	most, err := b.saturate(ctx, of.gateway)
	if err != nil {
		return err
	}
	atPlain, err := b.saturate(ctx, of.plain)
	if err != nil {
		return err
	}
	fmt.Printf("  %s: saturated at %.0f requests/s (plain %.0f)\n", what, most, atPlain)
	order := []*target{of.plain, of.gateway, of.twin}
	for _, share := range shares {
		rate := share * most
		all := map[*target][]sample{}
		for i := range rounds {
			for j := range order {
				t := order[(i+j)%len(order)]
				s, err := b.load(ctx, t, small, rate)
				if err != nil {
					return err
				}
				all[t] = append(all[t], s)
			}
		}
		fmt.Printf("   at %.0f/s, %v of what saturates the gateway:\n", rate, share)
		tell(all[of.plain], all[of.twin], all[of.gateway])
	}
	runtime.GC()
	return nil
}
