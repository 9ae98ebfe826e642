// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestUsageUntilDrained checks that a server that shuts down records its last requests, even after
// the context of its hooks has ended.
func TestUsageUntilDrained(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}, nil)
	s, err := stack.New(t.Context(), &configv1alpha1.Settings{Usage: configv1alpha1.Usage{
		Directory: filepath.Join(dir, "spool"),
		File:      &configv1alpha1.UsageFile{Path: path},
	}}, stack.Server{Cluster: lookuptest.OwnedBy(owners)})
	if err != nil {
		t.Fatal(err)
	}
	leads, drained := &leadership{}, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	leads.startUsage(ctx, s, nil, drained)
	cancel()
	if err := leads.stop(); err != nil {
		t.Fatal(err)
	}
	s.WithRequestState(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u := authz.RecordCaller(r.Context(),
			&user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}})
		if _, _, refused := s.AdmitFlow(r.Context(), u); refused != nil {
			t.Error(refused)
		}
		s.RecordSeats(r.Context(), 2, 3*time.Second)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	close(drained)
	leads.stopUsage()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), `"tenant":"acme"`) ||
		!strings.Contains(string(data), `"seatMilliseconds":6000`) {
		t.Errorf("%s, %v; want the usage of the last request", data, err)
	}
}
