// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	ours "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/tenant"
)

// certificates returns the findings for a certificate request in PEM, or for
// CertificateSigningRequests.
func certificates(f *file, docs []document) []Finding {
	if block, _ := pem.Decode(f.data); block != nil {
		before, _, _ := bytes.Cut(f.data, []byte("-----BEGIN"))
		at := Finding{Line: 1 + bytes.Count(before, []byte("\n")), Column: 1}
		return requested(block.Bytes, at)
	}
	if len(docs) == 0 {
		return []Finding{{
			Line:   1,
			Reason: "is neither PEM nor a CertificateSigningRequest",
			Fix:    "write a CertificateSigningRequest of certificates.k8s.io/v1, or PEM",
		}}
	}
	var found []Finding
	for i := range docs {
		found = append(found, signingRequest(&docs[i])...)
	}
	return found
}

// signingRequest returns the findings for a CertificateSigningRequest.
func signingRequest(d *document) []Finding {
	if twice := d.duplicates(); len(twice) > 0 {
		return twice
	}
	value, err := d.value()
	if err != nil {
		return []Finding{d.at("", err.Error(), "write a CertificateSigningRequest of certificates.k8s.io/v1, or PEM")}
	}
	var found []Finding
	for _, m := range mismatches(typeOf[certificatesv1.CertificateSigningRequest](), value, "") {
		found = append(found, m.finding(d))
	}
	object := &certificatesv1.CertificateSigningRequest{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(value, object); err != nil {
		if len(found) == 0 {
			found = append(found, d.at("", err.Error(), "write a CertificateSigningRequest of certificates.k8s.io/v1, or PEM"))
		}
		return found
	}
	if object.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		found = append(found, d.at("spec.signerName", "is not the signer of client certificates",
			"write "+certificatesv1.KubeAPIServerClientSignerName))
	}
	if !slices.Contains(object.Spec.Usages, certificatesv1.UsageClientAuth) {
		found = append(found, d.at("spec.usages", "has no client auth", `write usages: ["digital signature", "client auth"]`))
	}
	if object.Spec.ExpirationSeconds == nil {
		w := d.at("spec.expirationSeconds", "is not set, so the signer may choose a year", "write expirationSeconds: 86400")
		w.Severity = Warning
		found = append(found, w)
	}
	block, _ := pem.Decode(object.Spec.Request)
	if block == nil {
		return append(found,
			d.at("spec.request", "is not PEM", "set it to the base64-encoded PEM file: base64 -w0 request.pem"))
	}
	return append(found, requested(block.Bytes, d.at("spec.request", "", ""))...)
}

// requested returns the findings for a certificate request in DER. All findings have the position
// of at.
func requested(der []byte, at Finding) []Finding {
	var found []Finding
	add := func(warning bool, text, fix string) {
		f := at
		f.Reason, f.Fix = text, fix
		if warning {
			f.Severity = Warning
		}
		found = append(found, f)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		add(false, "is not a certificate request: "+err.Error(),
			"create it again with openssl req -new, or use kubectl tenant gen-kubeconfig")
		return found
	}
	if err := request.CheckSignature(); err != nil {
		add(false, "the request is not signed with its key", "create it again")
	}
	switch key := request.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < 2048 {
			add(false, fmt.Sprintf("the RSA key has %d bits", key.N.BitLen()), "use ECDSA P-256, or at least 2048 bits")
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		add(false, "the key is of an unknown kind", "use ECDSA P-256")
	}
	for _, o := range request.Subject.Organization {
		if o == "system:masters" {
			add(false, "kube-apiserver refuses to sign the organization system:masters",
				"remove it, and bind cluster-admin to a user or group of the system tenant instead")
		}
	}
	id, groups, err := ours.TenantOf(request.Subject,
		ours.Options{SystemOrganizations: []string{"system:masters", "kubeadm:cluster-admins"}})
	if err != nil {
		add(false, err.Error(), "write the subject /CN=USER/O=tenant:TENANT with an /OU=GROUP for each group")
		return found
	}
	caller := &user.DefaultInfo{Name: request.Subject.CommonName, Groups: groups}
	if err := tenant.DefaultLimits().Check(caller); err != nil {
		add(false, err.Error(), credentialFix(err.Error()))
	}
	names, err := defaultNames()
	if err == nil {
		err = reserved(names, request.Subject.CommonName, groups, id)
	}
	if err != nil {
		add(false, err.Error(), "use names that do not begin with system:")
	}
	if len(request.Subject.Organization) != 1 || !strings.HasPrefix(request.Subject.Organization[0], "tenant:") {
		add(true, fmt.Sprintf("the old format is ambiguous: the names make this tenant %s", id),
			"write O=tenant:"+id.String()+", and groups as OU")
	}
	return found
}
