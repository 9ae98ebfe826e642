// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoPathInKubeconfig checks that a kubeconfig of --oidc contains the provider's certificate
// authority, and no path of this machine.
func TestNoPathInKubeconfig(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o := &genOptions{
		issuer:   "https://login.example.com",
		clientID: "kubectl",
		issuerCA: path,
		storage:  storageDisk,
	}
	if err := o.readAuthority(); err != nil {
		t.Fatal(err)
	}
	args := o.login().Args
	if !slices.Contains(args, "--issuer-ca-data") || strings.Contains(strings.Join(args, " "), path) {
		t.Errorf("login() = %q", args)
	}
}
