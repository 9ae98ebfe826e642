// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command benchwebhook compares the load on the webhook service with the load on an empty TLS
// server of the same Go release. It uses h2load (Debian package nghttp2-client), and prints the
// table in docs/design/benchmarks.md.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubetenant/kubetenant/test/localserver"
)

const (
	// rounds is the number of rounds for each request and target. The targets alternate.
	rounds   = 3
	duration = 8 * time.Second
	// clients is the number of persistent connections.
	clients = 16
)

func main() {
	bin := flag.String("bin", "", "directory of the built commands")
	empty := flag.String("empty", "", "serve nothing at this address: the other side of the comparison")
	only := flag.String("only", "", "just the requests whose name holds this")
	pki := flag.String("pki", "", "directory of its certificate")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *empty != "" {
		err = serveEmpty(ctx, *empty, *pki)
	} else {
		err = run(ctx, *bin, *only)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchwebhook:", err)
		os.Exit(1)
	}
}

// serveEmpty starts a server that reads request bodies and returns {} for each request.
func serveEmpty(ctx context.Context, address, pki string) error {
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "{}")
		}),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	err := server.ListenAndServeTLS(filepath.Join(pki, "webhook.crt"), filepath.Join(pki, "webhook.key"))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// target is a server process under load.
type target struct {
	name, base string
	process    *exec.Cmd
}

func run(ctx context.Context, bin, only string) error {
	if _, err := exec.LookPath("h2load"); err != nil {
		return fmt.Errorf("%w (Debian: apt-get install nghttp2-client)", err)
	}
	dir, err := os.MkdirTemp("", "benchwebhook-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(token+",alice,u1,dev,,acme\n"), 0o600); err != nil {
		return err
	}
	server, err := localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), dir,
		"--workload-controllers=false", "--webhook")
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	if err := makeTenants(ctx, server); err != nil {
		return err
	}
	pki := filepath.Join(dir, "pki")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	nothing, err := start(ctx, "empty", func(address string) *exec.Cmd {
		return exec.Command(self, "--empty", address, "--pki", pki) // #nosec G204 -- this command
	})
	if err != nil {
		return err
	}
	defer nothing.stop()
	service, err := start(ctx, "service", func(address string) *exec.Cmd { return serve(bin, server, address) })
	if err != nil {
		return err
	}
	defer service.stop()
	if err := compare(ctx, nothing, service, only); err != nil || only != "" {
		return err
	}
	return startToReady(ctx, bin, server)
}

// serve returns the command of a webhook service that accepts any client, because h2load presents
// no client certificate to either target.
func serve(bin string, s *localserver.Server, address string) *exec.Cmd {
	pki := filepath.Join(s.Dir, "pki")
	return exec.Command(filepath.Join(bin, "kubetenant-webhook"), "serve", "--config",
		filepath.Join(s.Dir, "tenancy.yaml"), // #nosec G204 -- the built command
		"--kubeconfig", s.Kubeconfig("kubetenant-webhook"), "--listen", address, "--metrics-listen", metricsAddress(address),
		"--insecure-any-client",
		"--tls-cert-file", filepath.Join(pki, "webhook.crt"), "--tls-private-key-file", filepath.Join(pki, "webhook.key"))
}

// metricsAddress returns the address for health checks and metrics, which has the next port.
func metricsAddress(address string) string {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(n+1))
}

// freePair returns an address whose port and the next port are free.
func freePair() (string, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		address := listener.Addr().String()
		above, err := net.Listen("tcp", metricsAddress(address))
		_ = listener.Close() // the process will use the port
		if err == nil {
			return address, above.Close()
		}
	}
}

// start starts a process on a free port and waits until it accepts connections.
func start(ctx context.Context, name string, command func(address string) *exec.Cmd) (*target, error) {
	address, err := freePair()
	if err != nil {
		return nil, err
	}
	t := &target{name: name, base: "https://" + address, process: command(address)}
	t.process.Stderr = os.Stderr
	if err := t.process.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return t, connection.Close()
		}
		if time.Now().After(deadline) {
			t.stop()
			return nil, fmt.Errorf("%s does not listen: %w", name, err)
		}
	}
}

func (t *target) stop() {
	_ = t.process.Process.Kill() // our process, and no data is lost
	_ = t.process.Wait()
}

// cpu returns the processor time of the process.
func (t *target) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // after the name
	fields := strings.Fields(rest)
	ticks := 0
	for _, i := range []int{11, 12} { // utime, stime: proc(5), fields 14 and 15
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100
}
