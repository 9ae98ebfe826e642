// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// selfReviewContext returns the context of a SelfSubjectAccessReview.
func selfReviewContext(ctx context.Context) context.Context {
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              "create",
		APIGroup:          "authorization.k8s.io",
		Resource:          "selfsubjectaccessreviews",
	})
}

// TestMissingNamespaces checks that a request in a missing namespace is delegated only if a live
// read has confirmed that the namespace is missing, and only if prefixes are reserved.
func TestMissingNamespaces(t *testing.T) {
	found := func(label string) func(context.Context, string) (*corev1.Namespace, error) {
		return func(_ context.Context, name string) (*corev1.Namespace, error) {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: label}}},
				nil
		}
	}
	missing := func(_ context.Context, name string) (*corev1.Namespace, error) { return nil, notFound(name) }
	for name, c := range map[string]struct {
		live    func(context.Context, string) (*corev1.Namespace, error)
		prefix  bool
		want    authorizer.Decision
		because authz.Reason
	}{
		"missing":                         {missing, true, authorizer.DecisionNoOpinion, authz.ReasonNone},
		"missing, prefixes not reserved":  {missing, false, authorizer.DecisionDeny, authz.ReasonNotOwned},
		"created for another tenant":      {found("b"), true, authorizer.DecisionDeny, authz.ReasonNotOwned},
		"created without an owner":        {found("B b"), true, authorizer.DecisionDeny, authz.ReasonNotOwned},
		"created for the caller's tenant": {found("a"), true, authorizer.DecisionNoOpinion, authz.ReasonNone},
		"failed read": {
			func(context.Context, string) (*corev1.Namespace, error) { return nil, errors.New("away") }, true,
			authorizer.DecisionDeny, authz.ReasonOwnerUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(namespaceLabels)
			o.Owners, o.PrefixesReserved = authz.NewOwners(namespaceCache(namespaceLabels), c.live), c.prefix
			a := authorizer.AttributesRecord{
				User:            callerOf("a"),
				Verb:            "get",
				Resource:        "pods",
				Namespace:       "a--new",
				Name:            "p",
				ResourceRequest: true,
			}
			d, reason, err := authz.New(o, &recorder{decision: authorizer.DecisionNoOpinion}, nil).Authorize(t.Context(), a)
			if d != c.want || c.want == authorizer.DecisionDeny && reason != c.because.String() || err != nil {
				t.Errorf("%v, %q, %v", d, reason, err)
			}
		})
	}
}

// TestFailedLiveReadsRevealNothing checks that a namespace is not reported as missing after failed
// live reads have used up a tenant's budget.
func TestFailedLiveReadsRevealNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		owners := authz.NewOwners(namespaceCache(namespaceLabels), func(context.Context, string) (*corev1.Namespace, error) {
			reads.Add(1)
			return nil, errUnavailable
		})
		a := tenanttest.ID(t, "a")
		for reads.Load() < 30 { // until the burst is used up
			if id, err := owners.OfForTenant(t.Context(), a, "a--new"); !id.IsZero() || err == nil {
				t.Fatal(id, err)
			}
		}
		if _, err := owners.OfForTenant(t.Context(), a, "a--new"); err == nil {
			t.Error("a namespace that could not be read is reported as missing")
		}
	})
}

// TestTooManyMissingNamespaces checks that concurrent requests in too many missing namespaces are
// denied. Sequential requests wait for the budget and are delegated.
func TestTooManyMissingNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(namespaceLabels)
		var reads atomic.Int32
		o.Owners = authz.NewOwners(
			namespaceCache(namespaceLabels),
			func(_ context.Context, name string) (*corev1.Namespace, error) {
				reads.Add(1)
				return nil, notFound(name)
			},
		)
		b := authz.New(o,
			authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionNoOpinion, "", nil
			}), nil)
		isDenied := func(name string) bool {
			a := authorizer.AttributesRecord{
				User:            callerOf("a"),
				Verb:            "get",
				Resource:        "pods",
				Namespace:       "a--" + name,
				Name:            "p",
				ResourceRequest: true,
			}
			d, reason, _ := b.Authorize(t.Context(), a)
			if d == authorizer.DecisionDeny && reason != authz.ReasonNotOwned.String() {
				t.Error(reason)
			}
			return d == authorizer.DecisionDeny
		}
		var denied atomic.Int32
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				if isDenied(itoa(i)) {
					denied.Add(1)
				}
			})
		}
		all.Wait()
		if denied.Load() < 140 || reads.Load() > 60 {
			t.Errorf("%d of 200 concurrent requests denied after %d reads", denied.Load(), reads.Load())
		}
		time.Sleep(10 * time.Second)
		for i := range 100 {
			if isDenied("later-" + itoa(i)) {
				t.Fatalf("sequential request %d is denied", i)
			}
		}
	})
}

