// Package login gets bearer tokens for kubectl: from OpenID providers and from Keystone. What it prints is an
// ExecCredential (KEP-541).
package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// early is how long before its end a token is not used any more: it must reach the server.
const early = time.Minute

// Token is a bearer token, and what the next one is got with.
type Token struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Refresh is an OpenID provider's refresh token. Empty for none.
	Refresh string `json:"refresh,omitempty"`
}

// usable reports whether the token can still be sent.
func (t *Token) usable(now time.Time) bool {
	return t != nil && t.Token != "" && now.Add(early).Before(t.Expires)
}

// Cache keeps tokens in files that only their owner may read.
type Cache struct {
	// Dir holds the files. It is made where it is missing.
	Dir string
}

// With hands the token that is kept for an identity, nil for none, to get, and keeps what get returns. A lock
// makes the kubectls that run at the same time do it one after the other: one login, not five. The key's parts
// tell identities apart; none of them is written.
func (c *Cache) With(ctx context.Context, key []string, get func(*Token) (*Token, error)) (*Token, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.Dir); err != nil {
		return nil, err
	} else if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others may write into %s: name a directory of your own", c.Dir)
	}
	sum := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	path := filepath.Join(c.Dir, hex.EncodeToString(sum[:]))
	unlock, err := lock(ctx, path+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	kept, err := read(path)
	if err != nil {
		return nil, err
	}
	got, err := get(kept)
	if err != nil || kept != nil && *got == *kept {
		return got, err
	}
	return got, write(path, got)
}

// lock waits for the lock until ctx ends: whoever holds it may be waiting for somebody to log in.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	type held struct {
		unlock func()
		err    error
	}
	got := make(chan held, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(path).Lock()
		got <- held{unlock, err}
	}()
	select {
	case h := <-got:
		return h.unlock, h.err
	case <-ctx.Done():
		go func() { // it may come yet
			if h := <-got; h.err == nil {
				h.unlock()
			}
		}()
		return nil, ctx.Err()
	}
}

// read returns what a file holds; nil where there is none, or nothing that is understood.
func read(path string) (*Token, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others: remove it", path)
	}
	data, err := os.ReadFile(path) // #nosec G304 -- of the caller's own cache
	if err != nil {
		return nil, err
	}
	t := &Token{}
	if json.Unmarshal(data, t) != nil {
		return nil, nil
	}
	return t, nil
}

// write puts a token in place of what a file holds, as a whole.
func write(path string, t *Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
