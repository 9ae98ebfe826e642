// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tokencache remembers what came of tokens, without holding the tokens.
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

// Key stands for a token and the audiences that it was asked about: a keyed hash (HMAC-SHA-256),
// so that nobody who sees it can test a guess, and nobody can aim at collisions.
type Key [sha256.Size]byte

// Cache remembers values by token, each up to a time, in bounded memory. It is made by [New] and
// safe for concurrent use.
type Cache[V any] struct {
	hashes sync.Pool
	limits Limits
	now    func() time.Time

	mu      sync.Mutex
	entries map[Key]*entry[V]
	used    list.List // of *entry[V], the one used last in front
	ends    ends[V]
	bytes   int
}

// Limits bound what a cache holds; the longest unused go first.
type Limits struct {
	Entries int
	// Bytes of all values together, by the sizes that they are remembered with.
	Bytes int
}

type entry[V any] struct {
	key   Key
	value V
	size  int
	until time.Time
	used  *list.Element
	end   int // its place among the ends
}

// overhead is what an entry takes beside its value, in bytes, roughly.
const overhead = 256

// New returns a cache of no more than the limits.
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

// SizeOf returns how many bytes an identity takes, roughly.
func SizeOf(u user.Info) int {
	const header = 16 // of a string
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

// Key returns the key of a token for a list of audiences, each in its
// place: lengths are hashed too.
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

// Get returns what was remembered, unless its time is over.
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

// Set remembers a value of a size in bytes up to, and no longer at, a time. What is over by now is
// forgotten, and what was not used for the longest time, until the value has room; one larger than
// the whole cache is not kept.
func (c *Cache[V]) Set(key Key, value V, size int, until time.Time) {
	size += overhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, found := c.entries[key]; found {
		c.remove(old)
	}
	now := c.now()
	for len(c.ends) > 0 && !now.Before(c.ends[0].until) {
		c.remove(c.ends[0])
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
	heap.Push(&c.ends, e)
	c.entries[key] = e
	c.bytes += size
}

// Remove forgets a value.
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
	heap.Remove(&c.ends, e.end)
	c.bytes -= e.size
}

// ends are the entries as a heap (container/heap), the first to end on top.
type ends[V any] []*entry[V]

func (e ends[V]) Len() int           { return len(e) }
func (e ends[V]) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e ends[V]) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].end, e[j].end = i, j
}

// Push implements [heap.Interface].
func (e *ends[V]) Push(x any) {
	last := x.(*entry[V])
	last.end = len(*e)
	*e = append(*e, last)
}

// Pop implements [heap.Interface].
func (e *ends[V]) Pop() any {
	all := *e
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*e = all[:len(all)-1]
	return last
}
