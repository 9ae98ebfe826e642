// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// Bytes limits the rate in bytes at which each of many names writes. A caller checks a budget
// before a write, and charges it afterwards with the written bytes. Bytes is safe for concurrent
// use.
type Bytes struct {
	perSecond, burst float64

	mu     sync.Mutex
	byName *lru.Cache // from string to *account
}

// account is the state of one budget. Its number of bytes may be negative.
type account struct {
	left float64
	at   time.Time
}

// NewBytes returns budgets with perSecond bytes a second and a burst for each name.
func NewBytes(perSecond, burst int64) *Bytes {
	return &Bytes{
		perSecond: float64(perSecond),
		burst:     float64(burst),
		byName:    lru.New(maxNames),
	}
}

// HasBytes reports whether a name has any bytes left.
func (b *Bytes) HasBytes(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.account(name).left > 0
}

// Charge charges a name with bytes, even if it has fewer bytes left.
func (b *Bytes) Charge(name string, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.account(name).left -= float64(bytes)
}

// account returns the current account of a name. The caller MUST hold b.mu.
func (b *Bytes) account(name string) *account {
	now := time.Now()
	known, found := b.byName.Get(name)
	if !found {
		a := &account{left: b.burst, at: now}
		b.byName.Add(name, a)
		return a
	}
	a := known.(*account)
	a.left = min(b.burst, a.left+b.perSecond*now.Sub(a.at).Seconds())
	a.at = now
	return a
}
