// Package tokencache remembers what came of tokens, without holding the tokens.
package tokencache

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Key stands for a token and the audiences that it was asked about: a keyed hash (HMAC-SHA-256),
// so that nobody who sees it can test a guess, and nobody can aim at collisions.
type Key [sha256.Size]byte

// Cache remembers values by token, a bounded number of them, each up to a time. It is made by
// [New] and safe for concurrent use.
type Cache[V any] struct {
	hashes  sync.Pool
	entries *cache.LRUExpireCache
	now     func() time.Time
}

// entry holds its end itself: the cache below counts from the moment in which it is handed over.
type entry[V any] struct {
	value V
	until time.Time
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// New returns a cache of at most size entries; the longest unused go first.
func New[V any](size int, now func() time.Time) *Cache[V] {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails (crypto/rand, Go 1.24)
	return &Cache[V]{
		hashes:  sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }},
		entries: cache.NewLRUExpireCacheWithClock(size, clock(now)),
		now:     now,
	}
}

// Key returns the key of a token for a list of audiences, each in its place: lengths are hashed too.
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
	if e, found := c.entries.Get(key); found && c.now().Before(e.(entry[V]).until) {
		return e.(entry[V]).value, true
	}
	var none V
	return none, false
}

// Set remembers a value up to, and no longer at, a time.
func (c *Cache[V]) Set(key Key, value V, until time.Time) {
	if ttl := until.Sub(c.now()); ttl > 0 {
		c.entries.Add(key, entry[V]{value, until}, ttl)
	}
}

// Remove forgets a value.
func (c *Cache[V]) Remove(key Key) { c.entries.Remove(key) }
