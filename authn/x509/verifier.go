// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package x509

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"
)

const (
	// cacheEntries bounds how many presented chains are remembered: one for each client of a large
	// cluster, about a kilobyte each.
	cacheEntries = 10_000
	// refusedEntries bounds the remembered chains that lead to no authority, which anybody can
	// send; they never push out others. refusedFor is how long one is remembered: a chain that is
	// not valid yet may be soon.
	refusedEntries = 1_000
	refusedFor     = 10 * time.Second
)

// Authorities are one version of a source's certificate authorities.
type Authorities struct{ certificates []*x509.Certificate }

// ParseAuthorities reads certificates, PEM; one is enough.
func ParseAuthorities(data []byte) (*Authorities, error) {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	return &Authorities{certificates}, nil
}

func (a *Authorities) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.certificates {
		pool.AddCert(c)
	}
	return pool
}

// end reports whether the chain's last certificate is one of the authorities.
func (a *Authorities) end(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(a.certificates, chain[len(chain)-1].Equal)
}

// Verifier verifies what was presented once for all sources that were made with it, each of
// which then asks whether a chain leads to an authority of its own. It remembers what it
// found, that a chain leads nowhere too. It is made by [NewVerifier] and safe for concurrent
// use once the sources are made.
type Verifier struct {
	sources       []*source
	known, nobody *cache.LRUExpireCache // of chainKey to *verification
	now           func() time.Time
	current       atomic.Pointer[pool]
	rebuild       sync.Mutex
}

// NewVerifier returns a verifier of no sources yet. A nil now is the machine's clock.
func NewVerifier(now func() time.Time) *Verifier {
	if now == nil {
		now = time.Now
	}
	return &Verifier{
		now:    now,
		known:  cache.NewLRUExpireCacheWithClock(cacheEntries, clock(now)),
		nobody: cache.NewLRUExpireCacheWithClock(refusedEntries, clock(now)),
	}
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// pool is all authorities of all sources at a time.
type pool struct {
	of    []*Authorities // by source
	roots *x509.CertPool
}

// authorities returns the pool of what the sources have now.
func (v *Verifier) authorities() *pool {
	if p := v.current.Load(); p != nil && v.isCurrent(p) {
		return p
	}
	v.rebuild.Lock()
	defer v.rebuild.Unlock()
	p := &pool{roots: x509.NewCertPool()}
	for _, s := range v.sources {
		a := s.authorities()
		p.of = append(p.of, a)
		for _, c := range a.certificates {
			p.roots.AddCert(c)
		}
	}
	v.current.Store(p)
	return p
}

func (v *Verifier) isCurrent(p *pool) bool {
	for i, s := range v.sources {
		if p.of[i] != s.authorities() {
			return false
		}
	}
	return true
}

// verification is what one presented chain came to.
type verification struct {
	under    *pool
	outcomes []outcome // by source
}

// outcome is what a chain came to for one source; the zero value is somebody else's chain.
type outcome struct {
	user user.Info
	// issuers of the leaf, by chain: the authority last.
	issuers [][]*x509.Certificate
	until   time.Time // when the first certificate of the chains expires
	err     error
}

// verify returns what came of the presented chain.
func (v *Verifier) verify(presented []*x509.Certificate) *verification {
	key, under := keyOf(presented), v.authorities()
	for _, remembered := range []*cache.LRUExpireCache{v.known, v.nobody} {
		if hit, ok := remembered.Get(key); ok {
			if found := hit.(*verification); found.under == under {
				return found
			}
		}
	}
	now := v.now()
	found := &verification{under, make([]outcome, len(v.sources))}
	chains, err := look(presented, under.roots, now)
	apart := isBeyond(err) || slices.ContainsFunc(under.of, func(a *Authorities) bool {
		return slices.ContainsFunc(a.certificates, presented[0].Equal)
	})
	for i, s := range v.sources {
		if apart {
			chains, err = look(presented, under.of[i].pool(), now)
		}
		found.outcomes[i] = s.outcome(under.of[i], chains, err)
	}
	var until time.Time // when the first chain that a source accepted ends
	for _, o := range found.outcomes {
		if o.user != nil && (until.IsZero() || o.until.Before(until)) {
			until = o.until
		}
	}
	if until.IsZero() {
		v.nobody.Add(key, found, refusedFor)
	} else {
		v.known.Add(key, found, until.Sub(now))
	}
	return found
}

// isBeyond reports whether an error is about all authorities together, by which a source's own may
// not be judged: the number of signatures that Go tries is bounded (crypto/x509, Go 1.26), and many
// authorities may have one name.
func isBeyond(err error) bool {
	unknown, invalid := x509.UnknownAuthorityError{}, x509.CertificateInvalidError{}
	return err != nil && !errors.As(err, &unknown) && !errors.As(err, &invalid)
}

// look returns the chains to roots, and why the leaf may not be used now. Both are set if the leaf
// leads to roots but is not valid. Go checks the validity of a certificate before it looks for the
// authority. Therefore look verifies an invalid leaf again, at the end of its validity and for any
// usage. This second verification determines only the authority of the leaf. Its own errors about
// time are ignored, because they would be about another time.
func look(presented []*x509.Certificate, roots *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	o := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	chains, err := chainsOf(presented, o)
	invalid := x509.CertificateInvalidError{}
	if !errors.As(err, &invalid) {
		return chains, err
	}
	o.CurrentTime, o.KeyUsages = presented[0].NotAfter, []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	chains, lenient := chainsOf(presented, o)
	if lenient != nil && !errors.As(lenient, &x509.CertificateInvalidError{}) {
		return chains, lenient
	}
	if invalid.Cert != nil && !invalid.Cert.Equal(presented[0]) {
		err = fmt.Errorf("the issuing certificate %q: %w", invalid.Cert.Subject, err)
	}
	return chains, err
}

// Chains returns all chains that upstream's authenticator finds from the first of the presented
// certificates to roots, the authority last.
func Chains(presented []*x509.Certificate, roots x509.VerifyOptions) [][]*x509.Certificate {
	chains, _ := chainsOf(presented, roots)
	return chains
}

func chainsOf(presented []*x509.Certificate, o x509.VerifyOptions) (chains [][]*x509.Certificate, err error) {
	collect := x509request.UserConversionFunc(func(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
		chains = append(chains, chain)
		return nil, false, nil
	})
	req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: presented}}
	_, _, err = x509request.New(o, collect).AuthenticateRequest(req)
	return chains, err
}

type chainKey [sha256.Size]byte

// keyOf hashes the whole presented chain, each certificate with its length, since intermediates
// decide too.
func keyOf(chain []*x509.Certificate) (key chainKey) {
	if len(chain) == 1 {
		return sha256.Sum256(chain[0].Raw)
	}
	h := sha256.New()
	for _, c := range chain {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(c.Raw))))
		_, _ = h.Write(c.Raw)
	}
	h.Sum(key[:0])
	return key
}
