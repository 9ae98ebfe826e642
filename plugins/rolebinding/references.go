// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	requestKind     = certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	serviceKind     = corev1.SchemeGroupVersion.WithKind("Service")
	statefulSetKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	secretKind      = corev1.SchemeGroupVersion.WithKind("Secret")
	claimKind       = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
)

var (
	errRequest = errors.New("the certificate request cannot be read")
	errSubject = errors.New("only callers of the system tenant may request " +
		"a certificate for a tenant's name or a reserved name")
	errExternalIPs        = errors.New("spec.externalIPs may not be set in this tenant's namespaces")
	errVolume             = errors.New("may not be set by a tenant")
	errSource             = errors.New("names a namespace that the tenant does not own")
	errToken              = errors.New("only the tenant that owns the namespace may request a token of a service account")
	errOwnerUID           = errors.New("must name an existing object of this namespace and its UID")
	errBlockOwnerDeletion = errors.New("may not be set for a cluster-scoped owner")
)

// checkRequest denies a certificate request for a reserved name, or for a name that identifies a
// tenant's caller in the new or the old certificate format. Package authn/x509 describes the
// formats.
func (p *plugin) checkRequest(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, err := plugins.Versioned[certificatesv1.CertificateSigningRequest](a.GetObject(), requestKind, o)
	if err != nil {
		return err
	}
	block, rest := pem.Decode(obj.Spec.Request)
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return errRequest
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return errRequest
	}
	subject := request.Subject
	marker := strings.TrimSuffix(tenant.GroupPrefix, ":")
	isReserved := func(name string) bool { return name == marker || p.Names.ReservedGroup(name) }
	if strings.Contains(subject.CommonName, ":") || p.Names.ReservedUser(subject.CommonName) ||
		slices.ContainsFunc(subject.Organization, isReserved) {
		return errSubject
	}
	return nil
}

// checkService denies new external IP addresses. It is used only if ForbidExternalIPs is set.
func (p *plugin) checkService(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, err := plugins.Versioned[corev1.Service](a.GetObject(), serviceKind, o)
	if err != nil || len(obj.Spec.ExternalIPs) == 0 {
		return err
	}
	if a.GetOperation() == admission.Update {
		old, err := plugins.Versioned[corev1.Service](a.GetOldObject(), serviceKind, o)
		if err != nil {
			return err
		}
		isNew := func(ip string) bool { return !slices.Contains(old.Spec.ExternalIPs, ip) }
		if !slices.ContainsFunc(obj.Spec.ExternalIPs, isNew) {
			return nil
		}
	}
	return errExternalIPs
}

// checkClaim checks a PersistentVolumeClaim. By default, it checks only the namespace of the data
// source.
func (p *plugin) checkClaim(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, err := plugins.Versioned[corev1.PersistentVolumeClaim](a.GetObject(), claimKind, o)
	if err != nil {
		return err
	}
	old := &corev1.PersistentVolumeClaim{}
	if a.GetOperation() == admission.Update {
		if old, err = plugins.Versioned[corev1.PersistentVolumeClaim](a.GetOldObject(), claimKind, o); err != nil {
			return err
		}
	}
	return p.checkVolume(ctx, a, "spec", &old.Spec, &obj.Spec)
}

// checkTemplates checks the templates of claims. A controller creates the claims with its own
// permissions.
func (p *plugin) checkTemplates(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, err := p.Kinds.Read(a.GetObject(), a.GetKind(), o)
	if err != nil && workload.IsFinalizing(a) || err == nil && obj == nil {
		return nil
	}
	if err != nil {
		return err
	}
	claims, err := obj.Claims()
	if err != nil || len(claims) == 0 {
		return err
	}
	before := map[string]workload.Claim{}
	if a.GetOperation() == admission.Update {
		old, err := p.Kinds.Read(a.GetOldObject(), a.GetKind(), o)
		if err != nil || old == nil {
			return plugins.ErrObject
		}
		oldClaims, err := old.Claims()
		if err != nil {
			return err
		}
		for _, c := range oldClaims {
			before[c.Key] = c
		}
	}
	var errs plugins.Errors
	for _, c := range claims {
		oldClaim, ok := before[c.Key]
		if !ok {
			oldClaim = workload.Claim{Meta: &metav1.ObjectMeta{}, Spec: &corev1.PersistentVolumeClaimSpec{}}
		}
		errs.Add(p.checkVolume(ctx, a, c.Path+".spec", oldClaim.Spec, c.Spec))
		errs.Add(p.checkReferences(ctx, a, c.Path+".metadata", oldClaim.Meta.OwnerReferences, c.Meta.OwnerReferences))
	}
	return errs.Err()
}

