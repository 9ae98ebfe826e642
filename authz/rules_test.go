// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
)

// fixedRules is a delegate that returns the same rules for every namespace.
type fixedRules struct {
	resources []authorizer.ResourceRuleInfo
	paths     []authorizer.NonResourceRuleInfo
	err       error
}

func (r *fixedRules) RulesFor(
	context.Context, user.Info, string,
) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return r.resources, r.paths, false, r.err
}

func rule(verbs, groups, resources string, names ...string) authorizer.ResourceRuleInfo {
	split := func(s string) []string { return strings.Split(s, ",") }
	return &authorizer.DefaultResourceRuleInfo{
		Verbs:         split(verbs),
		APIGroups:     split(groups),
		Resources:     split(resources),
		ResourceNames: names,
	}
}

// listRules returns the rules for u in the form "verbs group/resources names", the paths, and
// whether the list is incomplete.
func listRules(t *testing.T, r *fixedRules, u user.Info, namespace string) ([]string, []string, bool) {
	t.Helper()
	resources, paths, incomplete, err := authz.New(options(namespaceLabels), nil, r).RulesFor(t.Context(), u, namespace)
	if incomplete != (err != nil) || r.err != nil && !errors.Is(err, r.err) {
		t.Fatalf("incomplete %t, error %v", incomplete, err)
	}
	var texts, urls []string
	for _, rule := range resources {
		texts = append(texts, strings.Join(rule.GetVerbs(), ",")+" "+strings.Join(rule.GetAPIGroups(), ",")+"/"+
			strings.Join(rule.GetResources(), ",")+
			" "+strings.Join(rule.GetResourceNames(), ","))
	}
	for _, rule := range paths {
		urls = append(urls, strings.Join(rule.GetNonResourceURLs(), ","))
	}
	return texts, urls, incomplete
}

func TestRulesAreLimitedToTenant(t *testing.T) {
	r := &fixedRules{
		resources: []authorizer.ResourceRuleInfo{
			rule("get,list", "", "pods,pods/log"),
			rule("*", "apps", "deployments"),
			rule("*", "*", "*"),
			rule("get", "", "*"),
			rule("get,delete", "", "nodes,namespaces"),
			rule("get", "", "secrets", "one"),
			rule("get,create", "storage.k8s.io", "storageclasses"),
			rule("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
			rule("impersonate", "", "serviceaccounts"),
			rule("get", "example.com", "widgets"),
			rule("use", "", "pods/*"),
		},
		paths: []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{
			Verbs:           []string{"get"},
			NonResourceURLs: []string{"/healthz", "/api", "/api/*", "/apis/*", "*", "/metrics", "/api*"},
		}},
	}
	got, paths, incomplete := listRules(t, r, callerOf("a"), "a--web")
	want := []string{
		"get,list /pods ", "get,list /pods/log ",
		"get,list,watch,create,update,patch,delete,deletecollection apps/deployments ",
		"get /secrets one",
		"get storage.k8s.io/storageclasses ",
		"create authorization.k8s.io/selfsubjectaccessreviews ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/healthz,/api,/api/*,/apis/*"}, paths); diff != "" {
		t.Error(diff)
	}
	if !incomplete {
		t.Error("rules were omitted, but the list is not incomplete")
	}
	if _, _, incomplete := listRules(t, &fixedRules{resources: r.resources[:1]}, callerOf("a"), "a--web"); incomplete {
		t.Error("no rules were omitted, but the list is incomplete")
	}
}

func TestRulesOfOthersAreNotListed(t *testing.T) {
	r := &fixedRules{resources: []authorizer.ResourceRuleInfo{rule("get", "", "pods")}}
	for _, namespace := range []string{"b--web", "kube-system", "bad", "missing", ""} {
		if got, paths, incomplete := listRules(t, r, callerOf("a"), namespace); len(got)+len(paths) > 0 || !incomplete {
			t.Errorf("rules of a in %q: %v, %v, incomplete %v; want none", namespace, got, paths, incomplete)
		}
	}
	if got, _, incomplete := listRules(t, r, &user.DefaultInfo{Name: "nobody"}, "a--web"); len(got) > 0 || !incomplete {
		t.Errorf("rules of a caller without a tenant: %v", got)
	}
	if got, _, incomplete := listRules(t, r, callerOf("system"), "b--web"); len(got) != 1 || incomplete {
		t.Errorf("rules of the system tenant: %v, incomplete %v; want the delegate's rules", got, incomplete)
	}
	if _, _, _, err := authz.New(options(namespaceLabels), nil, r).RulesFor(
		t.Context(), callerOf("a"), "away",
	); err == nil || strings.Contains(err.Error(), errUnavailable.Error()) {
		t.Errorf("rules after a failed lookup: %v; want only a reason", err)
	}
}
