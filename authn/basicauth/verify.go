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
	// slowLogins is how many bcrypt comparisons run at a time.
	slowLogins = 4
	// waitingLogins is how many more may wait for that. Beyond it a login is refused at once, so that
	// guessing without a credential holds no more than this.
	waitingLogins = 64
	// loginsOfOne is how many of them one client's address may have once half of the places are
	// taken, so that guessing refuses nobody else, and many behind one address may log in at a
	// time while there is room.
	loginsOfOne = 8
	// rememberFor is how long a verified bcrypt password is remembered, so that a client that sends
	// it with each request costs bcrypt's work once a minute. A new version of the file forgets all.
	rememberFor = time.Minute
	// rememberAtMost bounds what is remembered, in entries.
	rememberAtMost = 4096
	// maxBcryptBytes is all that bcrypt looks at; a longer password would match by its beginning.
	maxBcryptBytes = 72
)

// verify returns the entry of login if password is its password, else [ErrRefused], at the same
// cost for every failure.
func (t *table) verify(ctx context.Context, client, login, password string, slow *turns) (*entry, error) {
	e, known := t.logins[login]
	key := t.recent.sum(login, password)
	if known && e.hash != nil && t.recent.has(key) {
		return e, nil
	}
	if t.cost > 0 {
		done, err := slow.enter(ctx, client)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	ok, spent := false, 0
	switch {
	case known && e.hash != nil:
		ok = t.compare(e.hash, clip(password)) == nil && len(password) <= maxBcryptBytes
		spent = e.cost
	default:
		var want [sha256.Size]byte
		if known {
			want = e.plain
		}
		sum := t.recent.sum("", password)
		ok = subtle.ConstantTimeCompare(sum[:], want[:]) == 1 && known
	}
	if !ok {
		t.spend(clip(password), spent)
		return nil, ErrRefused
	}
	if e.hash != nil {
		t.recent.add(key)
	}
	return e, nil
}

// turns bounds the logins that take bcrypt's work.
type turns struct {
	running chan struct{}

	mu  sync.Mutex
	all int            // the running and the waiting ones
	of  map[string]int // by client
}

func newTurns() *turns {
	return &turns{running: make(chan struct{}, slowLogins), of: map[string]int{}}
}

// enter waits for a turn of a client, which ends with done.
func (t *turns) enter(ctx context.Context, client string) (done func(), err error) {
	if !t.arrive(client) {
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

func (t *turns) arrive(client string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	const places = slowLogins + waitingLogins
	if t.all >= places || t.all >= places/2 && t.of[client] >= loginsOfOne {
		return false
	}
	t.all++
	t.of[client]++
	return true
}

func (t *turns) leave(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[client]--; t.of[client] == 0 {
		delete(t.of, client)
	}
}

// clientOf names the client of a request: its address, of IPv6 the network of 64 bits that
// one site has (RFC 6177).
func clientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	bits := 64
	if addr := at.Addr().Unmap(); addr.Is4() {
		bits = 32
	}
	network, _ := at.Addr().Unmap().WithZone("").Prefix(bits) // of a valid address
	return network.String()
}

// spend does what is missing from a comparison of cost spent to one of the file's highest cost:
// since each step of cost doubles the work, one comparison of each cost from spent on adds up to
// just that.
func (t *table) spend(password []byte, spent int) {
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

func clip(password string) []byte { return []byte(password[:min(len(password), maxBcryptBytes)]) }

// recent remembers verified passwords under a key that only this process and this version of the
// file have, so that neither memory nor a changed file keeps one alive.
type recent struct {
	secret [sha256.Size]byte
	seen   *cache.LRUExpireCache
}

func newRecent() *recent {
	r := &recent{seen: cache.NewLRUExpireCache(rememberAtMost)}
	_, _ = rand.Read(r.secret[:]) // never fails: crypto/rand, Go 1.24
	return r
}

// sum is the keyed hash of a login and a password; the login's length keeps them apart.
func (r *recent) sum(login, password string) (out [sha256.Size]byte) {
	mac := hmac.New(sha256.New, r.secret[:])
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(login))))
	_, _ = mac.Write([]byte(login))
	_, _ = mac.Write([]byte(password))
	mac.Sum(out[:0])
	return out
}

func (r *recent) has(key [sha256.Size]byte) bool {
	_, ok := r.seen.Get(key)
	return ok
}

func (r *recent) add(key [sha256.Size]byte) { r.seen.Add(key, nil, rememberFor) }
