// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// start starts the server with the files in docs/embedding.md. It returns a function that returns
// a client for the user with the given token.
func start(t *testing.T) func(token string) dynamic.Interface {
	t.Helper()
	dir := t.TempDir()
	for name, text := range blocks(t) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, filepath.Join(dir, "tenancy.yaml"), port) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	as := func(token string) dynamic.Interface {
		client, err := dynamic.NewForConfig(&rest.Config{
			Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
			BearerToken:     token,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			_, err := as("a-secret-of-alice").Resource(group.WithResource("notes")).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		}); err != nil {
		t.Fatal(err)
	}
	return as
}

// blocks returns the files in docs/embedding.md, keyed by name.
func blocks(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, block := range strings.Split(string(page), "\n```")[1:] {
		header, text, _ := strings.Cut(block, "\n")
		if _, name, ok := strings.Cut(header, "file="); ok {
			files[name] = text + "\n"
		}
	}
	return files
}

// license is the header of each source file. docs/embedding.md shows the server without it.
const license = "// Copyright The kubetenant authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

// TestPage checks that docs/embedding.md contains main.go, and that main.go is small.
func TestPage(t *testing.T) {
	file, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimPrefix(string(file), license)
	if blocks(t)["main.go"] != text {
		t.Error("docs/embedding.md shows another main.go")
	}
	if lines := strings.Count(text, "\n"); lines >= 100 {
		t.Errorf("main.go has %d lines; want less than 100", lines)
	}
}

// TestNotes checks that Notes get the label of their tenant, and that callers cannot read or list
// the Notes of another tenant. Callers of the system tenant can list all Notes.
func TestNotes(t *testing.T) {
	as := start(t)
	notes := group.WithResource("notes")
	alice, bob := as("a-secret-of-alice"), as("a-secret-of-bob")
	note := func(namespace, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Note",
			"metadata":   map[string]any{"namespace": namespace, "name": name},
			"text":       "x",
		}}
	}
	created, err := alice.Resource(notes).Namespace("acme--web").Create(t.Context(),
		note("acme--web", "hers"), metav1.CreateOptions{})
	if err != nil || created.GetLabels()["kubetenant.dev/tenant"] != "acme" ||
		created.GetAnnotations()["kubetenant.dev/creator"] == "" {
		t.Errorf("created %v, %v", created, err)
	}
	if _, err := bob.Resource(notes).Namespace("globex--shop").Create(t.Context(),
		note("globex--shop", "his"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for token, want := range map[string][]string{
		"a-secret-of-alice": {"hers"},
		"a-secret-of-bob":   {"his"},
		"a-secret-of-ops":   {"hers", "his"},
	} {
		t.Run(token, func(t *testing.T) {
			list, err := as(token).Resource(notes).List(t.Context(), metav1.ListOptions{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].GetName())
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s lists %v, want %v", token, got, want)
			}
		})
	}
	_, err = alice.Resource(notes).Namespace("globex--shop").Get(t.Context(), "his", metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tenant boundary") {
		t.Error(err)
	}
	forged := note("acme--web", "forged")
	forged.SetLabels(map[string]string{"kubetenant.dev/tenant": "globex"})
	if created, err := alice.Resource(notes).Namespace("acme--web").Create(t.Context(),
		forged, metav1.CreateOptions{}); err != nil || created.GetLabels()["kubetenant.dev/tenant"] != "acme" {
		t.Errorf("with a forged label: %v, %v", created, err)
	}
	if _, err := as("a-guess").Resource(notes).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Error(err)
	}
}
