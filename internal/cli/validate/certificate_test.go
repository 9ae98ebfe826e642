// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// newKey returns an RSA key with the given number of bits, or an ECDSA key if bits is zero.
func newKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); bits > 0 {
		key, err = rsa.GenerateKey(rand.Reader, bits) // #nosec G403 -- the test needs weak keys
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request returns a certificate request in PEM. If breaks is not nil, it modifies the DER
// encoding.
func request(t *testing.T, key crypto.Signer, subject pkix.Name, breaks func([]byte)) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	if breaks != nil {
		breaks(der)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func named(user, organization string, units ...string) pkix.Name {
	name := pkix.Name{CommonName: user, OrganizationalUnit: units}
	if organization != "" {
		name.Organization = strings.Split(organization, ",")
	}
	return name
}

// TestSubjects checks that a subject must name a user and one tenant, and may not have a reserved
// name.
func TestSubjects(t *testing.T) {
	key := newKey(t, 0)
	for name, c := range map[string]struct {
		subject pkix.Name
		want    []string
	}{
		"good": {named("alice", "tenant:acme", "dev"), nil},
		"no user": {
			named("", "tenant:acme"),
			[]string{
				"2:1: the certificate has no common name | write the subject /CN=USER/O=tenant:TENANT with an /OU=GROUP for " +
					"each group",
			},
		},
		"no tenant": {
			named("alice", "dev"),
			[]string{
				"2:1: the certificate does not name a tenant | " +
					"write the subject /CN=USER/O=tenant:TENANT with an /OU=GROUP for each group",
			},
		},
		"two tenants": {
			named("alice", "tenant:acme,tenant:globex"),
			[]string{
				"2:1: the certificate has a tenant organization and another organization | write the subject " +
					"/CN=USER/O=tenant:TENANT with an /OU=GROUP for each group",
			},
		},
		"invalid tenant": {
			named("alice", "tenant:a b"),
			[]string{
				"2:1: tenant organization of the certificate: invalid tenant: not a valid label value | write the subject " +
					"/CN=USER/O=tenant:TENANT with an /OU=GROUP for each group",
			},
		},
		"reserved user": {
			named("system:admin", "tenant:acme"),
			[]string{`2:1: the user name "system:admin" is the system tenant's | use names that do not begin with system:`},
		},
		"reserved group": {
			named("alice", "tenant:acme", "system:nodes"),
			[]string{`2:1: the group "system:nodes" is the system tenant's | use names that do not begin with system:`},
		},
		"reserved names in the system tenant": {named("system:admin", "tenant:system", "system:nodes"), nil},
		"old format": {
			named("tenant:acme:alice", "dev"),
			[]string{
				"2:1: warning: the old format is ambiguous: the names make this tenant acme | " +
					"write O=tenant:acme, and groups as OU",
			},
		},
		"system:masters": {
			named("admin", "system:masters"),
			[]string{
				"2:1: kube-apiserver refuses to sign the organization system:masters | remove it, and " +
					"bind cluster-admin to a user or group of the system tenant instead",
				"2:1: warning: the old format is ambiguous: the names make this tenant system | write O=tenant:system, " +
					"and groups as OU",
			},
		},
		"names with white space": {
			named("alice ", "tenant:acme"),
			[]string{
				"2:1: the user name begins or ends with white space | remove the leading and trailing white space",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := found(t, file(t, "a.pem", "one line before\n"+string(request(t, key, c.subject, nil))), "")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestKeys checks that a request must be signed with its own key, and that an RSA key must have at
// least 2048 bits.
func TestKeys(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key    crypto.Signer
		breaks func([]byte)
		want   []string
	}{
		"ECDSA":            {newKey(t, 0), nil, nil},
		"Ed25519":          {edwards, nil, nil},
		"RSA, long enough": {newKey(t, 2048), nil, nil},
		"RSA, too short": {
			newKey(t, 1024), nil, []string{"1:1: the RSA key has 1024 bits | use ECDSA P-256, or at least 2048 bits"},
		},
		"invalid signature": {
			newKey(t, 2048),
			func(der []byte) { der[len(der)-1] ^= 1 },
			[]string{"1:1: the request is not signed with its key | create it again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := found(t, file(t, "a.pem", string(request(t, c.key, named("alice", "tenant:acme"), c.breaks))), "")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSigningRequest checks that a CertificateSigningRequest must request a client certificate.
// Problems of the certificate request in it are reported as well.
func TestSigningRequest(t *testing.T) {
	const object = "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: { name: alice }\n" +
		"spec:\n  signerName: %s\n  usages: [%s]\n%s  request: %s\n"
	inside := func(subject pkix.Name) string {
		return base64.StdEncoding.EncodeToString(request(t, newKey(t, 0), subject, nil))
	}
	good := inside(named("alice", "tenant:acme"))
	const signer, usages, expiry = "kubernetes.io/kube-apiserver-client", "digital signature, client auth",
		"  expirationSeconds: 86400\n"
	checkFindings(t, "", map[string]finding{
		"good": {fmt.Sprintf(object, signer, usages, expiry, good), nil},
		"another signer": {
			fmt.Sprintf(object, "example.com/other", usages, expiry, good),
			[]string{
				"5:3: spec.signerName: is not the signer of client certificates | write kubernetes.io/kube-apiserver-client",
			},
		},
		"no client auth": {
			fmt.Sprintf(object, signer, "server auth", expiry, good),
			[]string{`6:3: spec.usages: has no client auth | write usages: ["digital signature", "client auth"]`},
		},
		"no expiry": {
			fmt.Sprintf(object, signer, usages, "", good),
			[]string{
				"4:1: warning: spec.expirationSeconds: is not set, so the signer may choose a year | " +
					"write expirationSeconds: 86400",
			},
		},
		"not PEM": {
			fmt.Sprintf(object, signer, usages, expiry, "AAAA"),
			[]string{"8:3: spec.request: is not PEM | set it to the base64-encoded PEM file: base64 -w0 request.pem"},
		},
		"no tenant": {
			fmt.Sprintf(object, signer, usages, expiry, inside(named("alice", ""))),
			[]string{
				"8:3: spec.request: the certificate does not name a tenant | " +
					"write the subject /CN=USER/O=tenant:TENANT with an /OU=GROUP for each group",
			},
		},
		"field that the API server sets": {
			fmt.Sprintf(object, signer, usages, "  groups: [dev]\n", good),
			[]string{
				"4:1: warning: spec.expirationSeconds: is not set, so the signer may choose a year | " +
					"write expirationSeconds: 86400",
			},
		},
	})
	broken := request(t, newKey(t, 0), named("alice", "tenant:acme"), func(der []byte) { der[0] = 0 })
	if got := found(t, file(t, "a.pem", string(broken)), ""); len(got) != 1 ||
		!strings.HasPrefix(got[0], "1:1: is not a certificate request: ") ||
		!strings.Contains(got[0], "| create it again with ") {
		t.Errorf("PEM with an invalid request: %v", got)
	}
	if got := found(t, file(t, "a", "neither\n"), validate.Certificate); len(got) != 1 ||
		!strings.Contains(got[0], "or PEM") {
		t.Errorf("text that is neither PEM nor an object: %v", got)
	}
}
