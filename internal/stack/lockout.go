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

// errLockedOut rejects a new version of a configuration. With it, no caller could use the
// certificates of the control plane and of the cluster's admins, which repair such a configuration.
var errLockedOut = errors.New("authentication.sources: the server would reject the certificates of " +
	user.SystemPrivilegedGroup + ", which its client CA issues: the first x509 source with this CA must have system in " +
	"tenants and " + user.SystemPrivilegedGroup + " in systemOrganizations")

// acceptsAdmins reports whether certificates of the group system:masters that the server's client
// CA issued authenticate callers of the system tenant. The first x509 source that has a certificate
// of this CA decides. If there is none, the server's own authenticator decides. bundles are those
// of the x509 sources, in their order. The result is true if there is no such CA.
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
