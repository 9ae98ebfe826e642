// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package budget limits the rate of an operation for each of many names. One name cannot use the
// budget of another name.
package budget

import (
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

// maxNames is the maximum number of names with a budget. If there are more names, the budget of
// the least recently used name is dropped. If this name is used again, it gets a new, full
// budget.
const maxNames = 4096

// Budgets contains a token bucket for each name. The zero value is not valid: use [New]. It is
// safe for concurrent use.
type Budgets struct {
	perSecond float32
	burst     int

	mu     sync.Mutex
	byName *lru.Cache // maps a string to its flowcontrol.RateLimiter
}

// New returns budgets that allow each name perSecond operations per second, and bursts of up to
// burst operations.
func New(perSecond float32, burst int) *Budgets {
	return &Budgets{perSecond: perSecond, burst: burst, byName: lru.New(maxNames)}
}

// Limiter returns the budget of a name.
func (b *Budgets) Limiter(name string) flowcontrol.RateLimiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limiter, known := b.byName.Get(name); known {
		return limiter.(flowcontrol.RateLimiter)
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(b.perSecond, b.burst)
	b.byName.Add(name, limiter)
	return limiter
}
