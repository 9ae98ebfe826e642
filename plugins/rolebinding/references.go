package rolebinding

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	requestKind = certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	serviceKind = corev1.SchemeGroupVersion.WithKind("Service")
	claimKind   = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
)

var (
	errRequest     = errors.New("the certificate request cannot be read")
	errSubject     = errors.New("only the system tenant's callers may ask for the certificate of a tenant's or a reserved name")
	errExternalIPs = errors.New("spec.externalIPs may not be set in this tenant's namespaces")
	errVolumeName  = errors.New("spec.volumeName may not be set by a tenant")
)

// checkRequest refuses a certificate that would make somebody a tenant's, in the new format or the
// old: see package x509.
func (p *plugin) checkRequest(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	is, err := plugins.Versioned[certificatesv1.CertificateSigningRequest](a.GetObject(), requestKind, o)
	if err != nil {
		return err
	}
	block, rest := pem.Decode(is.Spec.Request)
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return errRequest
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return errRequest
	}
	subject := request.Subject
	marker := strings.TrimSuffix(tenant.GroupPrefix, ":")
	if strings.Contains(subject.CommonName, ":") || p.Names.ReservedUser(subject.CommonName) ||
		slices.ContainsFunc(subject.Organization, func(name string) bool { return name == marker || p.Names.ReservedGroup(name) }) {
		return errSubject
	}
	return nil
}

// checkService is off by default.
func (p *plugin) checkService(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	is, err := plugins.Versioned[corev1.Service](a.GetObject(), serviceKind, o)
	if err != nil || len(is.Spec.ExternalIPs) == 0 {
		return err
	}
	if a.GetOperation() == admission.Update {
		was, err := plugins.Versioned[corev1.Service](a.GetOldObject(), serviceKind, o)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(is.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(was.Spec.ExternalIPs, ip) }) {
			return nil
		}
	}
	return errExternalIPs
}

// checkClaim is off by default.
func (p *plugin) checkClaim(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	is, err := plugins.Versioned[corev1.PersistentVolumeClaim](a.GetObject(), claimKind, o)
	if err != nil || is.Spec.VolumeName == "" {
		return err
	}
	if a.GetOperation() == admission.Update {
		was, err := plugins.Versioned[corev1.PersistentVolumeClaim](a.GetOldObject(), claimKind, o)
		if err != nil || was.Spec.VolumeName == is.Spec.VolumeName {
			return err
		}
	}
	return errVolumeName
}

// isFromTemplate reports whether a controller creates a claim in tenant space, from what a tenant wrote.
func (p *plugin) isFromTemplate(ctx context.Context, a admission.Attributes) (bool, error) {
	m, err := meta.Accessor(a.GetObject())
	if err != nil || a.GetOperation() != admission.Create || metav1.GetControllerOfNoCopy(m) == nil {
		return false, nil //nolint:nilerr // no claim
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	return !owner.IsSystem(), err
}
