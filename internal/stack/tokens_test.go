// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

const tokensConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: partner, tenants: [a], webhook: { kubeConfigFile: kubeconfig, match: { opaque: true },
      tenant: { value: a } } }
  - { name: tokens, tokenFile: { path: tokens.csv } }
  - name: corp
    tenants: [a]
    oidc:
      jwt:
        issuer: { url: %q, audiences: [kubernetes], certificateAuthority: %q }
        claimMappings: { username: { claim: sub, prefix: "" } }
      tenant: { claim: org }
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [ { name: c, cluster: { server: %q } } ]
users: [ { name: u } ]
contexts: [ { name: x, context: { cluster: c, user: u } } ]
current-context: x
`

const noRevocations = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"

// tokenStack returns a stack with three sources: an OIDC issuer, a TokenReview service and a token
// file.
func tokenStack(
	t *testing.T, service http.HandlerFunc, register func(metrics.Registerable) error,
) (s *stack.Stack, dir, idToken string) {
	t.Helper()
	key := authntest.MustKey("ES256")
	issuer := authntest.NewIssuer(key)
	t.Cleanup(issuer.Close)
	server := httptest.NewServer(service)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	dir = t.TempDir()
	replace(t, dir, map[string]string{
		"tenancy.yaml": fmt.Sprintf(tokensConfig, issuer.URL(), issuer.CA()),
		"revoked.yaml": noRevocations,
		"kubeconfig":   fmt.Sprintf(kubeconfig, server.URL),
		"tokens.csv":   "file,bob,1,,a\n",
	})
	s, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: register})
	if err != nil {
		t.Fatal(err)
	}
	return s, dir, key.MustSign(map[string]any{
		"iss": issuer.URL(),
		"aud": "kubernetes",
		"sub": "alice",
		"org": "a",
		"jti": "one",
		"exp": time.Now().Add(time.Hour).Unix(),
	})
}

// TestHangingProviderDoesNotDelayOthers checks that a thousand callers that wait for one identity
// provider do not delay callers of other providers. A caller stops waiting when its request ends.
func TestHangingProviderDoesNotDelayOthers(t *testing.T) {
	s, _, idToken := tokenStack(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 1000 {
		waiting.Go(func() {
			if _, ok, err := s.Authenticator.AuthenticateRequest(bearer(fmt.Sprint("opaque-", i)).WithContext(ctx)); ok ||
				err == nil {
				t.Errorf("a caller of the hanging service: %v, %v", ok, err)
			}
		})
	}
	for range 100 {
		for _, token := range []string{"file", idToken} {
			if resp, ok, err := s.Authenticator.AuthenticateRequest(bearer(token).WithContext(t.Context())); !ok {
				t.Fatalf("a caller of another source: %v, %v", resp, err)
			}
		}
	}
	cancel()
	waiting.Wait()
}

// TestRevocationIsReloaded checks that a cached token is rejected once it is revoked, and that an
// invalid list has no effect.
func TestRevocationIsReloaded(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	s, dir, idToken := tokenStack(t, http.NotFound, registry.Register)
	accepted := func(token string) bool {
		_, ok, _ := s.Authenticator.AuthenticateRequest(bearer(token).WithContext(t.Context()))
		return ok
	}
	if !accepted(idToken) || !accepted("file") {
		t.Fatal("a caller is rejected before a revocation")
	}
	replace(t, dir, map[string]string{"revoked.yaml": noRevocations + "users: [ { tenant: a, name: alice } ]\n"})
	eventually(t, "alice is revoked", func() bool { return !accepted(idToken) })
	if !accepted("file") {
		t.Error("bob is revoked too")
	}
	replace(t, dir, map[string]string{"revoked.yaml": "nonsense"})
	eventually(t, "the bad list is counted", func() bool { return reloads(t, registry, "error") == 1 })
	if accepted(idToken) {
		t.Error("a bad list ended the revocation")
	}
	replace(t, dir, map[string]string{"revoked.yaml": noRevocations})
	eventually(t, "alice is accepted again", func() bool { return accepted(idToken) })
}

// TestSharedRevocations checks two stacks of which only the first one follows the revocation file.
// Both must reject the revoked callers. RevocationsChanged of the first stack is called after a new
// version has taken effect.
func TestSharedRevocations(t *testing.T) {
	dir := t.TempDir()
	replace(t, dir, map[string]string{"revoked.yaml": noRevocations, "tokens.csv": "bob,bob,1,,a\n"})
	settings := func(list string) *configv1alpha1.Settings {
		config, err := configv1alpha1.Decode(fmt.Appendf(nil,
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication:\n  revocation: { path: %s }\n"+
				"  sources: [ { name: tokens, tokenFile: { path: tokens.csv } } ]\n", list))
		if err != nil {
			t.Fatal(err)
		}
		config.ResolvePaths(dir)
		return &config.Settings
	}
	var front *stack.Stack
	told := make(chan bool, 1)
	front, err := stack.New(t.Context(), settings("revoked.yaml"), stack.Server{
		Cluster: lookuptest.OwnedBy(owners(t)),
		Authentication: stack.Authentication{RevocationsChanged: func(r *authn.Revocations) {
			_, ok, _ := front.Authenticator.AuthenticateRequest(bearer("bob").WithContext(t.Context()))
			told <- r == front.Revocations() && !ok
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	behind, err := stack.New(t.Context(), settings("of another.yaml"), stack.Server{
		Cluster:        lookuptest.OwnedBy(owners(t)),
		Authentication: stack.Authentication{Credentials: stack.NoCredentials, Revocations: front.Revocations},
	})
	if err != nil {
		t.Fatalf("a stack with the revocations of another stack: %v", err)
	}
	bob, _, err := front.Authenticator.AuthenticateRequest(bearer("bob").WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	decided := func() string {
		_, reason, _ := behind.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
			User:            bob.User,
			Verb:            "get",
			Resource:        "pods",
			Namespace:       "a--web",
			ResourceRequest: true,
		})
		return reason
	}
	if reason := decided(); reason == authz.ReasonRevoked.String() {
		t.Error("a caller is rejected before a revocation")
	}
	replace(t, dir, map[string]string{"revoked.yaml": noRevocations + "users: [ { tenant: a, name: bob } ]\n"})
	if !<-told {
		t.Error("RevocationsChanged was called before the revocation took effect")
	}
	if reason := decided(); reason != authz.ReasonRevoked.String() {
		t.Errorf("reason %q", reason)
	}
}

// TestMetrics checks that the results of authentication are counted for each source, and that no
// label contains a part of a credential.
func TestMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	s, _, idToken := tokenStack(t, http.NotFound, registry.Register)
	for _, token := range []string{
		"file", idToken, idToken, idToken[:len(idToken)-8] + "AAAAAAAA", "CANARY", "eyJhbGciOiJub25lIn0.e30.",
	} {
		_, _, _ = s.Authenticator.AuthenticateRequest(bearer(token).WithContext(t.Context()))
	}
	const want = `
