// Package x509 authenticates client certificates that name a tenant in their subject.
//
// New format: exactly one organization, "tenant:<id>"; the groups are the organizational units.
// Old format (no organization is "tenant" or begins "tenant:"): the tenant is the common name up
// to its first ":" or, where the common name begins "tenant:", between that and the next ":"; the
// groups are the organizations. The user name is the common name as it stands.
//
// Chains are verified by kube-apiserver's own authenticator (k8s.io/apiserver
// pkg/authentication/request/x509, v0.37.1); only what a verified chain means is decided here.
package x509

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// cacheEntries bounds how many presented chains are remembered: one for each client of a large
// cluster, about a kilobyte each.
const cacheEntries = 10_000

// Options say what certificates may be.
type Options struct {
	// SystemOrganizations make an old-format certificate without a tenant in its common name the
	// system tenant's.
	SystemOrganizations []string
	// DenyOldFormat refuses certificates without a tenant organization.
	DenyOldFormat bool
	// Now is the clock of the cache; nil means time.Now. Chains are verified by the machine's.
	Now func() time.Time
}

// New returns an authenticator of the certificates that verify answers for. It abstains without a
// certificate, where verify has no authorities yet, and on certificates of other authorities. Of
// its own authorities it refuses expired ones, ones not meant for clients, and those whose subject
// names no tenant or several, or has the unit system:masters.
//
// A chain that was accepted is remembered by the SHA-256 of all that was presented, until the
// first of the verified chain's certificates expires or verify answers with another pool.
//
// The identity is upstream's, UID and credential-id included, with tenant.ExtraKey added. It is
// audience-agnostic.
func New(verify x509request.VerifyOptionFunc, o Options) authenticator.Request {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &source{
		verify:   verify,
		upstream: x509request.NewDynamic(verify, subject{o.SystemOrganizations, o.DenyOldFormat}),
		seen:     cache.NewLRUExpireCacheWithClock(cacheEntries, clock(o.Now)),
		now:      o.Now,
	}
}

type source struct {
	verify   x509request.VerifyOptionFunc
	upstream authenticator.Request
	seen     *cache.LRUExpireCache // of chainKey to *accepted
	now      func() time.Time
}

type chainKey [sha256.Size]byte

// accepted is what one presented chain came to, under one pool of authorities.
type accepted struct {
	user  user.Info
	roots *x509.CertPool
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// AuthenticateRequest implements [authenticator.Request].
func (s *source) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ready := s.verify()
	if !ready {
		return nil, false, nil
	}
	presented := req.TLS.PeerCertificates
	key := keyOf(presented)
	if hit, ok := s.seen.Get(key); ok {
		if a := hit.(*accepted); a.roots == options.Roots {
			return &authenticator.Response{User: a.user}, true, nil
		}
	}
	resp, ok, err := s.upstream.AuthenticateRequest(req)
	if err != nil {
		if s.foreign(err, options, presented) {
			return nil, false, nil
		}
		return nil, false, err
	}
	if v, verified := verifiedUser(resp, ok); verified {
		s.seen.Add(key, &accepted{user: v.DefaultInfo, roots: options.Roots}, v.notAfter.Sub(s.now()))
		resp.User = v.DefaultInfo
	}
	return resp, ok, nil
}

// verifiedUser returns what our conversion made of a verified chain.
func verifiedUser(resp *authenticator.Response, ok bool) (*verified, bool) {
	if !ok || resp == nil {
		return nil, false
	}
	v, isOurs := resp.User.(*verified)
	return v, isOurs
}

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

// foreign reports whether err means that the certificate is of another authority. Go checks the
// leaf's validity before it looks for its authority, so an expired certificate is tried once more
// at a time when it was valid and for any usage: if that leads to none of ours, it is foreign.
func (s *source) foreign(err error, options x509.VerifyOptions, presented []*x509.Certificate) bool {
	if isUnknownAuthority(err) {
		return true
	}
	if invalid := (x509.CertificateInvalidError{}); !errors.As(err, &invalid) {
		return false
	}
	options.CurrentTime = presented[0].NotAfter
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	if options.Intermediates == nil {
		options.Intermediates = x509.NewCertPool()
		for _, c := range presented[1:] {
			options.Intermediates.AddCert(c)
		}
	}
	_, err = presented[0].Verify(options)
	return isUnknownAuthority(err)
}

func isUnknownAuthority(err error) bool {
	unknown := x509.UnknownAuthorityError{}
	return errors.As(err, &unknown)
}
