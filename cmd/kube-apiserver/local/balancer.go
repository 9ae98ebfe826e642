// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The settings of the readiness checks of a replica. They have the values of the Helm chart's
// readiness probe, except startupInterval, which applies while the replica is not ready.
const (
	readinessInterval = 2 * time.Second
	readinessTimeout  = time.Second
	failureThreshold  = 2
	startupInterval   = 100 * time.Millisecond
)

// balancer distributes connections among the ready replicas, as a Kubernetes Service does. If a
// connection to a replica fails, balancer does not try another replica. If there is only one
// replica, address is the address of this replica.
type balancer struct {
	address  string
	replicas []*replica
	next     atomic.Uint64
}

// replica is one process of the webhook service.
type replica struct {
	address, metricsAddress string // addresses of the webhooks, and of health checks and metrics
	ready                   atomic.Bool
}

// newBalancer returns a balancer for n replicas, which the caller starts later. The balancer
// runs until ctx ends.
func newBalancer(ctx context.Context, n int) (*balancer, error) {
	b := &balancer{}
	for range n {
		r := &replica{}
		var err error
		if r.address, err = FreeAddress(); err != nil {
			return nil, err
		}
		if r.metricsAddress, err = FreeAddress(); err != nil {
			return nil, err
		}
		b.replicas = append(b.replicas, r)
	}
	if n == 1 {
		b.address = b.replicas[0].address
		return b, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.address = listener.Addr().String()
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for _, r := range b.replicas {
		go r.checkReadiness(ctx)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go b.forward(connection)
		}
	}()
	return b, nil
}

// checkReadiness checks whether a replica is ready until ctx ends.
func (r *replica) checkReadiness(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, readinessTimeout)
		if r.check(limited) == nil {
			failed = 0
			r.ready.Store(true)
		} else if failed++; failed >= failureThreshold {
			r.ready.Store(false)
		}
		cancel()
		wait := startupInterval
		if r.ready.Load() {
			wait = readinessInterval
		}
		time.Sleep(wait)
	}
}

// forward forwards a connection to the next ready replica. If no replica is ready, forward
// closes the connection.
func (b *balancer) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	first := b.next.Add(1)
	for i := range b.replicas {
		r := b.replicas[(int(first)+i)%len(b.replicas)] // #nosec G115 -- wraps around
		if !r.ready.Load() {
			continue
		}
		to, err := net.Dial("tcp", r.address)
		if err != nil {
			return
		}
		defer func() { _ = to.Close() }()
		var wg sync.WaitGroup
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			wg.Go(func() {
				_, _ = io.Copy(way[1], way[0]) // either side may close the connection
				_ = way[1].(*net.TCPConn).CloseWrite()
			})
		}
		wg.Wait()
		return
	}
}

// check returns an error if a replica is not ready.
func (r *replica) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metricsAddress+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", body)
	}
	return nil
}
