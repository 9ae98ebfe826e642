// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command floods sends floods of HTTP/2 frames to a server. Meanwhile, it measures how long the
// requests of another caller take. The results are in docs/design/benchmarks.md.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// flood is the load that one run sends.
type flood struct {
	server, token, path  string
	connections, streams int
	frames, opened       atomic.Int64
}

func main() {
	f := &flood{}
	var kind, probe, probePath string
	var lasts time.Duration
	var pid int
	flag.StringVar(&f.server, "server", "", "host and port of the server")
	flag.StringVar(&kind, "kind", "none", "none, busy, held, reset, settings or data")
	flag.StringVar(&f.token, "token", "nobody", "the bearer token of the flood")
	flag.StringVar(&f.path, "path", "/api", "the path of its requests")
	flag.IntVar(&f.connections, "connections", 8, "number of connections")
	flag.IntVar(&f.streams, "streams", 250, "number of streams of each connection of held")
	flag.StringVar(&probe, "probe-token", "", "the bearer token of the other caller")
	flag.StringVar(&probePath, "probe-path", "/api", "the path of its requests")
	flag.DurationVar(&lasts, "duration", 9*time.Second, "duration of the flood")
	flag.IntVar(&pid, "pid", 0, "the process whose memory is measured")
	flag.Parse()
	kinds := map[string]func(context.Context) error{
		"none":     func(context.Context) error { return nil },
		"busy":     busy,
		"held":     f.holdStreams,
		"reset":    f.reset,
		"settings": f.settings,
		"data":     f.data,
	}
	if kinds[kind] == nil {
		fmt.Fprintln(os.Stderr, "unknown kind")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var all sync.WaitGroup
	for range f.connections {
		all.Go(func() {
			for ctx.Err() == nil && kind != "none" {
				_ = kinds[kind](ctx) // if the server closes the connection, the flood opens another one
			}
		})
	}
	before := resident(pid)
	times, failures, maxResident := measure(ctx, f.server, probe, probePath, pid)
	all.Wait()
	slices.Sort(times)
	if len(times) == 0 {
		times = append(times, 0)
	}
	fmt.Printf("%-9s connections %d (%d opened), frames %d; another caller: %d answers, %d failures, p50 %v, max %v; "+
		"RSS %d -> %d MiB\n", kind, f.connections, f.opened.Load(), f.frames.Load(), len(times), failures,
		times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), before, maxResident)
}

// measure sends requests of another caller until ctx ends. It returns their durations, the number
// of failed requests, and the largest resident memory of the process pid in MiB.
func measure(
	ctx context.Context,
	server, token, path string,
	pid int,
) (times []time.Duration, failures, maxResident int) {
	client := &http.Client{
		Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- a load test
		},
		Timeout: 10 * time.Second,
	}
	for ctx.Err() == nil {
		began := time.Now()
		r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "https://"+server+path, http.NoBody)
		if err != nil {
			return times, 1, maxResident
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			failures++
		}
		times = append(times, time.Since(began))
		maxResident = max(maxResident, resident(pid))
		time.Sleep(20 * time.Millisecond)
	}
	return times, failures, maxResident
}

// resident returns the resident memory of a process in MiB, or 0 if there is no such process.
func resident(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib := 0
	_, _ = fmt.Sscan(rest, &kib)
	return kib >> 10
}

// busy is the control experiment. It uses processor time, but sends nothing.
func busy(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		_ = bytes.Repeat([]byte{byte(n)}, 64)
	}
	return ctx.Err()
}

// connection is an HTTP/2 connection on which this program writes individual frames.
type connection struct {
	*http2.Framer
	conn   io.Closer
	buffer bytes.Buffer
	fields *hpack.Encoder
	stream uint32
	flood  *flood
}

// open opens a connection, and discards the data that the server sends.
func (f *flood) open(ctx context.Context, settings ...http2.Setting) (*connection, error) {
	dialer := &tls.Dialer{
		Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}, // #nosec G402 -- a load test
	}
	conn, err := dialer.DialContext(ctx, "tcp", f.server)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	f.opened.Add(1)
	c := &connection{
		Framer: http2.NewFramer(conn, conn),
		conn:   conn,
		flood:  f,
		stream: 1,
	}
	c.fields = hpack.NewEncoder(&c.buffer)
	go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
	_, err = io.WriteString(conn, http2.ClientPreface)
	return c, errors.Join(err, c.WriteSettings(settings...))
}

// begin starts a request with the given number of cookies.
func (c *connection) begin(method string, end bool, cookies int) error {
	c.buffer.Reset()
	write := func(name, value string) { _ = c.fields.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	write(":method", method)
	write(":scheme", "https")
	write(":authority", c.flood.server)
	write(":path", c.flood.path)
	write("authorization", "Bearer "+c.flood.token)
	for range cookies {
		write("cookie", strings.Repeat("c", 3900))
	}
	c.stream += 2
	c.flood.frames.Add(1)
	return c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      c.stream,
		BlockFragment: c.buffer.Bytes(),
		EndStream:     end,
		EndHeaders:    true,
	})
}

// holdStreams starts streams whose responses the server cannot write, because their window is
// 0. Each request has 58 KB of cookies. After the first request, HPACK compresses them to 15
// bytes.
func (f *flood) holdStreams(ctx context.Context) error {
	c, err := f.open(ctx, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	for n := 0; ctx.Err() == nil; n++ {
		if n >= f.streams {
			time.Sleep(10 * time.Millisecond)
		}
		if err := c.begin(http.MethodGet, true, 15); err != nil {
			return err
		}
	}
	return nil
}

// reset cancels each request immediately.
func (f *flood) reset(ctx context.Context) error {
	return f.repeat(ctx, func(c *connection) error {
		return errors.Join(c.begin(http.MethodGet, true, 0), c.WriteRSTStream(c.stream, http2.ErrCodeCancel))
	})
}

func (f *flood) settings(ctx context.Context) error {
	return f.repeat(ctx, func(c *connection) error { return c.WriteSettings() })
}

// data starts one request, and then sends empty DATA frames.
func (f *flood) data(ctx context.Context) error {
	return f.repeat(ctx, func(c *connection) error {
		if c.stream == 1 {
			return c.begin(http.MethodPost, false, 0)
		}
		return c.WriteData(c.stream, false, nil)
	})
}

// repeat calls send repeatedly on one connection, as fast as the server reads.
func (f *flood) repeat(ctx context.Context, send func(*connection) error) error {
	c, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	for ctx.Err() == nil {
		if err := send(c); err != nil {
			return err
		}
		f.frames.Add(1)
	}
	return nil
}
