// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
)

var names = &tenant.SystemNames{
	Users:         []string{"root"},
	Groups:        []string{"system:masters"},
	Organizations: []string{"kubeadm:cluster-admins"},
}

func caller(id string) user.Info {
	return &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {id}}}
}

func validate(t *testing.T, a admission.Attributes) error {
	t.Helper()
	return rolebinding.New(rolebinding.Options{
		Names:   names,
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner: func(context.Context, string) (tenant.ID, error) {
			id, _ := tenant.Parse("a")
			return id, errors.New("away")
		},
	}).Validate(t.Context(), a, nil)
}

func request(t *testing.T, subject pkix.Name, by user.Info) admission.Attributes {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return requestOf(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), by)
}

func requestOf(text []byte, by user.Info) admission.Attributes {
	return admission.NewAttributesRecord(&certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: text},
	}, nil,
		certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), "", "x",
		certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"),
		"", admission.Create, nil, false, by)
}

// TestCertificateRequests checks that only callers of the system tenant may request certificates
// for a tenant's name or a reserved name.
func TestCertificateRequests(t *testing.T) {
	nobody := &user.DefaultInfo{Name: "nobody"}
	for name, c := range map[string]struct {
		subject pkix.Name
		by      user.Info
		refused bool
	}{
		"a tenant, new format": {pkix.Name{CommonName: "eve", Organization: []string{"tenant:a"}}, nobody, true},
		"a tenant among others": {
			pkix.Name{CommonName: "eve", Organization: []string{"x", "tenant:a"}}, nobody, true,
		},
		"only the marker":      {pkix.Name{CommonName: "eve", Organization: []string{"tenant"}}, nobody, true},
		"a tenant, old format": {pkix.Name{CommonName: "a:eve"}, nobody, true},
		"a tenant, user name":  {pkix.Name{CommonName: "tenant:a"}, nobody, true},
		"masters": {
			pkix.Name{CommonName: "eve", Organization: []string{"system:masters"}}, nobody, true,
		},
		"kubeadm's admins": {
			pkix.Name{CommonName: "eve", Organization: []string{"kubeadm:cluster-admins"}}, nobody, true,
		},
		"a reserved user": {pkix.Name{CommonName: "root"}, nobody, true},
		"by a caller of that tenant": {
			pkix.Name{CommonName: "eve", Organization: []string{"tenant:a"}}, caller("a"), true,
		},
		"by the system tenant": {
			pkix.Name{CommonName: "eve", Organization: []string{"tenant:a"}}, caller("system"), false,
		},
		"by the system tenant, old": {pkix.Name{CommonName: "a:eve"}, caller("system"), false},
		"another name, no tenant":   {pkix.Name{CommonName: "eve", Organization: []string{"dev"}}, nobody, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := validate(t, request(t, c.subject, c.by)); (err != nil) != c.refused {
				t.Errorf("%v", err)
			}
		})
	}
	for _, text := range [][]byte{
		nil, []byte("x"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")}),
	} {
		if err := validate(t, requestOf(text, nobody)); err == nil {
			t.Errorf("%q is admitted", text)
		}
	}
}

// TestFailedLookupsAreDenied checks that a RoleBinding is denied if a lookup fails.
func TestFailedLookupsAreDenied(t *testing.T) {
	binding := &rbacv1.RoleBinding{
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "a--web", Name: "x"}},
	}
	a := admission.NewAttributesRecord(binding, nil, rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), "a--web", "x",
		rbacv1.SchemeGroupVersion.WithResource("rolebindings"), "", admission.Create, nil, false, caller("a"))
	if err := validate(t, a); err == nil {
		t.Error("admitted")
	}
}
