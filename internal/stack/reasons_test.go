// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"
)

// TestReasonsMatchUpstream checks requests that no authorizer allows. The reason and the error must
// be the same as those of the upstream server, which has all authorizers in one union.
func TestReasonsMatchUpstream(t *testing.T) {
	says := func(d authorizer.Decision, reason string, err error) authorizer.Authorizer {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return d, reason, err
		})
	}
	named := func(name string, a authorizer.Authorizer) union.NamedAuthorizer {
		return union.NamedAuthorizer{AuthorizerName: name, Authorizer: a}
	}
	decisions := []authorizer.Decision{authorizer.DecisionNoOpinion, authorizer.DecisionAllow, authorizer.DecisionDeny}
	for _, nodes := range decisions {
		for _, rbacs := range decisions {
			for _, reasons := range [][2]string{
				{"", ""}, {"no relationship", ""}, {"", "RBAC: not found"}, {"no relationship", "RBAC: not found"},
			} {
				for _, err := range []error{nil, errors.New("away")} {
					node, rbac := says(nodes, reasons[0], nil), says(rbacs, reasons[1], err)
					if nodes == authorizer.DecisionDeny { // upstream's node authorizer never denies
						continue
					}
					upstream, problem := union.New(named("node", node), named("rbac", rbac))
					if problem != nil {
						t.Fatal(problem)
					}
					server, problem := union.New(named("node", node))
					if problem != nil {
						t.Fatal(problem)
					}
					chain := &delegates{}
					chain.add("rbac", rbac, nil)
					chain.add(serverDelegate, server, nil)
					ours, problem := chain.delegate()
					if problem != nil {
						t.Fatal(problem)
					}
					d, reason, got := upstream.Authorize(t.Context(), authorizer.AttributesRecord{})
					d2, reason2, got2 := ours.Authorize(t.Context(), authorizer.AttributesRecord{})
					if rbacs == authorizer.DecisionDeny { // only a limited binding causes this, and it ends the chain
						if d2 != rbacs {
							t.Errorf("%v, but RBAC denies", d2)
						}
						continue
					}
					if d == authorizer.DecisionAllow && d2 == d {
						continue // either authorizer may allow the request
					}
					if d != d2 || reason != reason2 || (got == nil) != (got2 == nil) || got != nil && got.Error() != got2.Error() {
						t.Errorf("%v %q %v; upstream returns %v %q %v", d2, reason2, got2, d, reason, got)
					}
				}
			}
		}
	}
}
