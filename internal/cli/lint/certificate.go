package lint

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
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	ours "github.com/kubetenant/kubetenant/authn/x509"
	"github.com/kubetenant/kubetenant/tenant"
)

// certificate returns the problems of a certificate request: PEM, or a CertificateSigningRequest.
func certificate(data []byte) []Problem {
	block, _ := pem.Decode(data)
	if block != nil {
		return requested(block.Bytes, line(data, "-----BEGIN"))
	}
	object := &certificatesv1.CertificateSigningRequest{}
	if err := yaml.UnmarshalStrict(data, object); err != nil {
		return []Problem{{
			Text: strings.ReplaceAll(err.Error(), "\n", "; "),
			Fix:  "a CertificateSigningRequest of certificates.k8s.io/v1, or PEM",
		}}
	}
	var found []Problem
	if object.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		found = append(found, Problem{
			Line: line(data, "signerName"),
			Text: "spec.signerName is not that of clients' certificates",
			Fix:  "write " + certificatesv1.KubeAPIServerClientSignerName,
		})
	}
	if !slices.Contains(object.Spec.Usages, certificatesv1.UsageClientAuth) {
		found = append(found, Problem{
			Line: line(data, "usages"),
			Text: "spec.usages has no client auth",
			Fix:  `write usages: ["digital signature", "client auth"]`,
		})
	}
	if object.Spec.ExpirationSeconds == nil {
		found = append(found, Problem{
			Line:    line(data, "spec"),
			Warning: true,
			Text:    "spec.expirationSeconds is not given: the signer may make it a year",
			Fix:     "write expirationSeconds: 86400",
		})
	}
	at := line(data, "request")
	block, _ = pem.Decode(object.Spec.Request)
	if block == nil {
		return append(found,
			Problem{Line: at, Text: "spec.request is no PEM", Fix: "write the base64 of the PEM file: base64 -w0 request.pem"})
	}
	return append(found, requested(block.Bytes, at)...)
}

// line returns the line on which a word begins; 1 where there is none.
func line(data []byte, word string) int {
	number := 0
	for text := range bytes.Lines(data) {
		number++
		if bytes.HasPrefix(bytes.TrimSpace(text), []byte(word)) {
			return number
		}
	}
	return 1
}

// requested returns the problems of a request itself.
func requested(der []byte, at int) []Problem {
	var found []Problem
	add := func(warning bool, text, fix string) {
		found = append(found, Problem{
			Line:    at,
			Warning: warning,
			Text:    text,
			Fix:     fix,
		})
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		add(false, "no certificate request: "+err.Error(), "make it anew: openssl req -new, or kubectl tenant gen-kubeconfig")
		return found
	}
	if err := request.CheckSignature(); err != nil {
		add(false, "the request is not signed with its key", "make it anew")
	}
	switch key := request.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < 2048 {
			add(false, fmt.Sprintf("an RSA key of %d bits", key.N.BitLen()), "use ECDSA P-256, or at least 2048 bits")
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		add(false, "a key of an unknown kind", "use ECDSA P-256")
	}
	for _, o := range request.Subject.Organization {
		if o == "system:masters" {
			add(false, "the organization system:masters, which kube-apiserver refuses to sign",
				"leave it out: bind cluster-admin to a user or group of the system tenant instead")
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
		add(true, fmt.Sprintf("the old format: it is tenant %s's because of its names", id),
			"write O=tenant:"+id.String()+", and groups as OU")
	}
	return found
}
