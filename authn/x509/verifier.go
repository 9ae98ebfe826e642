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
	// cacheEntries is the maximum number of cached chains. Each client of a large cluster has one
	// chain, of about one kilobyte.
	cacheEntries = 10_000
	// refusedEntries is the maximum number of cached chains that are not accepted, which any
	// client can send. They never evict accepted chains. refusedFor is how long a chain that is
	// not accepted is cached. The time is short, because the chain may become valid.
	refusedEntries = 1_000
	refusedFor     = 10 * time.Second
)

// Authorities are one version of a source's certificate authorities.
type Authorities struct{ certificates []*x509.Certificate }

// ParseAuthorities parses PEM-encoded certificates. There must be at least one.
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

// isRootOf reports whether the chain's last certificate is one of the authorities.
func (a *Authorities) isRootOf(chain []*x509.Certificate) bool {
	return slices.ContainsFunc(a.certificates, chain[len(chain)-1].Equal)
}

// Verifier verifies the presented certificates once for all its sources. Each source then checks
// whether a chain leads to one of its own authorities. The Verifier caches all results,
// including rejections. Create it with [NewVerifier]. It is safe for concurrent use after all
// sources have been created.
type Verifier struct {
	sources            []*source
	accepted, rejected *cache.LRUExpireCache // map a chainKey to a *verification
	now                func() time.Time
	current            atomic.Pointer[pool]
	rebuild            sync.Mutex
}

// NewVerifier returns a verifier without sources. If now is nil, it uses [time.Now].
func NewVerifier(now func() time.Time) *Verifier {
	if now == nil {
		now = time.Now
	}
	return &Verifier{
		now:      now,
		accepted: cache.NewLRUExpireCacheWithClock(cacheEntries, clock(now)),
		rejected: cache.NewLRUExpireCacheWithClock(refusedEntries, clock(now)),
	}
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// pool has one version of the authorities of all sources.
type pool struct {
	bySource []*Authorities // indexed by source
	roots    *x509.CertPool
}

// authorities returns the current pool.
func (v *Verifier) authorities() *pool {
	if p := v.current.Load(); p != nil && v.isCurrent(p) {
		return p
	}
	v.rebuild.Lock()
	defer v.rebuild.Unlock()
	p := &pool{roots: x509.NewCertPool()}
	for _, s := range v.sources {
		a := s.authorities()
		p.bySource = append(p.bySource, a)
		for _, c := range a.certificates {
			p.roots.AddCert(c)
		}
	}
	v.current.Store(p)
	return p
}

func (v *Verifier) isCurrent(p *pool) bool {
	for i, s := range v.sources {
		if p.bySource[i] != s.authorities() {
			return false
		}
	}
	return true
}

// verification is the result of verifying one presented chain.
type verification struct {
	pool     *pool
	outcomes []outcome // indexed by source
}

// outcome is the result of a verification for one source. The zero value means that the
// certificate belongs to another source.
type outcome struct {
	user user.Info
	// issuers has, for each chain, the certificates above the leaf. The authority is last.
	issuers [][]*x509.Certificate
	until   time.Time // when the first certificate of the chains expires
	err     error
}

// verify returns the result for the presented chain, which may be cached.
func (v *Verifier) verify(presented []*x509.Certificate) *verification {
	key := keyOf(presented)
	authorities := v.authorities()
	for _, results := range []*cache.LRUExpireCache{v.accepted, v.rejected} {
		if hit, ok := results.Get(key); ok {
			if found := hit.(*verification); found.pool == authorities {
				return found
			}
		}
	}
	now := v.now()
	found := &verification{authorities, make([]outcome, len(v.sources))}
	chains, err := verifyChains(presented, authorities.roots, now)
	separate := isOtherError(err) || slices.ContainsFunc(authorities.bySource, func(a *Authorities) bool {
		return slices.ContainsFunc(a.certificates, presented[0].Equal)
	})
	for i, s := range v.sources {
		if separate {
			chains, err = verifyChains(presented, authorities.bySource[i].pool(), now)
		}
		found.outcomes[i] = s.outcome(authorities.bySource[i], chains, err)
	}
	var until time.Time // when the first accepted chain expires
	for _, o := range found.outcomes {
		if o.user != nil && (until.IsZero() || o.until.Before(until)) {
			until = o.until
		}
	}
	if until.IsZero() {
		v.rejected.Add(key, found, refusedFor)
	} else {
		v.accepted.Add(key, found, until.Sub(now))
	}
	return found
}

// isOtherError reports whether an error may be caused by the authorities of other sources. Go
// limits the number of signatures that it checks (crypto/x509, Go 1.26), and many authorities may
// have the same name.
func isOtherError(err error) bool {
	unknown, invalid := x509.UnknownAuthorityError{}, x509.CertificateInvalidError{}
	return err != nil && !errors.As(err, &unknown) && !errors.As(err, &invalid)
}

// verifyChains returns the chains to roots, and the reason why the leaf is not valid now. It
// returns both if the leaf leads to roots but is not valid. Go checks the validity of a certificate
// before it searches for the authority. Therefore, verifyChains verifies an invalid leaf again, at
// the end of its validity and for any usage. The second verification only determines the authority
// of the leaf. Its errors about time are ignored, because they would be about another time.
func verifyChains(presented []*x509.Certificate, roots *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	o := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	chains, err := chainsOf(presented, o)
	invalid := x509.CertificateInvalidError{}
	if !errors.As(err, &invalid) {
		return chains, err
	}
	o.CurrentTime = presented[0].NotAfter
	o.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	chains, lenient := chainsOf(presented, o)
	if lenient != nil && !errors.As(lenient, &x509.CertificateInvalidError{}) {
		return chains, lenient
	}
	if invalid.Cert != nil && !invalid.Cert.Equal(presented[0]) {
		err = fmt.Errorf("the issuing certificate %q: %w", invalid.Cert.Subject, err)
	}
	return chains, err
}

// Chains returns all chains that upstream's authenticator finds from the first presented
// certificate to roots. The authority is last.
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

// keyOf hashes the whole presented chain, because intermediates affect the result. It includes the
// length of each certificate.
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
