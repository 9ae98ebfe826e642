// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// pollInterval is the time between two reads of the request.
	pollInterval = 200 * time.Millisecond
	// minExpiry is the shortest expiration that Kubernetes accepts in a CertificateSigningRequest.
	minExpiry = 10 * time.Minute
	maxExpiry = math.MaxInt32 * time.Second
	// cleanupTimeout is the maximum time for creating or deleting a request. An interrupt of the
	// command does not stop these calls.
	cleanupTimeout = 10 * time.Second
)

// Request describes a certificate to request.
type Request struct {
	User   string
	Groups []string
	// AsOrganizations adds the groups as Os (organizations), in addition to the tenant's O. A
	// server that interprets certificates like upstream Kubernetes needs this form.
	AsOrganizations bool
	Tenant          tenant.ID
	Expiry          time.Duration
	// Timeout is the maximum time to wait for approval and signature.
	Timeout time.Duration
	// DryRun sends the request in a server-side dry run, which validates it without storing it.
	DryRun bool
	// Printf is called with a progress message before Sign waits. It is required unless DryRun
	// is true.
	Printf func(format string, args ...any)
}

// Errors of [Request.Sign].
var (
	ErrTooShort = errors.New("--expires must be at least 10m for a certificate")
	// ErrTooLong reports an expiration that does not fit in the request's 32-bit number of seconds.
	ErrTooLong  = errors.New("--expires must be at most 68 years")
	ErrDenied   = errors.New("the certificate request was denied")
	ErrNoSigner = errors.New("the certificate was not signed in time: check that the controller csrsigning of " +
		"kube-controller-manager runs, and that --cluster-signing-cert-file is set")
	ErrWaiting = errors.New("the certificate request was not approved in time")
)

// Subject returns the subject of the certificate. The tenant is the only O (organization), and
// the groups are the OUs. If AsOrganizations is true, the groups are additional Os instead.
func (r *Request) Subject() pkix.Name {
	if r.AsOrganizations {
		return pkix.Name{
			CommonName:   r.User,
			Organization: append([]string{tenant.GroupPrefix + r.Tenant.String()}, r.Groups...),
		}
	}
	return pkix.Name{
		CommonName:         r.User,
		Organization:       []string{tenant.GroupPrefix + r.Tenant.String()},
		OrganizationalUnit: r.Groups,
	}
}

// Object returns a CertificateSigningRequest for the given key. The error is [ErrTooShort] or
// [ErrTooLong] if the expiration is out of range.
func (r *Request) Object(key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	switch {
	case r.Expiry < minExpiry:
		return nil, ErrTooShort
	case r.Expiry > maxExpiry:
		return nil, ErrTooLong
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: r.Subject(), SignatureAlgorithm: x509.ECDSAWithSHA256}, key)
	if err != nil {
		return nil, err
	}
	seconds := int32(r.Expiry.Seconds())
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubectl-tenant-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: &seconds,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}

// NewKey returns an ECDSA P-256 key for a certificate.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// Sign requests a certificate from the cluster's signer kubernetes.io/kube-apiserver-client. If
// the caller has the right to approve the request, Sign approves it. Sign deletes the request
// afterward. With DryRun, it returns no certificate. The error may wrap [ErrDenied],
// [ErrNoSigner] or [ErrWaiting].
func (r *Request) Sign(ctx context.Context, k kube.Interface) (certificate, key []byte, err error) {
	private, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	object, err := r.Object(private)
	if err != nil {
		return nil, nil, err
	}
	requests := k.CertificatesV1().CertificateSigningRequests()
	options := metav1.CreateOptions{}
	if r.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	cleanupCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout) // the deletion needs its name
	object, err = requests.Create(cleanupCtx, object, options)
	cancel()
	if err != nil || r.DryRun {
		return nil, nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if deleteErr := requests.Delete(ctx, object.Name, metav1.DeleteOptions{}); deleteErr != nil && err == nil {
			err = fmt.Errorf("delete CertificateSigningRequest %s: %w", object.Name, deleteErr)
		}
	}()
	approved, err := approve(ctx, k, object)
	if err != nil {
		return nil, nil, err
	}
	if !approved {
		r.Printf("waiting for approval: an admin must approve it with kubectl certificate approve %s", object.Name)
	} else {
		r.Printf("waiting for certificate %s", object.Name)
	}
	if certificate, err = r.wait(ctx, k, object.Name); err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return certificate, key, err
}

// approve approves a request if the caller has the right to do so. It reports whether it
// approved the request.
func approve(
	ctx context.Context, k kube.Interface, request *certificatesv1.CertificateSigningRequest,
) (bool, error) {
	const group = certificatesv1.GroupName
	for _, needed := range []authorizationv1.ResourceAttributes{
		{
			Group:       group,
			Resource:    "certificatesigningrequests",
			Subresource: "approval",
			Verb:        "update",
			Name:        request.Name,
		},
		{
			Group:    group,
			Resource: "signers",
			Verb:     "approve",
			Name:     certificatesv1.KubeAPIServerClientSignerName,
		},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &needed},
		}
		review, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || !review.Status.Allowed {
			return false, err
		}
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type:    certificatesv1.CertificateApproved,
		Status:  corev1.ConditionTrue,
		Reason:  "KubectlTenant",
		Message: "approved by the requester with kubectl tenant gen-kubeconfig",
	})
	_, err := k.CertificatesV1().CertificateSigningRequests().
		UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	return err == nil, err
}

// wait waits until the certificate is signed, and returns the certificate.
func (r *Request) wait(ctx context.Context, k kube.Interface, name string) ([]byte, error) {
	var last *certificatesv1.CertificateSigningRequest
	err := wait.PollUntilContextTimeout(ctx, pollInterval, r.Timeout, true, func(ctx context.Context) (bool, error) {
		got, err := k.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, fmt.Errorf("%w: the request was deleted", ErrDenied)
		}
		if err != nil {
			return false, err
		}
		last = got
		for _, c := range last.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("%w: %s", ErrDenied, c.Message)
			}
		}
		return len(last.Status.Certificate) > 0, nil
	})
	switch {
	case err == nil:
		return last.Status.Certificate, nil
	case !wait.Interrupted(err) || ctx.Err() != nil:
		return nil, err
	case last != nil && len(last.Status.Conditions) > 0:
		return nil, ErrNoSigner
	}
	return nil, ErrWaiting
}
