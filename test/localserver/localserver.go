// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package localserver runs kubetenant-local as a separate process, for the demo, the tests and the
// benchmarks.
package localserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startWithin and stopWithin are the maximum durations of the start and the stop of a server.
	// They are long enough for a busy machine.
	startWithin = 5 * time.Minute
	stopWithin  = time.Minute
)

// Server is a running server.
type Server struct {
	// Dir is the directory of the server, URL its address, and PID its process ID.
	Dir, URL string
	PID      int
	// Ready is the time that the server took to become ready, as the server printed it.
	Ready string
	// Output is the standard output of the server up to the point at which it was ready.
	Output string

	cmd       *exec.Cmd
	stderr    *lockedBuffer
	exited    chan struct{} // closed after exit is set
	exit      error
	announced chan announcement
}

// announcement contains the output of a server that is ready.
type announcement struct{ output, url, ready string }

// Start runs binary, which must be kubetenant-local, with "--dir dir" and args, and waits until the
// server is ready. If the server does not start, the error contains its standard error. On Linux,
// the server is killed when this process exits for any reason.
func Start(ctx context.Context, binary, dir string, args ...string) (*Server, error) {
	s := newServer(binary, dir, args)
	s.cmd.SysProcAttr = EndsWithParent()
	return s.begin(ctx, s.startAttached)
}

// StartDetached is like [Start], but the server continues to run when this process exits.
func StartDetached(ctx context.Context, binary, dir string, args ...string) (*Server, error) {
	s := newServer(binary, dir, args)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return s.begin(ctx, s.startDetached)
}

func newServer(binary, dir string, args []string) *Server {
	s := &Server{
		Dir:       dir,
		stderr:    &lockedBuffer{},
		exited:    make(chan struct{}),
		announced: make(chan announcement, 1),
	}
	// #nosec G204 -- the caller names the binary it built
	s.cmd = exec.Command(binary, append([]string{"--dir", dir}, args...)...)
	s.cmd.Stderr = s.stderr
	return s
}

func (s *Server) begin(ctx context.Context, start func() (io.ReadCloser, error)) (*Server, error) {
	output, err := start()
	if err != nil {
		return nil, err
	}
	s.PID = s.cmd.Process.Pid
	go s.read(output)
	go func() {
		s.exit = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// SignalAndAwait sends the server a signal that restarts a part of the server, and waits until the
// server is ready again.
func (s *Server) SignalAndAwait(ctx context.Context, signal os.Signal) error {
	if err := s.cmd.Process.Signal(signal); err != nil {
		return err
	}
	return s.await(ctx)
}

// await waits until the server is ready. If the server is not ready in time, await stops it.
func (s *Server) await(ctx context.Context) error {
	var err error
	select {
	case a := <-s.announced:
		s.Output, s.URL, s.Ready = a.output, a.url, a.ready
		return nil
	case <-s.exited:
		return errors.Join(errors.New("the server was not ready before its end"), s.ended())
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startWithin):
		err = errors.New("the server was not ready in time")
	}
	return errors.Join(err, s.Stop())
}

// ended returns the error with which the server exited, or nil if it exited successfully.
func (s *Server) ended() error {
	if s.exit == nil {
		return nil
	}
	return fmt.Errorf("the server ended: %w: %s", s.exit, strings.TrimSpace(s.stderr.String()))
}

func (s *Server) startAttached() (io.ReadCloser, error) {
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return output, s.cmd.Start()
}

// startDetached redirects the output of the server to files, because the server may run longer than
// this process.
func (s *Server) startDetached() (io.ReadCloser, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, "local.log")
	file, err := os.Create(path) // #nosec G304 -- in the caller's directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	s.cmd.Stdout, s.cmd.Stderr = file, file
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	return newTail(path)
}

// read parses the output of the server and announces when the server is ready.
func (s *Server) read(output io.ReadCloser) {
	defer func() { _ = output.Close() }()
	var a announcement
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		a.output += lines.Text() + "\n"
		if after, ok := strings.CutPrefix(line, "ready after "); ok {
			a.ready = after
		}
		if after, ok := strings.CutPrefix(line, "server "); ok {
			a.url = strings.TrimSpace(after)
		}
		if strings.HasPrefix(line, "Stop it") {
			s.announced <- a
			a = announcement{}
		}
	}
	_, _ = io.Copy(io.Discard, output)
}

// Stop stops the server and waits until it has exited. If the server had already failed, the
// error contains its standard error.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-s.exited
		return s.ended()
	}
	select {
	case <-s.exited:
		return s.exit
	case <-time.After(stopWithin):
		return errors.Join(errors.New("the server did not stop in time"), s.Kill())
	}
}

// Kill kills the server and waits until it has exited. It returns an error if the server had
// already exited.
func (s *Server) Kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	if <-s.exited; s.exit == nil {
		return errors.New("the server ended by itself")
	}
	return nil
}

// Kubeconfig returns the path of a kubeconfig that the server wrote.
func (s *Server) Kubeconfig(name string) string { return filepath.Join(s.Dir, name+".kubeconfig") }

// lockedBuffer is a buffer that one goroutine writes and another goroutine reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tail reads a file to which another process appends.
type tail struct{ *os.File }

func newTail(path string) (io.ReadCloser, error) {
	f, err := os.Open(path) // #nosec G304 -- in the caller's directory
	if err != nil {
		return nil, err
	}
	return tail{f}, nil
}

// Read waits for more data at the end of the file.
func (t tail) Read(p []byte) (int, error) {
	for {
		n, err := t.File.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
