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

// lookEvery is how often the balancer looks which replicas are ready.
const lookEvery = 100 * time.Millisecond

// balancer spreads connections over the replicas that are ready, as a Service does. One replica needs none.
type balancer struct {
	address  string
	replicas []*replica
	next     atomic.Uint64
}

// replica is one process of the service.
type replica struct {
	address, side string // of the webhooks, of health and metrics
	ready         atomic.Bool
}

// newBalancer returns the balancer of n replicas to be started. It runs until ctx ends.
func newBalancer(ctx context.Context, n int) (*balancer, error) {
	b := &balancer{}
	for range n {
		r := &replica{}
		var err error
		if r.address, err = FreeAddress(); err != nil {
			return nil, err
		}
		if r.side, err = FreeAddress(); err != nil {
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
	go b.look(ctx)
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

func (b *balancer) look(ctx context.Context) {
	for ctx.Err() == nil {
		for _, r := range b.replicas {
			r.ready.Store(r.check(ctx) == nil)
		}
		time.Sleep(lookEvery)
	}
}

// forward hands a connection to the next replica that is ready, or takes it.
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
			continue
		}
		defer func() { _ = to.Close() }()
		var wg sync.WaitGroup
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			wg.Go(func() {
				_, _ = io.Copy(way[1], way[0]) // either side may end it
				_ = way[1].(*net.TCPConn).CloseWrite()
			})
		}
		wg.Wait()
		return
	}
}

// check returns why a replica is not ready.
func (r *replica) check(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.side+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", said)
	}
	return nil
}
