// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tokencache caches authentication results for tokens without storing the tokens.
package tokencache

import (
	"container/heap"
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"
	"unsafe"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Key identifies a token and its audiences. It is a keyed hash (HMAC-SHA-256), whose secret
// exists only in the cache. Without the secret, a reader of a Key cannot test a guessed token,
// and a client cannot produce a collision.
type Key [sha256.Size]byte

// Cache caches values by [Key]. Each value has its own expiry time. The number and the total
// size of the values are limited. Create a Cache with [New]. It is safe for concurrent use.
type Cache[V any] struct {
	hashes sync.Pool
	limits Limits
	now    func() time.Time

	mu       sync.Mutex
	entries  map[Key]*entry[V]
	used     list.List // the elements are *entry[V], the most recently used first
	byExpiry expiryHeap[V]
	bytes    int
}

// Limits are the limits of a cache. If a limit is reached, the least recently used entries are
// removed.
type Limits struct {
	Entries int
	// Bytes is the maximum total size of all values, as passed to Set.
	Bytes int
}

type entry[V any] struct {
	key       Key
	value     V
	size      int
	until     time.Time
	used      *list.Element
	heapIndex int // its index in byExpiry
}

// overhead is the approximate size of an entry without its value in bytes.
const overhead = 256

// New returns an empty cache with the given limits and clock.
func New[V any](limits Limits, now func() time.Time) *Cache[V] {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails (crypto/rand, Go 1.24)
	return &Cache[V]{
		hashes:  sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }},
		limits:  limits,
		now:     now,
		entries: map[Key]*entry[V]{},
	}
}

// SizeOf returns the approximate size of an identity in bytes.
func SizeOf(u user.Info) int {
	const header = 16 // the header of a string
	size := len(u.GetName()) + len(u.GetUID())
	for _, group := range u.GetGroups() {
		size += header + len(group)
	}
	for key, values := range u.GetExtra() {
		size += 4*header + len(key)
		for _, value := range values {
			size += header + len(value)
		}
	}
	return size
}

// Key returns the key of a token for an ordered list of audiences. The hash includes the length of
// each string, so that different inputs never have the same key.
func (c *Cache[V]) Key(token string, audiences []string) Key {
	h := c.hashes.Get().(hash.Hash)
	h.Reset()
	var length [8]byte
	write := func(s string) {
		binary.BigEndian.PutUint64(length[:], uint64(len(s)))
		_, _ = h.Write(length[:])
		_, _ = h.Write(unsafe.Slice(unsafe.StringData(s), len(s))) // #nosec G103 -- read only, and no longer than the call
	}
	write(token)
	for _, audience := range audiences {
		write(audience)
	}
	var key Key
	h.Sum(key[:0])
	c.hashes.Put(h)
	return key
}

// Get returns the value that is cached for key, if it has not expired.
func (c *Cache[V]) Get(key Key) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, found := c.entries[key]; found && c.now().Before(e.until) {
		c.used.MoveToFront(e.used)
		return e.value, true
	}
	var none V
	return none, false
}

// Set caches a value for key until the given time, and replaces an earlier value. size is the
// size of the value in bytes. Set removes expired entries, and then the least recently used
// entries until there is room. A value that is larger than the whole cache is not cached.
func (c *Cache[V]) Set(key Key, value V, size int, until time.Time) {
	size += overhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, found := c.entries[key]; found {
		c.remove(old)
	}
	now := c.now()
	for len(c.byExpiry) > 0 && !now.Before(c.byExpiry[0].until) {
		c.remove(c.byExpiry[0])
	}
	if !now.Before(until) || size > c.limits.Bytes {
		return
	}
	for len(c.entries) >= c.limits.Entries || c.bytes+size > c.limits.Bytes {
		c.remove(c.used.Back().Value.(*entry[V]))
	}
	e := &entry[V]{
		key:   key,
		value: value,
		size:  size,
		until: until,
	}
	e.used = c.used.PushFront(e)
	heap.Push(&c.byExpiry, e)
	c.entries[key] = e
	c.bytes += size
}

// Remove removes the value that is cached for key.
func (c *Cache[V]) Remove(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, found := c.entries[key]; found {
		c.remove(e)
	}
}

func (c *Cache[V]) remove(e *entry[V]) {
	delete(c.entries, e.key)
	c.used.Remove(e.used)
	heap.Remove(&c.byExpiry, e.heapIndex)
	c.bytes -= e.size
}

// expiryHeap has the entries as a heap (container/heap). The entry that expires first is on top.
type expiryHeap[V any] []*entry[V]

func (e expiryHeap[V]) Len() int           { return len(e) }
func (e expiryHeap[V]) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e expiryHeap[V]) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].heapIndex, e[j].heapIndex = i, j
}

// Push implements [heap.Interface].
func (e *expiryHeap[V]) Push(x any) {
	last := x.(*entry[V])
	last.heapIndex = len(*e)
	*e = append(*e, last)
}

// Pop implements [heap.Interface].
func (e *expiryHeap[V]) Pop() any {
	all := *e
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*e = all[:len(all)-1]
	return last
}
