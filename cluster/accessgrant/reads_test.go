// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestConcurrentUsesShareReads checks that 900 goroutines that use one grant share a few reads. No
// use gets the result of a read that began before the use. The reads for one tenant do not delay
// the reads for another.
func TestConcurrentUsesShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version, began atomic.Int64
		r := newReads(func(_ context.Context, of cache.ObjectName) (*accessgrant.Grant, error) {
			began.Add(1)
			found := &accessgrant.Grant{Namespace: of.Namespace, Name: fmt.Sprint(version.Load())}
			time.Sleep(5 * time.Millisecond)
			return found, nil
		})
		var wg sync.WaitGroup
		ask := func(by tenant.ID, name string) {
			asked := version.Load()
			g, err := r.readLive(t.Context(), by, "n", name)
			if err != nil {
				t.Errorf("%s: %v", by, err)
				return
			}
			var read int64
			if _, err := fmt.Sscan(g.Name, &read); err != nil || read < asked {
				t.Errorf("got version %d, but the grant was at version %d before the call", read, asked)
			}
		}
		acme, globex := tenanttest.ID(t, "acme"), tenanttest.ID(t, "globex")
		for range 900 {
			wg.Go(func() {
				for range 20 {
					ask(acme, "flooded")
				}
			})
		}
		wg.Go(func() { // the grant changes continuously
			for range 500 {
				time.Sleep(time.Millisecond)
				version.Add(1)
			}
		})
		wg.Go(func() {
			for i := range 50 {
				start := time.Now()
				ask(globex, fmt.Sprint("of globex ", i))
				if took := time.Since(start); took > 10*time.Millisecond {
					t.Errorf("another tenant waited %v", took)
				}
			}
		})
		wg.Wait()
		if n := began.Load(); n > 200 {
			t.Errorf("%d reads for 18,000 uses", n)
		}
		if len(r.last)+len(r.waiting) != 0 {
			t.Errorf("%d and %d reads remain", len(r.last), len(r.waiting))
		}
	})
}

// TestReadsAreLimitedPerTenant checks that reads fail for a tenant that exceeds its rate limit.
// Reads for other tenants succeed.
func TestReadsAreLimitedPerTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReads(func(context.Context, cache.ObjectName) (*accessgrant.Grant, error) {
			return &accessgrant.Grant{}, nil
		})
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 1000 {
			wg.Go(func() {
				if _, err := r.readLive(t.Context(), tenanttest.ID(t, "acme"), "n", fmt.Sprint(i)); err != nil {
					refused.Add(1)
				}
			})
		}
		wg.Go(func() {
			if _, err := r.readLive(t.Context(), tenanttest.ID(t, "globex"), "n", "other"); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := refused.Load(); n < 700 || n > 900 {
			t.Errorf("%d of 1000 reads fail", n)
		}
	})
}

// TestGrantOfCopiesUsers checks that grantOf does not append service accounts to the slice of users
// in the informer's object.
func TestGrantOfCopiesUsers(t *testing.T) {
	names := []string{"alice", "bob"}
	g, err := grantOf(&v1alpha1.AccessGrant{Spec: v1alpha1.AccessGrantSpec{
		From: v1alpha1.AccessGrantFrom{
			Tenant:          "a",
			Users:           names[:1],
			ServiceAccounts: []v1alpha1.ServiceAccountName{{Namespace: "a--ci", Name: "robot"}},
		},
		To:      []v1alpha1.AccessGrantRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
		Grantor: &v1alpha1.AccessGrantor{Owner: "b", Tenant: "b", User: "peter"},
	}})
	if err != nil || g == nil || len(g.Users) != 2 {
		t.Fatal(g, err)
	}
	if names[1] != "bob" {
		t.Errorf("the object now has the users %q", names)
	}
}
