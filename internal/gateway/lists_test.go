// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestConcurrentViewListsAreLimited checks how many lists the views of one tenant, and of all
// tenants, read at the same time.
func TestConcurrentViewListsAreLimited(t *testing.T) {
	t.Parallel()
	k := &cluster{}
	var left []func()
	acquire := func(id tenant.ID) int {
		leave, refused := k.acquireList(id)
		if refused != nil {
			return int(refused.ErrStatus.Code)
		}
		left = append(left, leave)
		return http.StatusOK
	}
	last := tenanttest.ID(t, "last")
	if code := acquire(last); code != http.StatusOK {
		t.Fatal(code)
	}
	for i := range maxViewLists {
		want := http.StatusOK
		if i == maxViewLists-1 {
			want = http.StatusServiceUnavailable
		}
		if code := acquire(tenanttest.ID(t, fmt.Sprint("t", i/maxViewListsPerTenant))); code != want {
			t.Errorf("list %d: %d, want %d", i+1, code, want)
		}
	}
	if code := acquire(tenanttest.ID(t, "t0")); code != http.StatusTooManyRequests {
		t.Errorf("a fifth list of a tenant: %d", code)
	}
	for range 2 {
		left[0]()
	}
	if code := acquire(last); code != http.StatusOK {
		t.Errorf("after a list has ended: %d", code)
	}
	if code := acquire(last); code != http.StatusServiceUnavailable {
		t.Errorf("after a list has ended, two more: %d", code)
	}
}
