// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"net"
	"path/filepath"
	"testing"
)

// TestFreeAddress checks that the returned address is reserved before a process listens on it, and
// that a process can then listen on it.
func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if other, err := net.ListenPacket("udp", address); err == nil { // as another process would do
		t.Errorf("%s is not reserved", other.LocalAddr())
		_ = other.Close()
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("listen on the reserved address: %v", err)
	}
	defer func() { _ = l.Close() }()
}

// TestStoredPort checks that a port whose number is stored in a file remains reserved after its
// listener has closed.
func TestStoredPort(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "port")
	l, err := listenStored(kept, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if other, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
		t.Errorf("%s is not reserved", other.LocalAddr())
		_ = other.Close()
	}
}
