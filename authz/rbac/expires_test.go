// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant"
)

var expiry = time.Date(2030, 1, 31, 18, 0, 0, 0, time.UTC)

// expiringIndex returns an index whose bindings of the role reader expire at the given time. The
// role is bound to alice in a--web and to root in the whole cluster.
func expiringIndex(t *testing.T, until string) *rbac.Index {
	t.Helper()
	x := rbac.NewIndex()
	x.Set(role("reader", "get"))
	clusterBinding := binding("everywhere", "reader", "root")
	clusterBinding.Annotations = map[string]string{tenant.ExpiresAnnotation: until}
	x.Set(clusterBinding)
	x.Set(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a--web", Name: "here", Annotations: clusterBinding.Annotations},
		RoleRef:    clusterBinding.RoleRef,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}},
	})
	return x
}

// TestBindingsExpire checks that a binding applies until it expires, in decisions and in lists of
// rules. A binding with an invalid time never applies.
func TestBindingsExpire(t *testing.T) {
	for until, wantAfter := range map[string]map[time.Duration]bool{
		expiry.Format(time.RFC3339): {
			-time.Hour:       true,
			-time.Nanosecond: true,
			0:                false,
			time.Nanosecond:  false,
			time.Hour:        false,
		},
		"2030-01-31T20:00:00+02:00":   {-time.Nanosecond: true, 0: false},
		"2030-01-31T18:00:00.000001Z": {time.Microsecond - 1: true, time.Microsecond: false},
		"":                            {-time.Hour: false},
		"never":                       {-time.Hour: false},
		"2030-02-31T18:00:00Z":        {-time.Hour: false},
		"0001-01-01T00:00:00Z":        {-time.Hour: false},
	} {
		t.Run(until, func(t *testing.T) {
			x := expiringIndex(t, until)
			for after, want := range wantAfter {
				e := rbac.New(x, rbac.Options{Now: func() time.Time { return expiry.Add(after) }})
				for _, name := range []string{"alice", "root"} {
					if got := allows(t, e, podRequest(name, "get", "a--web")); got != want {
						t.Errorf("until %q, %v after %v: %s: %t", until, after, expiry, name, got)
					}
					rules, _, _, err := e.RulesFor(t.Context(), &user.DefaultInfo{Name: name}, "a--web")
					if (len(rules) > 0) != want || err != nil {
						t.Errorf("until %q, %v after %v: %s has the rules %v, %v", until, after, expiry, name, rules, err)
					}
				}
			}
		})
	}
}

// TestExpiredBindingsAreDenied checks that DenyLimited denies a request that only an expired
// binding would allow. If a binding that is limited to another tenant also matches the request,
// the reason is ReasonLimited.
func TestExpiredBindingsAreDenied(t *testing.T) {
	x := expiringIndex(t, expiry.Format(time.RFC3339))
	now := expiry
	e := rbac.New(x, rbac.Options{
		DenyLimited: true,
		Now:         func() time.Time { return now },
		Owner:       func(context.Context, authorizer.Attributes) (tenant.ID, error) { return tenant.Parse("a") },
	})
	expect := func(what string, want authorizer.Decision, wantReason string) {
		t.Helper()
		d, reason, err := e.Authorize(t.Context(), podRequest("alice", "get", "a--web"))
		if d != want || err != nil || want == authorizer.DecisionDeny && reason != wantReason {
			t.Errorf("%s: %v %q %v; want %v", what, d, reason, err, want)
		}
	}
	expect("expired", authorizer.DecisionDeny, rbac.ReasonExpired)
	elsewhere := binding("elsewhere", "reader", "alice")
	elsewhere.Annotations = map[string]string{tenant.ScopeAnnotation: "b"}
	x.Set(elsewhere)
	expect("expired, and a binding limited to another tenant", authorizer.DecisionDeny, rbac.ReasonLimited)
	now = expiry.Add(-time.Second)
	expect("not expired", authorizer.DecisionAllow, "")
	now = expiry
	x.Set(binding("for-good", "reader", "alice"))
	expect("expired, and a binding that does not expire", authorizer.DecisionAllow, "")
}
