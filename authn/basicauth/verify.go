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
	// maxRunningLogins is the maximum number of concurrent bcrypt comparisons.
	maxRunningLogins = 4
	// maxWaitingLogins is the maximum number of logins that wait for a comparison. Further logins are
	// rejected immediately, so that clients without a credential cannot occupy more memory.
	maxWaitingLogins = 64
	// maxLoginsPerClient is the maximum number of running and waiting logins from one client
	// address while at least half of all slots are in use. Password guessing from one address
	// therefore does not lock out clients at other addresses. While fewer slots are in use, many
	// users behind one address can log in at the same time.
	maxLoginsPerClient = 8
	// successTTL is how long a verified bcrypt password is cached. A client that sends the
	// password with each request causes one comparison per minute. A new version of the file
	// clears the cache.
	successTTL = time.Minute
	// maxRemembered is the maximum number of cached passwords.
	maxRemembered = 4096
	// maxBcryptBytes is the number of bytes of a password that bcrypt uses. Without a check, a longer
	// password would be accepted if its first bytes match.
	maxBcryptBytes = 72
)

// verify returns the entry of login if the password is correct. If the password is wrong or the
// login is unknown, verify returns [ErrRefused], and does the same work in both cases. If too
// many logins are in progress, it returns [ErrBusy]. If ctx ends first, it returns the context's
// error.
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
	ok := false
	spent := 0
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
	byClient map[string]int // the same, keyed by client, see clientOf
}

func newLoginLimiter() *loginLimiter {
	return &loginLimiter{running: make(chan struct{}, maxRunningLogins), byClient: map[string]int{}}
}

// enter waits until a login of the client may run a bcrypt comparison. It returns [ErrBusy] if
// too many logins are in progress, or the context's error if ctx ends first. If enter succeeds,
// the caller MUST call done.
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

// clientOf returns the network that identifies a client in the limits. For IPv4, it is the
// address of the client. For IPv6, it is the /64 network of the client, which belongs to one
// site (RFC 6177). clientOf returns "" if remote is not an address with a port.
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

// equalizeCost runs additional bcrypt comparisons, so that a failed login takes the work of one
// comparison with the file's highest cost. spent is the cost of the comparison that verify has
// already made, or 0 if there was none. Each step of the cost doubles the work. One comparison
// of each cost from spent up to, but not including, the highest cost is therefore exactly the
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

// recentLogins caches keyed hashes of verified logins. The random key exists only in memory, and
// each version of the file has its own key. A cached login is therefore never valid for another
// version of the file.
type recentLogins struct {
	secret [sha256.Size]byte
	seen   *cache.LRUExpireCache
}

func newRecentLogins() *recentLogins {
	r := &recentLogins{seen: cache.NewLRUExpireCache(maxRemembered)}
	_, _ = rand.Read(r.secret[:]) // never fails (crypto/rand, Go 1.24)
	return r
}

// sum returns the keyed hash of a login and a password. The hash includes the length of the login,
// so that two different pairs never have the same input.
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
