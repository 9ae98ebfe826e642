// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// KindRevocation is the kind of the file that authentication.revocation.path specifies.
const KindRevocation = "Revocation"

// Revocation specifies credentials and callers that are no longer valid. It applies to every source
// of identities. Without entries, it revokes nothing. Active watches, followed logs, exec, attach
// and port-forward of a revoked caller end.
//
// +kubebuilder:object:root=true
type Revocation struct {
	metav1.TypeMeta `json:",inline"`
	// certificates specifies the revoked client certificates. Every request on a connection with such
	// a certificate is denied.
	// +optional
	Certificates []RevokedCertificate `json:"certificates,omitempty"`
	// tokens specifies the revoked JSON Web Tokens of service accounts and of OpenID Connect issuers.
	// +optional
	Tokens []RevokedToken `json:"tokens,omitempty"`
	// users specifies the revoked users of tenants.
	// +optional
	Users []RevokedUser `json:"users,omitempty"`
	// serviceAccounts specifies the UIDs of the revoked service accounts.
	// +optional
	ServiceAccounts []RevokedServiceAccount `json:"serviceAccounts,omitempty"`
	// tenants specifies the tenants whose callers are all revoked. Must not contain the system tenant.
	// +optional
	Tenants []RevokedTenant `json:"tenants,omitempty"`
}

// RevokedCertificate specifies a certificate by its serial number and issuer, or by its SHA-256
// fingerprint.
type RevokedCertificate struct {
	// serial specifies the serial number in hexadecimal digits, with or without colons, as "openssl
	// x509 -serial" prints it. Required with issuer. Mutually exclusive with sha256.
	Serial string `json:"serial,omitempty"`
	// issuer specifies the issuer in the form of RFC 2253, as "openssl x509 -issuer -nameopt RFC2253"
	// prints it. Required with serial. Mutually exclusive with sha256.
	Issuer string `json:"issuer,omitempty"`
	// sha256 specifies the SHA-256 fingerprint of the DER form in 64 hexadecimal digits, with or
	// without colons. The prefix X509SHA256= of the extra credential-id is ignored. Mutually exclusive
	// with serial and issuer.
	SHA256 string `json:"sha256,omitempty"`
}

// RevokedToken specifies JSON Web Tokens of an issuer. A token is revoked if it matches every field
// that is set. At least one of id, subject and issuedBefore must be set.
type RevokedToken struct {
	// issuer specifies the claim iss. Required.
	// +required
	Issuer string `json:"issuer"`
	// id specifies the claim jti. The prefix JTI= of the extra credential-id is ignored.
	ID string `json:"id,omitempty"`
	// subject specifies the claim sub.
	Subject string `json:"subject,omitempty"`
	// issuedBefore specifies a time. Tokens whose claim iat is earlier are revoked. Tokens without
	// this claim are also revoked.
	IssuedBefore *metav1.Time `json:"issuedBefore,omitempty"`
}

// RevokedUser specifies a user of a tenant.
type RevokedUser struct {
	// tenant specifies the tenant of the user. Required.
	// +required
	Tenant string `json:"tenant"`
	// name specifies the name of the user, as "kubectl auth whoami" prints it. Required.
	// +required
	Name string `json:"name"`
}

// RevokedServiceAccount specifies a service account by its UID. A new service account with the same
// name is not revoked.
type RevokedServiceAccount struct {
	// uid specifies the UID of the ServiceAccount. Required.
	// +required
	UID string `json:"uid"`
}

// RevokedTenant specifies a tenant whose callers are revoked.
type RevokedTenant struct {
	// name specifies the name of the tenant. Must not be system. Required.
	// +required
	Name string `json:"name"`
}

// DecodeRevocation decodes and validates a file of kind Revocation. It normalizes hexadecimal
// digits to lower case without colons, and serial numbers to digits without leading zeros.
func DecodeRevocation(data []byte) (*Revocation, error) {
	r := &Revocation{}
	problems, err := decodeOne(data, KindRevocation, r)
	if err != nil {
		return nil, err
	}
	for _, p := range r.validate() {
		problems = append(problems, p)
	}
	if len(problems) > 0 {
		return nil, utilerrors.NewAggregate(problems)
	}
	return r, nil
}

