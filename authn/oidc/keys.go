// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

const (
	// keysFresh is how long keys are used before they are fetched again. If the provider cannot be
	// reached then, a withdrawn key is valid for up to keysStale.
	keysFresh = 5 * time.Minute
	// keysStale is how long keys are used after they were fetched, while newer keys cannot be fetched.
	keysStale = time.Hour
	// refetchAfter is the minimum time between two fetches if the first failed or was made for a
	// token that the known keys do not verify. Any client can send tokens with unknown keys. The
	// time starts at the end of the first fetch.
	refetchAfter = 5 * time.Second
	// maxStaleWait is how long a request waits for fresh keys if stale keys can be used instead.
	maxStaleWait = time.Second
	// fetchTimeout is the maximum duration of one fetch of the discovery document and the keys.
	fetchTimeout = 10 * time.Second
)

// keySet has the keys of one issuer. They are fetched when they are first needed. It implements the
// KeySet of go-oidc.
type keySet struct {
	ctx               context.Context
	issuer, discovery string
	address           string // the URL of the keys if there is no discovery document
	client            *http.Client
	algorithms        []jose.SignatureAlgorithm
	now               func() time.Time

	mu           sync.Mutex
	ring         *keyring  // the result of the last successful fetch, or nil
	flight       *flight   // the fetch in progress, or nil
	err          error     // the error from the last fetch, or nil
	lastFailure  time.Time // the end of the last failed fetch
	lastKeyFetch time.Time // the end of the last fetch with forUnknownKey
	unusable     string    // the last log entry about unusable keys
}

// flight is a fetch in progress. done is closed after ring and err are set.
type flight struct {
	done          chan struct{}
	forUnknownKey bool // for a token that the known keys do not verify, guarded by keySet.mu
	ring          *keyring
	err           error
}

// Keys are the keys of an issuer at a known address, such as a kube-apiserver (/openid/v1/jwks).
// They are fetched when they are first needed, and again if they are old. They are also fetched
// again for a token that they do not verify, but at most every few seconds. It is safe for
// concurrent use.
type Keys struct{ set keySet }

// NewKeys returns the keys at an https URL, which are fetched with client. Nothing is fetched after
// ctx has ended. now is the clock and defaults to time.Now.
func NewKeys(ctx context.Context, url string, client *http.Client, now func() time.Time) *Keys {
	k := &Keys{*newKeySet(ctx, apiserver.Issuer{URL: url}, client, now)}
	k.set.address = url
	return k
}

// VerifySignature returns the payload of a token that one of the keys signed. It does not verify
// the claims. The errors are [ErrMalformed], [ErrSignature], [ErrNoKey] and [ErrKeys].
func (k *Keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	return k.set.VerifySignature(ctx, token)
}

func newKeySet(ctx context.Context, issuer apiserver.Issuer, client *http.Client, now func() time.Time) *keySet {
	if now == nil {
		now = time.Now
	}
	k := &keySet{
		ctx:       ctx,
		issuer:    issuer.URL,
		discovery: issuer.DiscoveryURL,
		client:    client,
		now:       now,
	}
	if k.discovery == "" {
		k.discovery = strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration"
	}
	for _, name := range oidc.AllValidSigningAlgorithms() {
		k.algorithms = append(k.algorithms, jose.SignatureAlgorithm(name))
	}
	return k
}

// VerifySignature returns the payload of a token that one of the issuer's keys signed. It also
// stores the result in the [signatureResult] of ctx, because go-oidc returns only the text of an
// error.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.verify(ctx, token)
	if v := signatureResultFrom(ctx); v != nil {
		payload = withoutEmptyNames(payload)
		v.payload, v.err = payload, err
	}
	return payload, err
}

// withoutEmptyNames removes the claim _claim_names from a payload if it is an empty object.
// Upstream would reject the empty claim if _claim_sources is missing.
func withoutEmptyNames(payload []byte) []byte {
	if !bytes.Contains(payload, []byte("_claim_names")) {
		return payload
	}
	var claims map[string]json.RawMessage
	var names map[string]json.RawMessage
	if json.Unmarshal(payload, &claims) != nil || json.Unmarshal(claims["_claim_names"], &names) != nil ||
		len(names) > 0 {
		return payload
	}
	delete(claims, "_claim_names")
	plain, err := json.Marshal(claims)
	if err != nil {
		return payload
	}
	return plain
}

func (k *keySet) verify(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, k.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, ErrMalformed
	}
	ring, fetched, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	payload, err := ring.verify(ctx, signed)
	if err == nil || fetched {
		return payload, err
	}
	// The provider may have new keys.
	newer, problem := k.fetchForKey(ctx, ring)
	switch {
	case problem != nil && ring.lacksKey(signed): // the newer keys are unknown and may contain the token's key
		return nil, problem
	case problem != nil || newer == ring:
		return nil, err
	}
	return newer.verify(ctx, signed)
}