// checkVolume checks the changed fields that select the volume or the data source of a claim.
func (p *plugin) checkVolume(
	ctx context.Context, a admission.Attributes, path string, old, spec *corev1.PersistentVolumeClaimSpec,
) error {
	var errs plugins.Errors
	if p.ForbidVolumeNames {
		if spec.VolumeName != "" && spec.VolumeName != old.VolumeName {
			errs.Add(fmt.Errorf("%s.volumeName %w", path, errVolume))
		}
		if spec.Selector != nil && !equality.Semantic.DeepEqual(spec.Selector, old.Selector) {
			errs.Add(fmt.Errorf("%s.selector %w", path, errVolume))
		}
	}
	from := spec.DataSourceRef
	if from == nil || from.Namespace == nil || *from.Namespace == a.GetNamespace() ||
		equality.Semantic.DeepEqual(from, old.DataSourceRef) {
		return errs.Err()
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil {
		return err
	}
	if err := p.subjects.checkNamespace(ctx, owner, *from.Namespace); err != nil {
		errs.Add(fmt.Errorf("%s.dataSourceRef.namespace %w", path, errSource))
	}
	return errs.Err()
}

// isFromTemplate reports whether a controller creates a claim in a tenant's namespace. The
// controller creates the claim from a template that a tenant wrote.
func (p *plugin) isFromTemplate(ctx context.Context, a admission.Attributes) (bool, error) {
	if a.GetOperation() != admission.Create || !plugins.CreatesClaims(a.GetUserInfo()) {
		return false, nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	return !owner.IsSystem(), err
}

// hasOwnerReferences reports whether an object has ownerReferences.
func hasOwnerReferences(a admission.Attributes) bool {
	m, err := meta.Accessor(a.GetObject())
	return err == nil && len(m.GetOwnerReferences()) > 0
}

// checkOwners checks the ownerReferences that a write adds to an object. Only references with
// blockOwnerDeletion are checked. They may not name a cluster-scoped object, because they would
// block the deletion of a shared object. The exception is the object's own Namespace, because the
// object is deleted with it.
func (p *plugin) checkOwners(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil || len(obj.GetOwnerReferences()) == 0 {
		return err
	}
	var before []metav1.OwnerReference
	if old != nil {
		before = old.GetOwnerReferences()
	}
	return p.checkReferences(ctx, a, "metadata", before, obj.GetOwnerReferences())
}

// checkReferences checks references with blockOwnerDeletion that are new or changed.
func (p *plugin) checkReferences(
	ctx context.Context, a admission.Attributes, path string, oldRefs, refs []metav1.OwnerReference,
) error {
	var errs plugins.Errors
	for i, ref := range refs {
		kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		if ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion ||
			slices.ContainsFunc(oldRefs, func(old metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(old, ref) }) {
			continue
		}
		isOwnNamespace := a.GetNamespace() != "" && ref.Name == a.GetNamespace() &&
			kind.GroupKind() == schema.GroupKind{Kind: "Namespace"}
		if !isOwnNamespace && (p.Namespaced == nil || !p.Namespaced(kind.GroupKind())) {
			errs.Add(fmt.Errorf("%s.ownerReferences[%d].blockOwnerDeletion %w", path, i, errBlockOwnerDeletion))
		} else if err := p.checkUID(ctx, a.GetNamespace(), kind, ref); err != nil {
			errs.Add(fmt.Errorf("%s.ownerReferences[%d] %w", path, i, err))
		}
	}
	return errs.Err()
}

// checkUID checks the UID of a reference. The garbage collector finds the owner by the UID alone
// and ignores kind and name (k8s.io/kubernetes pkg/controller/garbagecollector, v1.37.1). The UID
// could therefore belong to an object of another tenant. If the server may not read the owner, the
// UID is not checked. An example is a custom resource as the owner in the webhook service.
func (p *plugin) checkUID(
	ctx context.Context, namespace string, kind schema.GroupVersionKind, ref metav1.OwnerReference,
) error {
	if p.Objects == nil {
		return nil
	}
	if kind.Kind == "Namespace" && kind.Group == "" {
		namespace = ""
	}
	owner, err := p.Objects(ctx, kind, namespace, ref.Name)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	m, err := meta.Accessor(owner)
	if err != nil || m.GetUID() != ref.UID {
		return errOwnerUID
	}
	return nil
}

// checkSecret denies Secrets that receive the token of a service account, unless the caller belongs
// to the tenant that owns the namespace. A grant to write Secrets does not suffice.
func (p *plugin) checkSecret(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	obj, err := plugins.Versioned[corev1.Secret](a.GetObject(), secretKind, o)
	if err != nil || obj.Type != corev1.SecretTypeServiceAccountToken {
		return err
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return err
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err == nil && owner != caller {
		err = errToken
	}
	return err
}
