// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package budget bounds how often something is done for each of many, so that none
// uses up another's share.
package budget

import (
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

// remembered bounds for how many names a budget is kept; the longest unused begins anew.
const remembered = 4096

// Budgets are token buckets by name. The zero value is not usable; see [New].
// Safe for concurrent use.
type Budgets struct {
	perSecond float32
	burst     int

	mu     sync.Mutex
	byName *lru.Cache // of a string to flowcontrol.RateLimiter
}

// New returns budgets of so many a second each, and of a burst.
func New(perSecond float32, burst int) *Budgets {
	return &Budgets{perSecond: perSecond, burst: burst, byName: lru.New(remembered)}
}

// Of returns the budget of a name.
func (b *Budgets) Of(name string) flowcontrol.RateLimiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limiter, known := b.byName.Get(name); known {
		return limiter.(flowcontrol.RateLimiter)
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(b.perSecond, b.burst)
	b.byName.Add(name, limiter)
	return limiter
}
