// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package link forwards connections between two programs, and lets a test interrupt them.
package link

import (
	"net"
	"sync"
	"testing"
)

// Mode specifies how a Link handles connections.
type Mode int

// Modes of a Link. Pass is the default.
const (
	Pass   Mode = iota
	Reset       // resets existing and new connections
	Silent      // accepts connections, but forwards no data
)

// Link forwards connections to a target. It is safe for concurrent use.
type Link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	mode  Mode
	now   chan struct{} // closed when the mode changes
	conns map[net.Conn]bool
}

// New returns a Link that listens on an address until the test ends.
func New(t testing.TB, address, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{
		listener: listener,
		target:   target,
		now:      make(chan struct{}),
		conns:    map[net.Conn]bool{},
	}
	t.Cleanup(func() {
		_ = listener.Close()
		l.Set(Reset)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.pass(conn)
		}
	}()
	return l
}

// Address returns the address on which the link listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Set changes the mode. If the new mode is Reset or the previous mode was Silent, it resets all
// connections. After a real interruption, both sides would have closed them.
func (l *Link) Set(m Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m == Reset || l.mode == Silent {
		for conn := range l.conns {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // a reset instead of a normal close
			}
			_ = conn.Close()
		}
	}
	l.mode = m
	close(l.now)
	l.now = make(chan struct{})
}

// Open returns the number of open connections.
func (l *Link) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) / 2 // each connection has two sides
}

func (l *Link) state() (Mode, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode, l.now
}

func (l *Link) add(conn net.Conn) (mode Mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[conn] = true
	return l.mode
}

func (l *Link) remove(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	_ = conn.Close()
}

// pass forwards the data of one connection to the target and back.
func (l *Link) pass(from net.Conn) {
	defer l.remove(from)
	if l.add(from) == Reset {
		_ = from.(*net.TCPConn).SetLinger(0)
		return
	}
	for mode, changed := l.state(); mode == Silent; mode, changed = l.state() {
		<-changed
	}
	to, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer l.remove(to)
	l.add(to)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		wg.Go(func() { l.copy(way[1], way[0]) })
	}
	wg.Wait()
}

// copy forwards the data of a connection in one direction.
func (l *Link) copy(to, from net.Conn) {
	defer func() { _ = to.(*net.TCPConn).CloseWrite() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for mode, changed := l.state(); mode == Silent; mode, changed = l.state() {
			<-changed
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
