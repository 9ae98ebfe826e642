// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	upstream "k8s.io/kubernetes/pkg/auth/authorizer/abac"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant"
)

// policies loads the same lines into upstream's evaluator and ours. Upstream has no tenants, so the
// lines for our evaluator apply to any tenant and to the namespaces of any tenant.
func policies(tb testing.TB, lines []map[string]any) (upstream.PolicyList, *abac.Policy) {
	tb.Helper()
	var theirs, ours strings.Builder
	for _, spec := range lines {
		versioned := spec["old"] == nil
		for _, out := range []*strings.Builder{&theirs, &ours} {
			fields := map[string]any{}
			for key, value := range spec {
				if key != "old" {
					fields[key] = value
				}
			}
			if out == &ours {
				fields["tenant"], fields["space"] = "*", "*"
			}
			object := fields
			if versioned {
				object = map[string]any{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": fields}
			}
			data, err := json.Marshal(object)
			if err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(out, "%s\n", data)
		}
	}
	path := filepath.Join(tb.TempDir(), "policy.jsonl")
	if err := os.WriteFile(path, []byte(theirs.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	list, err := upstream.NewFromFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	policy, err := abac.Parse([]byte(ours.String()))
	if err != nil {
		tb.Fatalf("%v\n%s", err, &ours)
	}
	return list, policy
}

func randomLine(r *rand.Rand) map[string]any {
	line := map[string]any{}
	maybe := func(key string, of []string) {
		if v := pick(r, of); v != "" {
			line[key] = v
		}
	}
	if r.IntN(2) == 0 {
		maybe("user", []string{"a", "b", "c", "*"})
	} else {
		maybe("group", []string{"g1", "g2", "*"})
	}
	if line["user"] != "*" && line["group"] == nil && r.IntN(3) == 0 {
		maybe("group", []string{"g1", "g2"})
	}
	if r.IntN(2) == 0 {
		line["readonly"] = true
	}
	maybe("resource", []string{"pods", "deployments", "*", ""})
	maybe("namespace", []string{"ns1", "ns2", "*", ""})
	if r.IntN(4) == 0 {
		line["old"] = true
		return line
	}
	maybe("apiGroup", []string{"", "apps", "*"})
	maybe("nonResourcePath", []string{"", "", "*", "/healthz", "/api*"})
	if line["resource"] == nil && line["nonResourcePath"] == nil {
		line["resource"] = "pods" // a line that matches nothing is rejected
	}
	return line
}

// TestABACDecidesLikeUpstream checks that our evaluator decides as upstream's does if the lines
// apply to any tenant. It does not compare impersonation, or requests with neither a resource nor a
// path, because our evaluator never allows these.
func TestABACDecidesLikeUpstream(t *testing.T) {
	id, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
	allowed := 0
	for range 400 {
		var lines []map[string]any
		for range 1 + r.IntN(8) {
			lines = append(lines, randomLine(r))
		}
		theirs, ours := policies(t, lines)
		for range 100 {
			a := randomRequest(r)
			a.User = &user.DefaultInfo{
				Name:   pick(r, []string{"a", "b", "x"}),
				Groups: append(sample(r, []string{"g1", "g2", "g3"}), user.AllAuthenticated),
			}
			want, _, _ := theirs.Authorize(t.Context(), a)
			got := ours.Allows(id, authz.ObjectOwner{ID: id}, a)
			if a.Verb == "impersonate" || a.Resource+a.Path == "" { // upstream allows an empty request, and we do not
				continue
			}
			if got != (want == authorizer.DecisionAllow) {
				t.Fatalf("seed %d: %v: Allows(%+v of %+v) = %t, upstream %v", seed, lines, a, a.User, got, want)
			}
			if got {
				allowed++
			}
		}
	}
	if allowed < 4000 {
		t.Errorf("only %d of 40000 requests are allowed: the random requests match too few lines", allowed)
	}
}

// BenchmarkABAC measures both evaluators with 100,000 lines, each for a different user.
func BenchmarkABAC(b *testing.B) {
	id, err := tenant.Parse("a")
	if err != nil {
		b.Fatal(err)
	}
	var lines []map[string]any
	for i := range 100_000 {
		lines = append(lines, map[string]any{
			"user":      fmt.Sprintf("user-%06d", i),
			"resource":  "pods",
			"namespace": fmt.Sprintf("ns-%05d", i/10),
			"readonly":  true,
		})
	}
	theirs, ours := policies(b, lines)
	for name, a := range map[string]*authorizer.AttributesRecord{
		"allow": get("user-099999", "ns-09999", "team"),
		"deny":  get("somebody", "ns-09999", "team"),
	} {
		b.Run(name+"/upstream", func(b *testing.B) {
			for b.Loop() {
				if d, _, _ := theirs.Authorize(b.Context(), a); (d == authorizer.DecisionAllow) != (name == "allow") {
					b.Fatal(d)
				}
			}
		})
		b.Run(name+"/indexed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ours.Allows(id, authz.ObjectOwner{ID: id}, a) != (name == "allow") {
					b.Fatal(name)
				}
			}
		})
	}
}
