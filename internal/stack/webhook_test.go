// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestWebhookRevocation checks that the boundary denies revoked callers in the webhook service,
// whatever authenticated them.
func TestWebhookRevocation(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"revoked.yaml": "{apiVersion: kubetenant.dev/v1alpha1, kind: Revocation, tenants: [{name: gone}], users: [{tenant: " +
			"a, name: mallory}, {tenant: system, name: 'system:apiserver'}], serviceAccounts: [{uid: " +
			"0f8fad5b-d9cb-469f-a165-70867728950e}], certificates: [{sha256: " + strings.Repeat("ab", 32) + "}]}",
		"tenancy.yaml": "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: {revocation: " +
			"{path: revoked.yaml}, sources: []}}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(id string) map[string][]string { return map[string][]string{tenant.ExtraKey: {id}} }
	for name, c := range map[string]struct {
		u    user.DefaultInfo
		want bool
	}{
		"user that is not revoked":  {user.DefaultInfo{Name: "alice", Extra: of("a")}, false},
		"revoked user":              {user.DefaultInfo{Name: "mallory", Extra: of("a")}, true},
		"loopback client":           {user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:masters"}}, false},
		"revoked, loopback name":    {user.DefaultInfo{Name: "system:apiserver", Extra: of("system")}, true},
		"same name, another tenant": {user.DefaultInfo{Name: "mallory", Extra: of("b")}, false},
		"user of a revoked tenant":  {user.DefaultInfo{Name: "alice", Extra: of("gone")}, true},
		"revoked service account": {
			user.DefaultInfo{Name: "system:serviceaccount:a--web:x", UID: "0f8fad5b-d9cb-469f-a165-70867728950e"}, true,
		},
		"user with the UID of a revoked service account": {
			user.DefaultInfo{Name: "alice", UID: "0f8fad5b-d9cb-469f-a165-70867728950e", Extra: of("a")}, false,
		},
		"revoked certificate": {
			user.DefaultInfo{
				Name: "alice",
				Extra: map[string][]string{
					tenant.ExtraKey:      {"a"},
					user.CredentialIDKey: {"X509SHA256=" + strings.Repeat("AB", 32)},
				},
			},
			true,
		},
		"certificate that is not revoked": {
			user.DefaultInfo{
				Name: "alice",
				Extra: map[string][]string{
					tenant.ExtraKey:      {"a"},
					user.CredentialIDKey: {"X509SHA256=" + strings.Repeat("cd", 32)},
				},
			},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			stack, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
				stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
			if err != nil {
				t.Fatal(err)
			}
			a := authorizer.AttributesRecord{User: &c.u, Verb: "get", Path: "/version"}
			d, reason, err := stack.Authorizer.Authorize(t.Context(), a)
			if revoked := d == authorizer.DecisionDeny && reason == authz.ReasonRevoked.String(); err != nil ||
				revoked != c.want {
				t.Errorf("%v %q %v", d, reason, err)
			}
		})
	}
}
