// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package x509

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// marker is the text before the colon and the tenant in an organization or a common name.
const marker = "tenant"

// TenantOf returns the tenant and the groups that a certificate's subject names. The error
// describes the problem with the subject. TenantOf does not verify a certificate. It is for
// tools that check a subject before it is signed.
func TenantOf(name pkix.Name, o Options) (tenant.ID, []string, error) {
	if name.CommonName == "" {
		return tenant.ID{}, nil, errNoCommonName
	}
	s := subject{o.SystemOrganizations, o.SystemUsers, o.DenyOldFormat}
	return s.tenantAndGroups(name.CommonName, name.Organization, name.OrganizationalUnit)
}

// errPrivileged rejects the group system:masters in a new-format certificate. Kube-apiserver
// refuses to sign client certificates for this group (k8s.io/kubernetes
// plugin/pkg/admission/certificates/subjectrestriction), but checks organizations only. A caller
// that may approve certificates must not get rights that cannot be revoked.
var errPrivileged = errors.New("the certificate has the organizational unit " + user.SystemPrivilegedGroup +
	": only an organization of the old format may have this name")

var errNoCommonName = errors.New("the certificate has no common name")

// subject interprets the subject of a verified certificate. It implements upstream's
// UserConversion.
type subject struct {
	systemOrganizations []string
	systemUsers         []string
	denyOldFormat       bool
}

// User implements [x509request.UserConversion]. It returns upstream's identity, with the tenant
// and the groups that the subject names.
func (s subject) User(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	name := chain[0].Subject
	if name.CommonName == "" {
		return nil, false, errNoCommonName
	}
	resp, ok, err := x509request.CommonNameUserConversion.User(chain)
	if err != nil || !ok {
		return nil, false, err
	}
	id, groups, err := s.tenantAndGroups(name.CommonName, name.Organization, name.OrganizationalUnit)
	if err != nil {
		return nil, false, err
	}
	bound := tenant.Bind(resp.User, id)
	bound.Groups = groups
	resp.User = bound
	return resp, true, nil
}

func (s subject) tenantAndGroups(commonName string, organizations, units []string) (tenant.ID, []string, error) {
	if slices.ContainsFunc(organizations, isTenantOrganization) {
		if slices.Contains(units, user.SystemPrivilegedGroup) {
			return tenant.ID{}, nil, errPrivileged
		}
		id, err := newFormat(organizations)
		return id, slices.Clone(units), err
	}
	if s.denyOldFormat {
		return tenant.ID{}, nil, errors.New("the certificate has no tenant organization, and the old format is not allowed")
	}
	id, err := s.oldFormat(commonName, organizations)
	return id, slices.Clone(organizations), err
}

func isTenantOrganization(organization string) bool {
	return organization == marker || strings.HasPrefix(organization, marker+":")
}

func newFormat(organizations []string) (tenant.ID, error) {
	if len(organizations) != 1 {
		return tenant.ID{}, errors.New("the certificate has a tenant organization and another organization")
	}
	name := strings.TrimPrefix(strings.TrimPrefix(organizations[0], marker), ":")
	id, err := tenant.Parse(name)
	if err != nil {
		return tenant.ID{}, fmt.Errorf("tenant organization of the certificate: %w", err)
	}
	return id, nil
}

func (s subject) oldFormat(commonName string, organizations []string) (tenant.ID, error) {
	rest := strings.TrimPrefix(commonName, marker+":")
	name, _, found := strings.Cut(rest, ":")
	if !found && rest == commonName {
		if slices.Contains(s.systemUsers, commonName) ||
			slices.ContainsFunc(organizations, func(o string) bool { return slices.Contains(s.systemOrganizations, o) }) {
			return tenant.System(), nil
		}
		return tenant.ID{}, errors.New("the certificate does not name a tenant")
	}
	id, err := tenant.Parse(name)
	if err != nil {
		return tenant.ID{}, fmt.Errorf("tenant in the common name of the certificate: %w", err)
	}
	return id, nil
}

// earliestExpiry returns the earliest expiry of the certificates.
func earliestExpiry(chain []*x509.Certificate) time.Time {
	first := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}

// latestExpiry returns the expiry of the chain that expires last.
func latestExpiry(chains [][]*x509.Certificate) (end time.Time) {
	for _, chain := range chains {
		if until := earliestExpiry(chain); until.After(end) {
			end = until
		}
	}
	return end
}
