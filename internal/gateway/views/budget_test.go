// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestTenantsShareTheBudget checks that one tenant cannot use up the whole budget. It also checks
// the errors if a response, a tenant or all tenants exceed their limits, and the responses to these
// errors.
func TestTenantsShareTheBudget(t *testing.T) {
	b := NewBudget(100, 40)
	var all []*memoryReservation
	hold := func(tenant string, bytes int) error {
		h := b.reserve(tenant)
		all = append(all, h)
		return h.add(bytes)
	}
	for _, c := range []struct {
		name, tenant string
		bytes        int
		want         error
	}{
		{"the limit of one tenant", "acme", 40, nil},
		{"one more byte of the same tenant", "acme", 1, errTenantLimit},
		{"the limit of another tenant", "globex", 40, nil},
		{"more than the limit of one tenant", "initech", 41, errTooLarge},
		{"the limit of all tenants", "umbrella", 1, errTotalLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := hold(c.tenant, c.bytes); !errors.Is(err, c.want) {
				t.Errorf("%s reserves %d: %v, want %v", c.tenant, c.bytes, err, c.want)
			}
		})
	}
	for _, h := range all {
		h.release()
	}
	if err := hold("acme", 40); err != nil {
		t.Error("after all were released:", err)
	}
	for err, code := range map[error]int32{
		errTenantLimit: http.StatusTooManyRequests,
		errTotalLimit:  http.StatusServiceUnavailable,
	} {
		refused := budgetError(err)
		if refused.ErrStatus.Code != code || refused.ErrStatus.Details.RetryAfterSeconds != 1 {
			t.Errorf("%v: %+v", err, refused.ErrStatus)
		}
	}
	if budgetError(errTooLarge) != nil {
		t.Error("budgetError handles errTooLarge, but retries cannot succeed")
	}
}

// TestReadObjectsUseTheBudget checks that the bytes of an object use the budget when they are read.
func TestReadObjectsUseTheBudget(t *testing.T) {
	b := NewBudget(1000, 40)
	for size, want := range map[int]error{40: nil, 41: errTooLarge} {
		held := b.reserve("acme")
		_, err := io.ReadAll(&limitedReader{
			Reader:      strings.NewReader(strings.Repeat("x", size)),
			remaining:   objectBytes,
			reservation: held,
		})
		if !errors.Is(err, want) || b.byTenant["acme"] != int64(size) {
			t.Errorf("%d bytes: %v, %d are held", size, err, b.byTenant["acme"])
		}
		held.release()
	}
}