// TestSelfReviewsOfAnyObject checks the reviews of kubectl auth can-i about any object in all
// namespaces. These reviews have a verb for one object and no name, which no real request has.
func TestSelfReviewsOfAnyObject(t *testing.T) {
	for name, c := range map[string]struct {
		a      authorizer.AttributesRecord
		self   bool // delegated in a SelfSubjectAccessReview
		others bool // delegated otherwise
	}{
		"get":            {authorizer.AttributesRecord{Verb: "get", Resource: "pods"}, true, false},
		"create":         {authorizer.AttributesRecord{Verb: "create", Resource: "pods"}, true, false},
		"a subresource":  {authorizer.AttributesRecord{Verb: "create", Resource: "pods", Subresource: "exec"}, true, false},
		"list":           {authorizer.AttributesRecord{Verb: "list", Resource: "namespaces"}, true, false},
		"a name":         {authorizer.AttributesRecord{Verb: "get", Resource: "pods", Name: "p"}, false, false},
		"cluster-scoped": {authorizer.AttributesRecord{Verb: "get", Resource: "nodes"}, false, false},
		"unknown": {
			authorizer.AttributesRecord{Verb: "get", APIGroup: "example.com", Resource: "things"}, false, false,
		},
		"a wildcard": {authorizer.AttributesRecord{Verb: "*", Resource: "pods"}, false, false},
		// This verb is denied in a namespace too.
		"finalize": {authorizer.AttributesRecord{Verb: "finalize", Resource: "pods"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.a.User, c.a.ResourceRequest = callerOf("a"), true
			b := authz.New(options(namespaceLabels), &recorder{decision: authorizer.DecisionNoOpinion}, nil)
			for ctx, want := range map[context.Context]bool{selfReviewContext(t.Context()): c.self, t.Context(): c.others} {
				if d, reason, _ := b.Authorize(ctx, c.a); (d != authorizer.DecisionDeny) != want {
					t.Errorf("%v, %q", d, reason)
				}
			}
		})
	}
}

// TestRulesReviewsBypassBoundary checks that a SelfSubjectRulesReview is denied with
// [authz.ReasonRules] if the server answers it without the boundary.
func TestRulesReviewsBypassBoundary(t *testing.T) {
	a := authorizer.AttributesRecord{
		User:            callerOf("a"),
		Verb:            "create",
		APIGroup:        "authorization.k8s.io",
		Resource:        "selfsubjectrulesreviews",
		ResourceRequest: true,
	}
	for elsewhere, want := range map[bool]authorizer.Decision{
		true:  authorizer.DecisionDeny,
		false: authorizer.DecisionNoOpinion,
	} {
		o := options(namespaceLabels)
		o.RulesReviewsBypassBoundary = elsewhere
		d, reason, err := authz.New(o, &recorder{decision: authorizer.DecisionNoOpinion}, nil).Authorize(t.Context(), a)
		if d != want || elsewhere && reason != authz.ReasonRules.String() || err != nil {
			t.Errorf("bypass %t: %v, %q, %v", elsewhere, d, reason, err)
		}
	}
}

