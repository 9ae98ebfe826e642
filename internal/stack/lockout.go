// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"crypto/x509"
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// errLockedOut is the error for a new version of a configuration that would reject the certificates
// of the control plane and of the cluster's admins. The admins could then not repair the
// configuration.
var errLockedOut = errors.New("authentication.sources: the server would reject the certificates of " +
	user.SystemPrivilegedGroup + ", which its client CA issues: the first x509 source with this CA must have system in " +
	"tenants and " + user.SystemPrivilegedGroup + " in systemOrganizations")

// acceptsAdmins reports whether the holders of certificates for the group system:masters from the
// server's client CA authenticate as callers of the system tenant. The first x509 source that
// contains this CA decides. If no source contains it, the server's own authenticator accepts
// them. bundles contains the CA bundles of the x509 sources, in the order of sources. The result
// is also true if ownCA contains no certificate.
func acceptsAdmins(ownCA []byte, sources []configv1alpha1.Source, bundles []func() []byte) bool {
	own, err := cert.ParseCertsPEM(ownCA)
	if err != nil {
		return true
	}
	i := 0
	for _, source := range sources {
		if source.X509 == nil {
			continue
		}
		authorities, err := cert.ParseCertsPEM(bundles[i]())
		if i++; err != nil || !slices.ContainsFunc(authorities, func(c *x509.Certificate) bool {
			return slices.ContainsFunc(own, c.Equal)
		}) {
			continue
		}
		tenants, err := tenant.ParseSet(source.Tenants)
		return err == nil && tenants.Has(tenant.System()) &&
			slices.Contains(source.X509.SystemOrganizations, user.SystemPrivilegedGroup)
	}
	return true
}
