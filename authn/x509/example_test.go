// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package x509_test

import (
	"crypto/x509/pkix"
	"fmt"

	"github.com/kubetenant/kubetenant/authn/x509"
)

// An organization of the subject names the tenant. The organizational units are the groups.
func ExampleTenantOf() {
	id, groups, err := x509.TenantOf(pkix.Name{
		CommonName:         "alice",
		Organization:       []string{"tenant:acme"},
		OrganizationalUnit: []string{"dev"},
	}, x509.Options{})
	fmt.Println(id, groups, err)
	_, _, err = x509.TenantOf(pkix.Name{CommonName: "alice", Organization: []string{"tenant:acme", "tenant:globex"}},
		x509.Options{})
	fmt.Println(err != nil)
	// Output:
	// acme [dev] <nil>
	// true
}
