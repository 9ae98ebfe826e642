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
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

const (
	// keysFresh is how long keys are used before they are fetched again: a key that the provider has
	// withdrawn counts no longer than this.
	keysFresh = 5 * time.Minute
	// keysStale is how long keys are used while the provider cannot be reached.
	keysStale = time.Hour
	// refetchAfter is the least time between two fetches for the sake of tokens whose key is not
	// known, which anybody can send; and between two attempts that fail.
	refetchAfter = 5 * time.Second
	// staleAfter is how long a request waits for fresh keys where stale ones would do.
	staleAfter = time.Second
	// maxKeys bounds the keys of an issuer: each may have to be tried for a token that names none,
	// which anybody can send. The largest sets known hold a dozen.
	maxKeys = 32
	// fetchTimeout bounds one fetch of discovery document and keys.
	fetchTimeout = 10 * time.Second
)

// keySet is the keys of one issuer, fetched when they are first needed. It implements the KeySet of
// go-oidc.
type keySet struct {
	ctx               context.Context
	issuer, discovery string
	address           string // of the keys, where no discovery document says it
	client            *http.Client
	algorithms        []jose.SignatureAlgorithm
	now               func() time.Time
	flights           singleflight.Group

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time // when keys were
	tried   time.Time // when the last attempt was that is not to be repeated at once
	err     error     // of the last attempt
}

// Keys are the keys of an issuer at an address that is known, as of a kube-apiserver
// (/openid/v1/jwks). They are fetched when they are first needed, and again for a token whose key
// is not among them, at most every few seconds. Safe for concurrent use.
type Keys struct{ set keySet }

// NewKeys returns the keys at an https URL, which client reaches. Nothing is fetched any more when
// ctx ends. now is the clock; nil means time.Now.
func NewKeys(ctx context.Context, url string, client *http.Client, now func() time.Time) *Keys {
	k := &Keys{*newKeySet(ctx, apiserver.Issuer{URL: url}, client, now)}
	k.set.address = url
	return k
}

// VerifySignature returns the payload of a token that one of the keys has signed. Nothing that it
// claims was looked at. The errors are [ErrMalformed], [ErrSignature] and [ErrKeys].
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

// VerifySignature returns the payload of a token that one of the issuer's keys has signed.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, k.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, ErrMalformed
	}
	keys, fetched, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	if payload, ok := verify(ctx, signed, keys); ok {
		return payload, checkPayload(payload)
	}
	if fetched {
		return nil, ErrSignature
	}
	// Perhaps the provider has new keys.
	keys, fetched, err = k.again(ctx)
	if err != nil || !fetched {
		return nil, ErrSignature
	}
	if payload, ok := verify(ctx, signed, keys); ok {
		return payload, checkPayload(payload)
	}
	return nil, ErrSignature
}

// checkPayload refuses distributed claims (OpenID Connect Core 1.0, section 5.6.2), for which
// upstream's authenticator would ask any server that the token names, with nothing to bound that.
func checkPayload(payload []byte) error {
	if !bytes.Contains(payload, []byte("_claim_names")) && !bytes.ContainsRune(payload, '\\') {
		return nil
	}
	var claims map[string]json.RawMessage
	if err := json.Unmarshal(payload, &claims); err != nil {
		return ErrMalformed
	}
	if _, distributed := claims["_claim_names"]; distributed {
		return ErrDistributed
	}
	return nil
}

func verify(ctx context.Context, signed *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, bool) {
	header := signed.Signatures[0].Header
	for i := range keys {
		if ctx.Err() != nil {
			return nil, false
		}
		if alg := keys[i].Algorithm; alg != "" && alg != header.Algorithm {
			continue
		}
		if header.KeyID == "" || header.KeyID == keys[i].KeyID {
			if payload, err := signed.Verify(keys[i].Key); err == nil {
				return payload, true
			}
		}
	}
	return nil, false
}