# HELP kubetenant_authentication_requests_total [ALPHA] Number of authentication requests by source and result. ` +
		`The source is built-in for the server's own authenticators, and none if no source claimed the credential. ` +
		`The result is success, refused, unclaimed, or unavailable if the source could not reach its provider.
# TYPE kubetenant_authentication_requests_total counter
kubetenant_authentication_requests_total{result="refused",source="corp"} 1
kubetenant_authentication_requests_total{result="success",source="corp"} 2
kubetenant_authentication_requests_total{result="success",source="tokens"} 1
kubetenant_authentication_requests_total{result="unavailable",source="partner"} 1
kubetenant_authentication_requests_total{result="unclaimed",source="none"} 1
# HELP kubetenant_authentication_token_cache_requests_total [ALPHA] Number of lookups in the cache of bearer tokens, ` +
		`by result: hit or miss. Tokens that no source claims are not included.
# TYPE kubetenant_authentication_token_cache_requests_total counter
kubetenant_authentication_token_cache_requests_total{result="hit"} 1
kubetenant_authentication_token_cache_requests_total{result="miss"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubetenant_authentication_requests_total",
		"kubetenant_authentication_token_cache_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestNoSourceUsesServerIssuer checks that no source may use the issuer of the server's
// own tokens.
func TestNoSourceUsesServerIssuer(t *testing.T) {
	key := authntest.MustKey("ES256")
	issuer := authntest.NewIssuer(key)
	defer issuer.Close()
	dir := t.TempDir()
	replace(t, dir, map[string]string{
		"tenancy.yaml": fmt.Sprintf(tokensConfig, issuer.URL(), issuer.CA()),
		"revoked.yaml": noRevocations,
		"kubeconfig":   fmt.Sprintf(kubeconfig, "http://127.0.0.1:1"),
		"tokens.csv":   "",
	})
	_, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"), stack.Server{
		Cluster:        lookuptest.OwnedBy(owners(t)),
		Authentication: stack.Authentication{ServiceAccountIssuers: []string{issuer.URL()}},
	})
	if err == nil || !strings.Contains(err.Error(), "the issuer may not be the server's own") {
		t.Errorf("Open() = %v", err)
	}
}

// TestServiceAccountSourceUsesServerIssuer checks that a serviceAccount source must use an issuer
// of the server, because the server's own tokens would otherwise bypass the source.
func TestServiceAccountSourceUsesServerIssuer(t *testing.T) {
	dir := t.TempDir()
	if err := authntest.MustKey("ES256").WriteFile(filepath.Join(dir, "sa.pub")); err != nil {
		t.Fatal(err)
	}
	replace(t, dir, map[string]string{
		"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
			"authentication: { sources: [ { name: cluster, serviceAccount: { issuer: https://cluster, keyFiles: " +
			"[sa.pub] } } ] }\n",
	})
	for name, c := range map[string]struct {
		issuers []string
		want    string
	}{
		"a server without a known issuer": {nil, ""},
		"one of the server's issuers":     {[]string{"https://older", "https://cluster"}, ""},
		"another issuer":                  {[]string{"https://cluster.local"}, "must be an issuer of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"), stack.Server{
				Cluster:        lookuptest.OwnedBy(owners(t)),
				Authentication: stack.Authentication{ServiceAccountIssuers: c.issuers},
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open() = %v", err)
			}
		})
	}
}

// TestServiceAccountTenant checks that ServiceAccountTenant returns the owner of a namespace, and
// an error for a missing namespace.
func TestServiceAccountTenant(t *testing.T) {
	s, _, _ := tokenStack(t, http.NotFound, nil)
	if id, err := s.ServiceAccountTenant(t.Context(), "a--web"); err != nil || id.String() != "a" {
		t.Errorf("ServiceAccountTenant() = %v, %v", id, err)
	}
	if id, err := s.ServiceAccountTenant(t.Context(), "missing"); err == nil || id != (tenant.ID{}) {
		t.Errorf("ServiceAccountTenant() of a missing namespace = %v, %v", id, err)
	}
}
