// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/kubetenant/kubetenant/authn/authntest"
)

// provider is a transport that serves keys after a delay, in the time of a synctest bubble.
type provider struct {
	mu      sync.Mutex
	keys    []*authntest.Key
	broken  bool
	takes   time.Duration
	fetches atomic.Int64
}

func (p *provider) set(keys ...*authntest.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

func (p *provider) fail(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	p.fetches.Add(1)
	select {
	case <-time.After(p.takes):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return nil, errors.New("connection refused")
	}
	set := []any{}
	for _, key := range p.keys {
		set = append(set, key.JWK())
	}
	body, err := json.Marshal(map[string]any{"keys": set})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(body)))}, err
}

// serve returns a provider that responds after half a second, and a key set that fetches the
// provider's keys.
func serve(t *testing.T, keys ...*authntest.Key) (*provider, *keySet) {
	p := &provider{takes: 500 * time.Millisecond, keys: keys}
	k := newKeySet(t.Context(), apiserver.Issuer{URL: "https://id.example.com"}, &http.Client{Transport: p}, nil)
	k.address = "https://id.example.com/keys"
	return p, k
}

func signed(keys ...*authntest.Key) (tokens []string) {
	for _, key := range keys {
		tokens = append(tokens, key.MustSign(map[string]any{"sub": "alice"}))
	}
	return tokens
}

// verifyConcurrently starts to verify the tokens 30 ms apart, and returns the errors.
func verifyConcurrently(ctx context.Context, k *keySet, tokens ...string) []error {
	errs := make([]error, len(tokens))
	var all sync.WaitGroup
	for i, token := range tokens {
		all.Go(func() { _, errs[i] = k.VerifySignature(ctx, token) })
		time.Sleep(30 * time.Millisecond)
		synctest.Wait()
	}
	all.Wait()
	return errs
}

func times(n int, token string) (tokens []string) {
	for range n {
		tokens = append(tokens, token)
	}
	return tokens
}

// TestCallersWaitForFetch checks that callers wait for a fetch in progress, regardless of the
// reason for the fetch.
func TestCallersWaitForFetch(t *testing.T) {
	before, after, foreign := authntest.MustKey("ES256"), authntest.MustKey("ES256"), authntest.MustKey("ES256")
	for name, c := range map[string]struct {
		idle  time.Duration
		first *authntest.Key // signs the token that starts the fetch
		want  error          // for that token
	}{
		"a token with the new key": {6 * time.Second, after, nil},
		"a forged token":           {6 * time.Second, foreign, ErrNoKey},
		"stale keys":               {keysFresh, before, nil},
		"keys that are too old":    {keysStale, after, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, k := serve(t, before)
				if errs := verifyConcurrently(t.Context(), k, signed(before)...); errs[0] != nil {
					t.Fatal(errs)
				}
				time.Sleep(c.idle)
				p.set(before, after)
				errs := verifyConcurrently(t.Context(), k, append(signed(c.first), times(15, signed(after)[0])...)...)
				if !errors.Is(errs[0], c.want) {
					t.Errorf("the first caller: %v, want %v", errs[0], c.want)
				}
				for i, err := range errs[1:] {
					if err != nil {
						t.Errorf("caller %d: %v", i+1, err)
					}
				}
				if n := p.fetches.Load(); n != 2 {
					t.Errorf("%d fetches, want 2", n)
				}
			})
		})
	}
}

// TestCallersWaitForFirstFetch checks that all callers wait for the first fetch.
func TestCallersWaitForFirstFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := authntest.MustKey("ES256")
		p, k := serve(t, key)
		for i, err := range verifyConcurrently(t.Context(), k, times(16, signed(key)[0])...) {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		if n := p.fetches.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestBackoffStartsAfterFetch checks that the next fetch for an unknown key may start 5 seconds
// after the end of the last fetch. A long fetch does not shorten this backoff. During the
// backoff, keys from the newest set are accepted.
func TestBackoffStartsAfterFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after, later := authntest.MustKey("ES256"), authntest.MustKey("ES256"), authntest.MustKey("ES256")
		p, k := serve(t, before)
		_ = verifyConcurrently(t.Context(), k, signed(before)...)
		p.takes = 8 * time.Second // longer than the backoff
		p.set(before, after)
		if errs := verifyConcurrently(t.Context(), k, signed(after, after)...); errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		p.set(before, after, later)
		for _, err := range verifyConcurrently(t.Context(), k, signed(later, before, after)...)[:1] {
			if !errors.Is(err, ErrNoKey) {
				t.Errorf("during the backoff: %v", err)
			}
		}
		if n := p.fetches.Load(); n != 2 {
			t.Errorf("%d fetches during the backoff, want 2", n)
		}
		time.Sleep(refetchAfter)
		if errs := verifyConcurrently(t.Context(), k, signed(later, later)...); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
	})
}

