// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	lists       = 20
	events      = 400
	commandSend = 64 << 20
	idleWatches = 20_000
	// idleSettled is the time without requests before memory is read.
	idleSettled = 5 * time.Second
)

// measureStub takes the measurements in front of the stub, which depend only on the proxies.
func (b *bench) measureStub(ctx context.Context, processes targets) error {
	if err := b.compare(ctx, "GET of 1 KiB", processes); err != nil {
		return err
	}
	if err := b.oneCaller(ctx, processes); err != nil {
		return err
	}
	if err := b.handshakes(ctx, processes.gateway); err != nil {
		return err
	}
	for _, m := range []struct {
		what    string
		measure func(context.Context, *target) (float64, error)
		say     func(plain, gateway float64) string
	}{
		{
			"a list of 10 MB",
			b.lists,
			func(p, g float64) string { return fmt.Sprintf("plain %.0f MB/s, gateway %.0f MB/s: %.2f", p, g, g/p) },
		},
		{
			"exec",
			b.exec,
			func(p, g float64) string { return fmt.Sprintf("plain %.0f MB/s, gateway %.0f MB/s: %.2f", p, g, g/p) },
		},
		{"a watch event, median", b.events, func(p, g float64) string {
			return fmt.Sprintf("plain %.3f ms, gateway %.3f ms: %.3f ms later", p, g, g-p)
		}},
	} {
		all := map[*target][]float64{}
		for i := range rounds {
			for _, t := range [][]*target{{processes.plain, processes.gateway}, {processes.gateway, processes.plain}}[i%2] {
				v, err := m.measure(ctx, t)
				if err != nil {
					return fmt.Errorf("%s through %s: %w", m.what, t.name, err)
				}
				all[t] = append(all[t], v)
			}
		}
		fmt.Printf("  %s: %s\n", m.what, m.say(median(all[processes.plain]), median(all[processes.gateway])))
	}
	return b.idle(ctx, processes.gateway)
}

// measureServer measures a GET that a kube-apiserver answers. The plain proxy sets fixed
// impersonation headers.
func (b *bench) measureServer(ctx context.Context, processes targets) error {
	if err := b.compare(ctx, "GET of a ConfigMap", processes); err != nil {
		return err
	}
	return b.oneCaller(ctx, processes)
}