// current returns keys that are fresh, or stale ones while the provider cannot be reached, and
// whether they were fetched just now.
func (k *keySet) current(ctx context.Context) (keys []jose.JSONWebKey, fetched bool, err error) {
	k.mu.Lock()
	keys, known, err := k.keys, k.fetched, k.err
	age, failing := k.now().Sub(known), k.now().Sub(k.tried) < refetchAfter && err != nil
	k.mu.Unlock()
	switch {
	case keys != nil && age < keysFresh:
		return keys, false, nil
	case !failing:
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if keys != nil && age < keysStale {
			waiting, cancel = context.WithTimeout(ctx, staleAfter)
		}
		defer cancel()
		var fresh []jose.JSONWebKey
		if fresh, err = k.fetch(waiting, known); err == nil {
			return fresh, true, nil
		}
	}
	if keys != nil && age < keysStale {
		return keys, false, nil
	}
	return nil, false, err
}

// again fetches the keys for a token whose key is not among them, unless that was done just now.
func (k *keySet) again(ctx context.Context) (keys []jose.JSONWebKey, fetched bool, err error) {
	k.mu.Lock()
	known, recent := k.fetched, k.now().Sub(k.tried) < refetchAfter
	if !recent {
		k.tried = k.now()
	}
	k.mu.Unlock()
	if recent {
		return nil, false, nil
	}
	keys, err = k.fetch(ctx, known)
	return keys, true, err
}

// fetch fetches the keys, once for all who ask at the same time, and no longer than ctx lasts.
// known is when the keys were fetched that the caller has.
func (k *keySet) fetch(ctx context.Context, known time.Time) ([]jose.JSONWebKey, error) {
	flight := k.flights.DoChan("", outbound.Recover(ErrKeys, func() (any, error) {
		if keys := k.since(known); keys != nil {
			return keys, nil
		}
		ctx, cancel := context.WithTimeout(k.ctx, fetchTimeout)
		defer cancel()
		keys, err := k.download(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.err = err; err != nil {
			k.tried = k.now()
			klog.FromContext(ctx).Error(err, "Failed to fetch the keys of an issuer", "issuer", k.issuer)
			return nil, err
		}
		k.keys, k.fetched = keys, k.now()
		return keys, nil
	}))
	select {
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.([]jose.JSONWebKey), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrKeys, ctx.Err())
	}
}

// since returns the keys if they were fetched after a time, else nil. An earlier flight may have
// fetched them after a caller looked for keys.
func (k *keySet) since(known time.Time) []jose.JSONWebKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.fetched.After(known) {
		return nil
	}
	return k.keys
}

// download reads the keys, whose address the discovery document says (OpenID Connect
// Discovery 1.0, section 4).
func (k *keySet) download(ctx context.Context) ([]jose.JSONWebKey, error) {
	address := k.address
	if address == "" {
		var err error
		if address, err = k.discover(ctx); err != nil {
			return nil, err
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, address, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%w: more than %d keys", ErrKeys, maxKeys)
	}
	keys := []jose.JSONWebKey{}
	for _, raw := range set.Keys {
		var private struct {
			D json.RawMessage `json:"d"`
			K json.RawMessage `json:"k"`
		}
		var key jose.JSONWebKey
		// A key of a type that we do not know is passed over (RFC 7517, section
		// 5), and so is a secret one.
		if json.Unmarshal(raw, &private) == nil && private.D == nil && private.K == nil &&
			json.Unmarshal(raw, &key) == nil && key.Valid() && key.IsPublic() && key.Use != "enc" {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// discover returns where the keys are.
func (k *keySet) discover(ctx context.Context) (string, error) {
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := k.get(ctx, k.discovery, &document); err != nil {
		return "", err
	}
	if document.Issuer != k.issuer {
		return "", fmt.Errorf("%w: the discovery document names another issuer", ErrKeys)
	}
	if !strings.HasPrefix(document.Keys, "https://") {
		return "", fmt.Errorf("%w: jwks_uri must be an https URL", ErrKeys)
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
		return fmt.Errorf("%w: %s: %w", ErrKeys, url, err)
	}
	return nil
}
