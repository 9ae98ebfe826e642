// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	errTenantLimit = errors.New("the tenant reads too many large objects of views at the same time")
	errTotalLimit  = errors.New("callers read too many large objects of views at the same time")
)

// Budget limits the bytes of objects that are held in memory at the same time, for all responses
// and for the responses to each tenant. It is safe for concurrent use.
type Budget struct {
	maxTotal, maxPerTenant int64

	mu       sync.Mutex
	used     int64
	byTenant map[string]int64
}

// NewBudget returns a budget with limits in bytes, in total (all) and for each tenant (each).
func NewBudget(all, each int64) *Budget {
	return &Budget{maxTotal: all, maxPerTenant: each, byTenant: map[string]int64{}}
}

func (b *Budget) reserve(tenant string) *memoryReservation {
	return &memoryReservation{budget: b, tenant: tenant}
}

// memoryReservation is the number of bytes that one response to a tenant holds.
type memoryReservation struct {
	budget *Budget
	tenant string
	bytes  int64
}

// add reserves n bytes until release is called. The bytes are reserved even if add returns an
// error.
func (h *memoryReservation) add(n int) error {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.bytes += int64(n)
	b.used += int64(n)
	b.byTenant[h.tenant] += int64(n)
	switch {
	case h.bytes > b.maxPerTenant:
		return errTooLarge
	case b.byTenant[h.tenant] > b.maxPerTenant:
		return errTenantLimit
	case b.used > b.maxTotal:
		return errTotalLimit
	}
	return nil
}

func (h *memoryReservation) release() {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= h.bytes
	if b.byTenant[h.tenant] -= h.bytes; b.byTenant[h.tenant] == 0 {
		delete(b.byTenant, h.tenant)
	}
	h.bytes = 0
}

// budgetError returns the response to an error from a budget. It returns nil for other errors.
func budgetError(err error) *apierrors.StatusError {
	switch {
	case errors.Is(err, errTenantLimit):
		return apierrors.NewTooManyRequests(errTenantLimit.Error(), 1)
	case errors.Is(err, errTotalLimit):
		out := apierrors.NewServiceUnavailable(errTotalLimit.Error())
		out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return out
	}
	return nil
}
