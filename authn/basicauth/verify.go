// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package basicauth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxRunningLogins is the number of concurrent bcrypt comparisons.
	maxRunningLogins = 4
	// maxWaitingLogins is the number of logins that may wait for a comparison. Further logins are
	// rejected immediately, so that clients without a credential cannot occupy more memory.
	maxWaitingLogins = 64
	// maxLoginsPerClient limits the logins of one client address after half of the places are taken. Password
	// guessing from one address therefore does not lock out other clients. While there are free
	// places, many users behind one address can log in at the same time.
	maxLoginsPerClient = 8
	// successTTL is the time for which a verified bcrypt password is cached. A client that sends it
	// with each request causes one comparison per minute. A new version of the file clears the cache.
	successTTL = time.Minute
	// maxRemembered limits the number of cached passwords.
	maxRemembered = 4096
	// maxBcryptBytes is the number of bytes that bcrypt uses. A longer password would match by its
	// first bytes.
	maxBcryptBytes = 72
)

// verify returns the entry of login if the password is correct. Otherwise, it returns [ErrRefused]
// after the same work for every failure.
func (t *table) verify(ctx context.Context, client, login, password string, limiter *loginLimiter) (*entry, error) {
	e, known := t.logins[login]
	key := t.recent.sum(login, password)
	if known && e.hash != nil && t.recent.contains(key) {
		return e, nil
	}
	if t.cost > 0 {
		done, err := limiter.enter(ctx, client)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	ok, spent := false, 0
	switch {
	case known && e.hash != nil:
		ok = t.compare(e.hash, truncate(password)) == nil && len(password) <= maxBcryptBytes
		spent = e.cost
	default:
		var want [sha256.Size]byte
		if known {
			want = e.plainSum
		}
		sum := t.recent.sum("", password)
		ok = subtle.ConstantTimeCompare(sum[:], want[:]) == 1 && known
	}
	if !ok {
		t.equalizeCost(truncate(password), spent)
		return nil, ErrRefused
	}
	if e.hash != nil {
		t.recent.add(key)
	}
	return e, nil
}

// loginLimiter limits the concurrent logins that need bcrypt.
type loginLimiter struct {
	running chan struct{}

	mu       sync.Mutex
	total    int            // running and waiting logins
	byClient map[string]int // by client
}

func newLoginLimiter() *loginLimiter {
	return &loginLimiter{running: make(chan struct{}, maxRunningLogins), byClient: map[string]int{}}
}

// enter waits for a place for a client. The caller MUST call done.
func (t *loginLimiter) enter(ctx context.Context, client string) (done func(), err error) {
	if !t.admit(client) {
		return nil, ErrBusy
	}
	select {
	case t.running <- struct{}{}:
		return func() { <-t.running; t.leave(client) }, nil
	case <-ctx.Done():
		t.leave(client)
		return nil, ctx.Err()
	}
}

func (t *loginLimiter) admit(client string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	const places = maxRunningLogins + maxWaitingLogins
	if t.total >= places || t.total >= places/2 && t.byClient[client] >= maxLoginsPerClient {
		return false
	}
	t.total++
	t.byClient[client]++
	return true
}

func (t *loginLimiter) leave(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.byClient[client]--; t.byClient[client] == 0 {
		delete(t.byClient, client)
	}
}

// clientOf returns the address of a client. For IPv6, it returns the 64-bit network of one site
// (RFC 6177).
func clientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	bits := 64
	if addr := at.Addr().Unmap(); addr.Is4() {
		bits = 32
	}
	network, _ := at.Addr().Unmap().WithZone("").Prefix(bits) // the address is valid
	return network.String()
}

// equalizeCost adds the work that a comparison of cost spent lacks to the file's highest cost. Each step
// of the cost doubles the work. One comparison of each cost from spent on is therefore exactly the
// missing work.
func (t *table) equalizeCost(password []byte, spent int) {
	if t.cost == 0 {
		return
	}
	if spent == 0 {
		_ = t.compare(t.dummy[t.cost], password)
		return
	}
	for cost := spent; cost < t.cost; cost++ {
		_ = t.compare(t.dummy[cost], password)
	}
}

func truncate(password string) []byte { return []byte(password[:min(len(password), maxBcryptBytes)]) }

// recentLogins caches verified passwords. Its secret key belongs to this process and this version of the
// file. Neither a memory dump nor a changed file can therefore make an old password valid.
type recentLogins struct {
	secret [sha256.Size]byte
	seen   *cache.LRUExpireCache
}

func newRecentLogins() *recentLogins {
	r := &recentLogins{seen: cache.NewLRUExpireCache(maxRemembered)}
	_, _ = rand.Read(r.secret[:]) // never fails (crypto/rand, Go 1.24)
	return r
}

// sum returns the keyed hash of a login and a password. It includes the login's length to separate
// them.
func (r *recentLogins) sum(login, password string) (out [sha256.Size]byte) {
	mac := hmac.New(sha256.New, r.secret[:])
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(login))))
	_, _ = mac.Write([]byte(login))
	_, _ = mac.Write([]byte(password))
	mac.Sum(out[:0])
	return out
}

func (r *recentLogins) contains(key [sha256.Size]byte) bool {
	_, ok := r.seen.Get(key)
	return ok
}

func (r *recentLogins) add(key [sha256.Size]byte) { r.seen.Add(key, nil, successTTL) }
