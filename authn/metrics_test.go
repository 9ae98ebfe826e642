// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"
	metricstestutil "k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/authn"
)

// TestRequestsAreCounted checks that requests are counted by source and result, and tokens by cache
// hit or miss.
func TestRequestsAreCounted(t *testing.T) {
	counts := authn.NewMetrics()
	registry := metrics.NewKubeRegistry()
	for _, m := range counts.Registerables() {
		if err := registry.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	chain := authn.New(authn.Chain{
		Metrics: counts,
		BuiltIn: identity(&user.DefaultInfo{Name: "u"}),
		Sources: []authn.Source{
			{
				Rules: identityRules(t, "good", "a"),
				Match: authn.Match{Issuers: []string{"https://one"}},
				Token: &fake{user: alice()},
			},
			{
				Rules: identityRules(t, "bad", "a"),
				Match: authn.Match{Issuers: []string{"https://two"}},
				Token: &fake{err: errors.New("no")},
			},
		},
	})
	again := jwt("https://one")
	for _, token := range []string{again, again, jwt("https://two"), jwt("https://three")} {
		_, _, _ = chain.AuthenticateRequest(bearing(t.Context(), token))
	}
	nobody := authn.New(authn.Chain{Metrics: counts})
	_, _, _ = nobody.AuthenticateRequest(bearing(t.Context(), jwt("https://one")))
	want := `
# HELP kubetenant_authentication_requests_total [ALPHA] Number of authentication requests by source and result. ` +
		`The source is built-in for the server's own authenticators, and none if no source claimed the credential. ` +
		`The result is success, refused, unclaimed, or unavailable if the source could not reach its provider.
# TYPE kubetenant_authentication_requests_total counter
kubetenant_authentication_requests_total{result="refused",source="bad"} 1
kubetenant_authentication_requests_total{result="success",source="built-in"} 1
kubetenant_authentication_requests_total{result="success",source="good"} 2
kubetenant_authentication_requests_total{result="unclaimed",source="none"} 1
# HELP kubetenant_authentication_token_cache_requests_total [ALPHA] Number of lookups in the cache of bearer tokens, ` +
		`by result: hit or miss. Tokens that no source claims are not included.
# TYPE kubetenant_authentication_token_cache_requests_total counter
kubetenant_authentication_token_cache_requests_total{result="hit"} 1
kubetenant_authentication_token_cache_requests_total{result="miss"} 2
`
	if err := metricstestutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