// TestUnknownKeysDuringOutage checks that unknown keys cause ErrKeys during the backoff after a
// failed fetch. Callers wait for the next fetch while it is in progress.
func TestUnknownKeysDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := authntest.MustKey("ES256"), authntest.MustKey("ES256")
		p, k := serve(t, before)
		p.fail(true)
		for _, err := range verifyConcurrently(t.Context(), k, times(20, signed(before)[0])...) { // some during the backoff
			if !errors.Is(err, ErrKeys) {
				t.Errorf("without keys: %v", err)
			}
		}
		if n := p.fetches.Load(); n != 1 {
			t.Errorf("%d fetches during an outage", n)
		}
		p.fail(false)
		time.Sleep(refetchAfter)
		for _, err := range verifyConcurrently(t.Context(), k, times(16, signed(before)[0])...) {
			if err != nil {
				t.Errorf("after the outage: %v", err)
			}
		}
		p.fail(true)
		errs := verifyConcurrently(t.Context(), k, append(times(20, signed(after)[0]), signed(before)[0], forged(before))...)
		for i, err := range errs[:20] {
			if !errors.Is(err, ErrKeys) || errors.Is(err, ErrNoKey) {
				t.Errorf("caller %d with an unknown key: %v", i, err)
			}
		}
		if errs[20] != nil || !errors.Is(errs[21], ErrSignature) {
			t.Errorf("a known key: %v, %v", errs[20], errs[21])
		}
	})
}

// forged returns a token that names key, but was signed with another key.
func forged(key *authntest.Key) string {
	other := authntest.MustKey("ES256")
	token, err := other.Sign(key.Header(), []byte("{}"))
	if err != nil {
		panic(err)
	}
	return token
}

// TestWaitEndsWithRequest checks that a caller waits for a fetch only until its request ends. The
// fetch continues for other callers.
func TestWaitEndsWithRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := authntest.MustKey("ES256")
		_, k := serve(t, key)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := k.VerifySignature(ctx, signed(key)[0])
		if took := time.Since(began); !errors.Is(err, ErrKeys) || took != 100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		if _, err := k.VerifySignature(t.Context(), signed(key)[0]); err != nil {
			t.Error(err)
		}
	})
}

// TestNoFetchAfterConcurrentFetch checks that keys are fetched only once if another caller's fetch
// ends between the lookup and the fetch of a caller.
func TestNoFetchAfterConcurrentFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := serve(t)
		var has *keyring
		for range 2 { // both callers found nothing
			ring, _, err := k.newerThan(t.Context(), nil, forAge)
			if ring == nil || err != nil {
				t.Errorf("%v, %v", ring, err)
			}
			has = ring
		}
		if n := p.fetches.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
		if _, _, err := k.newerThan(t.Context(), has, forAge); err != nil || p.fetches.Load() != 2 {
			t.Errorf("for a caller that has these keys: %d fetches, %v", p.fetches.Load(), err)
		}
	})
}

// TestSharedKeys checks that callers of Keys wait for a fetch in progress in the same way as
// callers of a keySet.
func TestSharedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := authntest.MustKey("ES256"), authntest.MustKey("ES256")
		p := &provider{takes: 500 * time.Millisecond, keys: []*authntest.Key{before}}
		k := NewKeys(t.Context(), "https://cluster.example.com/openid/v1/jwks", &http.Client{Transport: p}, nil)
		if _, err := k.VerifySignature(t.Context(), signed(before)[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		p.set(before, after)
		for i, err := range verifyConcurrently(t.Context(), &k.set, times(16, signed(after)[0])...) {
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
	})
}
