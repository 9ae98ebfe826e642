// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// Bytes limits the number of bytes that each name writes per second. A caller checks the budget
// of a name with HasBytes before a write, and charges the written bytes afterwards. The zero
// value is not valid: use [NewBytes]. It is safe for concurrent use.
type Bytes struct {
	perSecond, burst float64

	mu     sync.Mutex
	byName *lru.Cache // maps a string to its *account
}

// account is the state of one budget at a point in time. The number of bytes left may be
// negative.
type account struct {
	left float64
	at   time.Time
}

// NewBytes returns budgets that allow each name perSecond bytes per second, and bursts of up to
// burst bytes.
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

// Charge subtracts bytes from the budget of a name, even if fewer bytes are left.
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