// TestReviewsHaveNamespaceOfRequest checks that the delegate gets the namespace that the reviewed
// request would have, or no namespace. For a caller of the system tenant, the delegate gets the
// attributes unchanged.
func TestReviewsHaveNamespaceOfRequest(t *testing.T) {
	for name, c := range map[string]struct {
		a    authorizer.AttributesRecord
		want string
	}{
		"StorageClass": {
			authorizer.AttributesRecord{
				Verb:      "get",
				APIGroup:  "storage.k8s.io",
				Resource:  "storageclasses",
				Namespace: "a--web",
			},
			"",
		},
		"Namespace with another namespace": {
			authorizer.AttributesRecord{
				Verb:      "get",
				Resource:  "namespaces",
				Namespace: "default",
				Name:      "a--web",
			},
			"a--web",
		},
		"new Namespace": {authorizer.AttributesRecord{Verb: "create", Resource: "namespaces", Namespace: "b--web"}, ""},
		"impersonated user": {
			authorizer.AttributesRecord{
				Verb:      "impersonate",
				Resource:  "users",
				Namespace: "b--web",
				Name:      "carol",
			},
			"",
		},
		"pod": {
			authorizer.AttributesRecord{
				Verb:      "get",
				Resource:  "pods",
				Namespace: "a--web",
				Name:      "p",
			},
			"a--web",
		},
		"constrained impersonation on a custom resource": {
			authorizer.AttributesRecord{
				Verb:      "impersonate-on:user-info:get",
				APIGroup:  "example.com",
				Resource:  "users",
				Namespace: "a--web",
				Name:      "p",
			},
			"a--web",
		},
		"custom resource named users": {
			authorizer.AttributesRecord{
				Verb:      "get",
				APIGroup:  "example.com",
				Resource:  "users",
				Namespace: "a--web",
				Name:      "p",
			},
			"a--web",
		},
		"no name": {authorizer.AttributesRecord{Verb: "get", Resource: "namespaces", Namespace: "a--web"}, "a--web"},
		"Namespace with its own namespace": {
			authorizer.AttributesRecord{
				Verb:      "delete",
				Resource:  "namespaces",
				Namespace: "a--web",
				Name:      "a--web",
			},
			"a--web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.a.ResourceRequest = true
			for _, u := range []user.Info{callerOf("a"), callerOf("system")} {
				c.a.User = u
				r := &recorder{decision: authorizer.DecisionNoOpinion}
				d, reason, _ := authz.New(options(namespaceLabels), r, nil).Authorize(t.Context(), c.a)
				if d == authorizer.DecisionDeny {
					t.Errorf("%q", reason)
					continue
				}
				want := c.want
				if id, _ := tenant.Of(u); id.IsSystem() {
					want = c.a.Namespace
				}
				if r.reached.GetNamespace() != want {
					t.Errorf("the delegate gets namespace %q", r.reached.GetNamespace())
				}
			}
		})
	}
}

// TestTenantGroupIsAdded checks that the boundary adds a reviewed or impersonated user to the group
// of its tenant.
func TestTenantGroupIsAdded(t *testing.T) {
	account := &user.DefaultInfo{
		Name:   "system:serviceaccount:a--web:default",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a--web"},
	}
	full := &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{"tenant:a", "dev"},
		Extra:  map[string][]string{tenant.ExtraKey: {"a"}},
	}
	for name, c := range map[string]struct {
		u    user.Info
		want []string
	}{
		"service account":  {account, []string{"system:serviceaccounts", "system:serviceaccounts:a--web", "tenant:a"}},
		"excluded account": {account, account.Groups}, // if the server does not add accounts to the group
		"user outside the group": {
			&user.DefaultInfo{Name: "bob", Groups: []string{"tenant:", "x"}, Extra: map[string][]string{tenant.ExtraKey: {"a"}}},
			[]string{"tenant:", "x", "tenant:a"},
		},
		"user in the group": {full, []string{"tenant:a", "dev"}},
		"system caller":     {&user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{"x"}}, []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{decision: authorizer.DecisionNoOpinion}
			a := authorizer.AttributesRecord{
				User:            c.u,
				Verb:            "get",
				Resource:        "pods",
				Namespace:       "a--web",
				Name:            "p",
				ResourceRequest: true,
			}
			before := slices.Clone(c.u.GetGroups())
			o := options(namespaceLabels)
			o.ServiceAccountsInTenantGroup = name != "excluded account"
			if d, reason, _ := authz.New(o, r, nil).Authorize(t.Context(), a); d == authorizer.DecisionDeny {
				t.Errorf("%q", reason)
			} else if !slices.Equal(r.reached.GetUser().GetGroups(), c.want) || !slices.Equal(c.u.GetGroups(), before) {
				t.Errorf("groups %q for the delegate, groups %q of the caller", r.reached.GetUser().GetGroups(), c.u.GetGroups())
			}
		})
	}
	got, status := serve(t, callerOf("a"), &user.DefaultInfo{Name: "bob", Groups: []string{"dev"}},
		"/api/v1/namespaces/a--web/pods/p")
	if status != http.StatusOK || !slices.Equal(got.user.GetGroups(), []string{"dev", "tenant:a"}) {
		t.Errorf("impersonated: %d, %+v", status, got)
	}
}
