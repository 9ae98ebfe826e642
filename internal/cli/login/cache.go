// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package login obtains bearer tokens for kubectl from OpenID providers and from Keystone. It
// prints them as an ExecCredential (KEP-541).
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

// expiryMargin is how long before its expiration a stored token is no longer used, so that the
// token is still valid when it reaches the server.
const expiryMargin = time.Minute

// Token is a bearer token with the data that is needed to renew it.
type Token struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Refresh is the refresh token of an OpenID provider, or empty.
	Refresh string `json:"refresh,omitempty"`
}

// usable reports whether the token is valid for longer than [expiryMargin].
func (t *Token) usable(now time.Time) bool {
	return t != nil && t.Token != "" && now.Add(expiryMargin).Before(t.Expires)
}

// Cache stores tokens in files that only their owner may read, or in the system keyring.
type Cache struct {
	// Dir is the folder of the token files and the lock files. It is created if it does not exist.
	Dir string
	// Keyring specifies that tokens are stored only in the system keyring (Secret Service,
	// Keychain, Credential Manager). If there is no keyring, the login fails.
	Keyring bool
}

// keyringService is the service name of the entries in the keyring.
const keyringService = "kubectl-tenant"

// With calls get with the stored token of an identity, or with nil if there is none. It stores
// the token that get returns. A lock serializes concurrent processes, so that a user logs in
// only once. key identifies the identity. The cache stores only a hash of key.
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
	// Another process may hold the lock while it waits for a user to log in.
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockInterval); err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	read, write := read, write
	if c.Keyring {
		read, write = readKeyring, writeKeyring
	}
	stored, err := read(path)
	if err != nil {
		return nil, err
	}
	got, err := get(stored)
	if err != nil || stored != nil && *got == *stored {
		return got, err
	}
	return got, write(path, got)
}

// lockInterval is the time between two attempts to acquire a lock.
const lockInterval = 100 * time.Millisecond

// readKeyring returns the token in the keyring for the given file path, or nil if there is no valid
// token.
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

// decode decodes a stored token. It returns nil if data is invalid.
func decode(data []byte) *Token {
	t := &Token{}
	if json.Unmarshal(data, t) != nil {
		return nil
	}
	return t
}

// read returns the token in a file, or nil if the file does not exist or is invalid. It returns
// an error if other users may read the file.
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
	data, err := os.ReadFile(path) // #nosec G304 -- a file in the caller's own cache
	if err != nil {
		return nil, err
	}
	return decode(data), nil
}

// write replaces the content of a file with a token, atomically.
func write(path string, t *Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // CreateTemp sets mode 0600
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
