// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package login gets bearer tokens for kubectl: from OpenID providers and from Keystone. What it
// prints is an ExecCredential (KEP-541).
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

	"github.com/gofrs/flock"
	"github.com/zalando/go-keyring"
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

// Cache keeps tokens in files that only their owner may read, or in the system's keyring.
type Cache struct {
	// Dir holds the files, and the locks. It is made where it is missing.
	Dir string
	// Keyring keeps tokens in the keyring of the system (Secret Service, Keychain, Credential
	// Manager), and none in a file: where there is none that can be asked, logging in fails.
	Keyring bool
}

// keyringService is the service that entries of the keyring are of.
const keyringService = "kubectl-tenant"

// With hands the token that is kept for an identity, nil for none, to get, and keeps what get
// returns. A lock makes the kubectls that run at the same time do it one after the other: one
// login, not five. The key's parts tell identities apart; none of them is written.
func (c *Cache) With(ctx context.Context, key []string, get func(*Token) (*Token, error)) (*Token, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.Dir); err != nil {
		return nil, err
	} else if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("other users can write to %s: use a directory that only you can write to", c.Dir)
	}
	sum := sha256.Sum256([]byte(strings.Join(key, "\x00")))
	path := filepath.Join(c.Dir, hex.EncodeToString(sum[:]))
	// Whoever holds the lock may be waiting for somebody to log in.
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockEvery); err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	read, write := read, write
	if c.Keyring {
		read, write = readKeyring, writeKeyring
	}
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

// lockEvery is how often a lock that somebody holds is tried.
const lockEvery = 100 * time.Millisecond

// readKeyring returns what the keyring holds under the name of a file.
func readKeyring(path string) (*Token, error) {
	text, err := keyring.Get(keyringService, filepath.Base(path))
	if errors.Is(err, keyring.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the token from the keyring: %w", err)
	}
	return decode([]byte(text)), nil
}

func writeKeyring(path string, t *Token) error {
	data, err := json.Marshal(t)
	if err == nil {
		err = keyring.Set(keyringService, filepath.Base(path), string(data))
	}
	if err != nil {
		return fmt.Errorf("write the token to the keyring: %w", err)
	}
	return nil
}

// decode returns a token that was kept; nil where it is not understood.
func decode(data []byte) *Token {
	t := &Token{}
	if json.Unmarshal(data, t) != nil {
		return nil
	}
	return t
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
		return nil, fmt.Errorf("other users can read %s: delete it", path)
	}
	data, err := os.ReadFile(path) // #nosec G304 -- of the caller's own cache
	if err != nil {
		return nil, err
	}
	return decode(data), nil
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