// current returns fresh keys, or stale keys while the provider cannot be reached. fetched reports
// whether this call started the fetch of the keys.
func (k *keySet) current(ctx context.Context) (ring *keyring, fetched bool, err error) {
	k.mu.Lock()
	ring = k.ring
	k.mu.Unlock()
	stale := false
	if ring != nil {
		age := k.now().Sub(ring.fetched)
		if age < keysFresh {
			return ring, false, nil
		}
		stale = age < keysStale
	}
	waiting := ctx
	if stale {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, maxStaleWait)
		defer cancel()
	}
	fresh, own, err := k.newerThan(waiting, ring, forAge)
	switch {
	case err == nil:
		return fresh, own, nil
	case stale:
		return ring, false, nil
	}
	return nil, false, err
}

// fetchForKey returns the newest keys for a token that the keys in ring do not verify. If keys
// were recently fetched for another token of this kind, it returns ring.
func (k *keySet) fetchForKey(ctx context.Context, ring *keyring) (*keyring, error) {
	newest, _, err := k.newerThan(ctx, ring, forKey)
	return newest, err
}

// purpose is the reason why a caller needs newer keys.
type purpose int

const (
	forAge purpose = iota // the caller's keys are too old
	forKey                // the caller's keys do not verify its token
)

// newerThan returns keys that are newer than known, the keys that the caller has. It waits for
// the fetch in progress until ctx ends. If there is none, it starts a fetch and returns true for
// own. If refetchAfter does not allow a fetch yet, it returns known and the error from the last
// fetch.
func (k *keySet) newerThan(ctx context.Context, known *keyring, reason purpose) (ring *keyring, own bool, err error) {
	k.mu.Lock()
	if k.ring != known { // a fetch has ended in between
		defer k.mu.Unlock()
		return k.ring, false, nil
	}
	if k.flight == nil {
		now := k.now()
		if k.err != nil && now.Sub(k.lastFailure) < refetchAfter ||
			reason == forKey && now.Sub(k.lastKeyFetch) < refetchAfter {
			defer k.mu.Unlock()
			return known, false, k.err
		}
		own = true
		k.flight = &flight{done: make(chan struct{})}
		go k.fetch(k.flight)
	}
	f := k.flight
	f.forUnknownKey = f.forUnknownKey || reason == forKey
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.ring, own, f.err
	case <-ctx.Done():
		return nil, own, fmt.Errorf("%w: %w", ErrKeys, ctx.Err())
	}
}

// fetch fetches the keys for all callers that wait for f.
func (k *keySet) fetch(f *flight) {
	ctx, cancel := context.WithTimeout(k.ctx, fetchTimeout)
	defer cancel()
	f.ring, f.err = outbound.Recover(ErrKeys, func() (*keyring, error) { return k.download(ctx) })()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.err = f.err; f.err == nil {
		f.ring.fetched = now
		k.ring = f.ring
		k.logUnusable(ctx)
	} else {
		k.lastFailure = now
		klog.FromContext(ctx).Error(f.err, "Failed to fetch the keys of an issuer", "issuer", k.issuer)
	}
	if f.forUnknownKey {
		k.lastKeyFetch = now
	}
	k.flight = nil
	close(f.done)
}

// logUnusable logs the unusable keys of a set. It logs the same keys only once.
func (k *keySet) logUnusable(ctx context.Context) {
	text := k.ring.describeUnusable()
	if text != "" && text != k.unusable {
		klog.FromContext(ctx).Info("Some keys of an issuer are unusable", "issuer", k.issuer,
			"usable", len(k.ring.keys), "unusable", k.ring.unusableCount, "keys", text)
	}
	k.unusable = text
}

// download fetches the keys. If their address is unknown, it is read from the discovery document
// (OpenID Connect Discovery 1.0, section 4).
func (k *keySet) download(ctx context.Context) (*keyring, error) {
	address := k.address
	if address == "" {
		var err error
		if address, err = k.discover(ctx); err != nil {
			return nil, err
		}
	}
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, address, &set); err != nil {
		return nil, err
	}
	if set.Keys == nil {
		return nil, fmt.Errorf("%w: the document at %s has no keys", ErrKeys, address)
	}
	return newKeyring(*set.Keys), nil
}

// discover returns the address of the keys.
func (k *keySet) discover(ctx context.Context) (string, error) {
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, k.discovery, &document); err != nil {
		return "", err
	}
	if document.Issuer != k.issuer {
		return "", fmt.Errorf("%w: the document at %s names the issuer %s, and not %s", ErrKeys, k.discovery,
			quoteShort(document.Issuer), k.issuer)
	}
	if !strings.HasPrefix(document.Keys, "https://") {
		return "", fmt.Errorf("%w: jwks_uri in the document at %s must be an https URL", ErrKeys, k.discovery)
	}
	return document.Keys, nil
}

func (k *keySet) get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s returned status %d", ErrKeys, url, resp.StatusCode)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: the document at %s cannot be read: %w", ErrKeys, url, err)
	}
	return nil
}
