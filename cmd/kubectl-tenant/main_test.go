// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubetenant/kubetenant/internal/manifests"
	"github.com/kubetenant/kubetenant/internal/manifests/gateway"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/test/logintest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-tenant": main, "browser": browser, "generate": generate})
}

// browser opens a page and follows redirects. It does not verify the test providers'
// certificates.
func browser() {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	} // #nosec G402 -- a test provider
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, os.Args[1], http.NoBody)
	if err != nil {
		os.Exit(1)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		os.Exit(1)
	}
}

// generate writes the files that kubetenant-webhook or kubetenant-gateway generates from
// tenancy.yaml to a directory. Its arguments are the program and the directory.
func generate() {
	var files map[string][]byte
	var err error
	if os.Args[1] == "gateway" {
		files, err = gateway.Generate(gateway.Options{
			Config:    "tenancy.yaml",
			Image:     "registry.example.com/gateway",
			Namespace: "kubetenant-system",
		})
	} else {
		files, err = webhook.Generate(webhook.Options{
			Config:      "tenancy.yaml",
			Image:       "registry.example.com/webhook",
			Namespace:   "kubetenant-system",
			ClusterIP:   "10.96.0.42",
			ClientCA:    "tenancy.yaml",
			SelfManaged: os.Args[1] == "self-managed",
			ServingCA:   map[bool]string{false: "tenancy.yaml"}[os.Args[1] == "self-managed"],
			Directory:   "/etc/kubernetes/kubetenant",
			// kube-apiserver authenticates with these files at the service.
			ClientCertificate: "/etc/kubernetes/kubetenant/client.crt",
			ClientKey:         "/etc/kubernetes/kubetenant/client.key",
			Authorizers:       []string{"Node", "RBAC"},
		})
	}
	if err == nil {
		err = manifests.Write(os.Args[2], "", files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestScripts(t *testing.T) {
	scenarios, err := filepath.Abs("../../testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("../../internal/cli/accessmap/testdata")
	if err != nil {
		t.Fatal(err)
	}
	openid := logintest.NewProvider()
	t.Cleanup(openid.Close)
	keystone := logintest.NewKeystone(func() int { return http.StatusCreated })
	t.Cleanup(keystone.Close)
	validated := newValidatedCluster()
	t.Cleanup(validated.Close)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE_GOLDEN") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SCENARIOS", scenarios)
			e.Setenv("DATA", data)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("OPENID", openid.URL)
			e.Setenv("KEYSTONE", keystone.URL)
			e.Setenv("CLUSTER", validated.URL)
			return openid.WriteCA(filepath.Join(e.WorkDir, "openid.crt"))
		},
	})
}