func (r *Revocation) validate() field.ErrorList {
	var errs field.ErrorList
	for i := range r.Certificates {
		errs = append(errs, r.Certificates[i].normalise(field.NewPath("certificates").Index(i))...)
	}
	for i := range r.Tokens {
		t := &r.Tokens[i]
		p := field.NewPath("tokens").Index(i)
		t.ID = strings.TrimPrefix(t.ID, "JTI=")
		if t.Issuer == "" {
			errs = append(errs, field.Required(p.Child("issuer"), ""))
		}
		errs = append(errs, validateIssuerForm(t.Issuer, p.Child("issuer"))...)
		if t.ID == "" && t.Subject == "" && (t.IssuedBefore == nil || t.IssuedBefore.IsZero()) {
			errs = append(errs, field.Required(p, "must have id, subject or issuedBefore"))
		}
	}
	for i, u := range r.Users {
		p := field.NewPath("users").Index(i)
		if u.Name == "" {
			errs = append(errs, field.Required(p.Child("name"), ""))
		}
		if _, err := tenant.Parse(u.Tenant); err != nil {
			errs = append(errs, field.Invalid(p.Child("tenant"), u.Tenant, err.Error()))
		}
	}
	for i, s := range r.ServiceAccounts {
		if !isUID.MatchString(s.UID) {
			errs = append(errs,
				field.Invalid(field.NewPath("serviceAccounts").Index(i).Child("uid"), s.UID, "must be the UID of a ServiceAccount"))
		}
	}
	for i, t := range r.Tenants {
		p := field.NewPath("tenants").Index(i).Child("name")
		if id, err := tenant.Parse(t.Name); err != nil {
			errs = append(errs, field.Invalid(p, t.Name, err.Error()))
		} else if id.IsSystem() {
			errs = append(errs, field.Forbidden(p, "the system tenant may not be revoked, because no caller could undo it"))
		}
	}
	return errs
}

func (c *RevokedCertificate) normalise(path *field.Path) field.ErrorList {
	if c.SHA256 != "" {
		if c.Serial != "" || c.Issuer != "" {
			return field.ErrorList{field.Forbidden(path.Child("serial"), "may not be set if sha256 is set")}
		}
		sum := digits(strings.TrimPrefix(c.SHA256, "X509SHA256="))
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
			return field.ErrorList{field.Invalid(path.Child("sha256"), c.SHA256, "must be 64 hexadecimal digits")}
		}
		c.SHA256 = sum
		return nil
	}
	var errs field.ErrorList
	serial := strings.TrimLeft(digits(c.Serial), "0")
	if strings.Trim(serial, "0123456789abcdef") != "" || c.Serial == "" {
		errs = append(errs, field.Invalid(path.Child("serial"), c.Serial, "must be hexadecimal digits"))
	}
	if c.Issuer == "" {
		errs = append(errs, field.Required(path.Child("issuer"),
			"must be set with serial, which is unique only for one issuer"))
	}
	if strings.Contains(c.Issuer, " = ") {
		errs = append(errs,
			field.Invalid(path.Child("issuer"), c.Issuer, "must have the form of RFC 2253, without spaces around ="))
	}
	if c.Serial = serial; serial == "" {
		c.Serial = "0"
	}
	return errs
}

// isUID matches the UIDs that a server assigns (RFC 9562, section 4).
var isUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func digits(s string) string { return strings.ToLower(strings.ReplaceAll(s, ":", "")) }

// decodeOne decodes data, which must contain exactly one YAML document.
func decodeOne(data []byte, kind string, into any) (problems []error, err error) {
	docs, err := yamlfile.Documents(data)
	if err != nil {
		return nil, err
	}
	if len(docs) != 1 {
		return nil, fmt.Errorf("must contain exactly one document, but has %d", len(docs))
	}
	return yamlfile.Unmarshal(docs[0], tenantv1alpha1.GroupVersion, kind, into)
}

// LoadRevocation reads a file of kind Revocation. If the file is of another kind, or cannot be
// read or parsed, it returns nil, false and no error. An error contains the path of the file.
func LoadRevocation(path string) (r *Revocation, is bool, err error) {
	data, err := yamlfile.Read(path)
	if err != nil {
		return nil, false, nil
	}
	docs, err := yamlfile.Documents(data)
	if err != nil || len(docs) == 0 {
		return nil, false, nil
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(docs[0], &kind); err != nil || kind.Kind != KindRevocation {
		return nil, false, nil
	}
	if r, err = DecodeRevocation(data); err != nil {
		return nil, true, fmt.Errorf("%s: %w", path, err)
	}
	return r, true, nil
}