// handshakes prints how many connections to the stub the target opens for many short requests.
func (b *bench) handshakes(ctx context.Context, t *target) error {
	before, err := b.connectionsOpened(ctx)
	if err != nil {
		return err
	}
	c := b.client()
	defer c.CloseIdleConnections()
	var all sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		all.Go(func() {
			for range handshakeRequests / callers {
				if err := get(ctx, c, t.base+small); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	after, err := b.connectionsOpened(ctx)
	if err == nil {
		fmt.Printf("  handshakes with the cluster in %d requests: %d\n", handshakeRequests, after-before)
	}
	return err
}

// connectionsOpened returns the number of connections to the stub so far, except the connections
// that this function opened.
func (b *bench) connectionsOpened(ctx context.Context) (int64, error) {
	c := b.client()
	defer c.CloseIdleConnections()
	resp, err := send(ctx, c, b.stub+connections)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	b.ownConnections++
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n - b.ownConnections, err
}

// lists returns the throughput of large responses in MB/s.
func (b *bench) lists(ctx context.Context, t *target) (float64, error) {
	c := b.client()
	defer c.CloseIdleConnections()
	if err := get(ctx, c, t.base+large); err != nil {
		return 0, err
	}
	began := time.Now()
	for range lists {
		if err := get(ctx, c, t.base+large); err != nil {
			return 0, err
		}
	}
	return lists * largeBytes / 1e6 / time.Since(began).Seconds(), nil
}

// events returns the median delay of a watch event in ms.
func (b *bench) events(ctx context.Context, t *target) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := b.client()
	defer c.CloseIdleConnections()
	resp, err := send(ctx, c, t.base+ticking)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	var late []float64
	for len(late) < events && lines.Scan() {
		at, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return 0, err
		}
		late = append(late, float64(time.Now().UnixNano()-at)/1e6)
	}
	if len(late) < events {
		return 0, errors.Join(io.ErrUnexpectedEOF, lines.Err())
	}
	return median(late), nil
}

// exec returns the throughput of an echo over an upgraded connection in MB/s.
func (b *bench) exec(ctx context.Context, t *target) (float64, error) {
	u, err := url.Parse(t.base)
	if err != nil {
		return 0, err
	}
	conn, err := (&tls.Dialer{
		Config: &tls.Config{RootCAs: b.authorities, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
	}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn,
		"GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		command, token); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil) //nolint:bodyclose // the connection is closed
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return 0, errors.Join(err, errors.New(strings.TrimSpace(fmt.Sprint(resp))))
	}
	began := time.Now()
	sent := make(chan error, 1)
	go func() {
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		var err error
		for n := 0; n < commandSend && err == nil; n += len(chunk) {
			_, err = conn.Write(chunk)
		}
		sent <- err
	}()
	_, err = io.CopyN(io.Discard, reader, commandSend)
	return commandSend / 1e6 / time.Since(began).Seconds(), errors.Join(err, <-sent)
}

// idle opens watches without events, and prints how much memory each uses in the target.
func (b *bench) idle(ctx context.Context, t *target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := memoryOf(t)
	if err != nil {
		return err
	}
	c := b.client()
	defer c.CloseIdleConnections()
	tickets, errs := make(chan struct{}, idleWatches), make(chan error, idleWatches)
	for range idleWatches {
		tickets <- struct{}{}
	}
	close(tickets)
	var open sync.WaitGroup
	for range callers {
		open.Go(func() {
			for range tickets {
				resp, err := send(ctx, c, t.base+idle) //nolint:bodyclose // ctx ends it
				if err != nil {
					errs <- err
					return
				}
				go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
			}
		})
	}
	open.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	time.Sleep(idleSettled)
	after, err := memoryOf(t)
	fmt.Printf("  %d idle watches: %d MB resident (%d MB before): %.1f KB each\n",
		idleWatches, after>>20, before>>20, float64(after-before)/idleWatches/1000)
	return err
}

// measureImpersonation prints the durations of requests to kube-apiserver with and without
// impersonation, without a proxy.
func (b *bench) measureImpersonation(ctx context.Context) error {
	config, err := b.impersonator()
	if err != nil {
		return err
	}
	direct := map[string][]time.Duration{}
	for round := range rounds {
		for _, as := range [][]string{{"", "alice"}, {"alice", ""}}[round%2] {
			took, err := b.impersonate(ctx, config, as)
			if err != nil {
				return err
			}
			direct[as] = append(direct[as], took)
		}
	}
	fmt.Printf("\nkube-apiserver without a proxy, GET of /version one after the other: %v, impersonated %v\n",
		median(direct[""]).Round(time.Microsecond), median(direct["alice"]).Round(time.Microsecond))
	return nil
}

// impersonator returns the client configuration of the gateway's impersonator.
func (b *bench) impersonator() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", b.server.Kubeconfig("kubetenant-gateway-impersonator"))
}

// impersonate returns the median duration of requests that are sent one after the other. If as is
// not empty, the requests impersonate that user.
func (b *bench) impersonate(ctx context.Context, config *rest.Config, as string) (time.Duration, error) {
	config = rest.CopyConfig(config)
	if as != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: as,
			Groups:   []string{"dev", "tenant:acme"},
			Extra:    map[string][]string{"kubetenant.dev/tenant": {"acme"}},
		}
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	var took []time.Duration
	for range events {
		began := time.Now()
		if err := get(ctx, client, config.Host+"/version"); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), nil
}
