// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package idp runs real identity providers as processes, for tests and the demo. They are the
// Keystone of the Linux distribution, and the OpenID provider in test/idp/testdata.
package idp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// startTimeout is the maximum time until a provider is ready. It is long enough for a busy machine.
const startTimeout = 2 * time.Minute

// process is a provider that runs until it is stopped.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
}

// start starts a command. It passes each line of its standard output to out, and writes its
// standard error to a file.
func start(cmd *exec.Cmd, log string, out func(line string)) (*process, error) {
	file, err := os.Create(log) // #nosec G304 -- in the caller's directory
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd.Stderr = file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Stop can also kill its workers
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, stdin, make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			out(lines.Text())
		}
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Stop stops the provider and waits until it has exited.
func (p *process) Stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
	}
}

// awaitReady waits until ready returns nil. It returns an error if the process exits, or after
// startTimeout.
func (p *process) awaitReady(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-p.exited:
			return fmt.Errorf("the provider ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the provider was not ready in time: %w", err)
		}
	}
}

// run runs a command and waits until it exits.
func run(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) // #nosec G204 -- commands of this package
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// freePort returns a port of the loopback address that is currently unused.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

// writeCertificate writes a self-signed certificate for 127.0.0.1 and its key. It returns the
// certificate in PEM.
func writeCertificate(certificate, key string) ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test provider"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certPEM, errors.Join(os.WriteFile(certificate, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600))
}
