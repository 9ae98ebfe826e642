// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestProductionServer checks that the built kube-apiserver with kubetenant authenticates a
// tenant's caller and enforces the tenant boundary. Most other tests run kubetenant-local instead.
func TestProductionServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--tenancy=false")
	server, _ := s.second(t, "kube-apiserver", "--tenancy-config="+filepath.Join(s.Dir, "tenancy.yaml"))

	acme := s.config(t, "acme")
	acme.Host = server.Host
	u, err := whoami(t.Context(), acme)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Extra[tenant.ExtraKey]; len(got) != 1 || got[0] != "acme" {
		t.Errorf("extra %s = %q, want [acme]", tenant.ExtraKey, got)
	}
	_, err = client(t, acme).CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), authz.ReasonNotOwned.String()) {
		t.Errorf("list secrets in kube-system: error %v, want %q", err, authz.ReasonNotOwned)
	}
}
