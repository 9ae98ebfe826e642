// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package certificates creates and renews the certificate authorities and the serving certificate
// of the webhook service in a cluster.
//
// There are two authorities with overlapping lifetimes. Each is replaced about halfway through the
// lifetime of the other. The older authority signs, because clients have already trusted it for
// months. A replaced authority is trusted until it expires, so that certificates in use remain
// valid.
package certificates

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

// Names of the objects in the cluster. The Secret AuthoritiesName contains the keys of the
// authorities, which only the controller reads. The service mounts the Secret ServingName. The
// ConfigMap AuthoritiesName contains the authorities for the files of kube-apiserver, which only
// the operator of kube-apiserver can write. ConfigurationName is the name of the webhook
// configurations.
const (
	AuthoritiesName   = "kubetenant-webhook-ca"
	ServingName       = "kubetenant-webhook-tls"
	ConfigurationName = "kubetenant"
)

const (
	bundleKey    = "ca.crt"
	fieldManager = "kubetenant-certificates"
	// reconcileInterval is the interval at which deleted or damaged objects are repaired.
	reconcileInterval = 10 * time.Second
	// retryAfter is the delay after a failed reconciliation.
	retryAfter = 5 * time.Second
	// reloadDelay is the assumed maximum time after which kube-apiserver uses the authorities of an
	// updated webhook configuration.
	reloadDelay = 10 * time.Second
)

// Rotation maintains the certificates. At most one instance MUST run in a cluster at a time. All
// fields are required.
type Rotation struct {
	Client    kubernetes.Interface
	Namespace string
	// Names are the DNS names and IP addresses by which clients reach the service.
	Names []string
	Now   func() time.Time
	// WaitForReload waits until kube-apiserver uses the authorities of an updated webhook
	// configuration.
	WaitForReload func(context.Context)
	// Due is the time, in seconds since 1970, by which kube-apiserver's files must contain the
	// current authorities. After that time, certificates may be signed by an authority that older
	// files lack. Due is infinite if [CopiedAnnotation] on the ConfigMap confirms the copy.
	Due *metrics.Gauge
}

const (
	// CopiedAnnotation on the ConfigMap specifies the SHA-256, in hex, of the ca.crt that was last
	// copied to kube-apiserver.
	CopiedAnnotation = "kubetenant.dev/copied"
	// dueAnnotation specifies the time at which the ca.crt in the ConfigMap must be copied to
	// kube-apiserver. Until the file is copied, this time can only become earlier.
	dueAnnotation = "kubetenant.dev/copy-due"
)

// New returns the Rotation of the service in a namespace. The serving certificate is valid for the
// DNS names of the service and for the additional names.
func New(client kubernetes.Interface, namespace string, additional []string) *Rotation {
	service := "kubetenant-webhook." + namespace
	return &Rotation{
		Client:    client,
		Namespace: namespace,
		Names:     append([]string{service + ".svc", service, service + ".svc.cluster.local"}, additional...),
		Due: metrics.NewGauge(&metrics.GaugeOpts{
			Name:           "kubetenant_webhook_authority_copy_due_timestamp_seconds",
			StabilityLevel: metrics.ALPHA,
			Help: "Time at which kube-apiserver's files must contain the current authorities, in seconds since 1970. " +
				"Infinite if an annotation confirms that they do.",
		}),
		Now: time.Now,
		WaitForReload: func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(reloadDelay):
			}
		},
	}
}

// Run maintains the certificates until ctx ends.
func (r *Rotation) Run(ctx context.Context) error {
	for {
		wait := reconcileInterval
		if err := r.Reconcile(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to reconcile the certificates of the webhooks, will retry")
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Reconcile writes the authorities, then the bundles of the clients that trust the authorities, and
// then the serving certificate. Clients trust the serving certificate after each step, even if the
// next step fails.
func (r *Rotation) Reconcile(ctx context.Context) error {
	authorities, err := r.authorities(ctx)
	if err != nil {
		return err
	}
	serving, err := r.secret(ctx, ServingName)
	if err != nil {
		return err
	}
	bundle := r.bundle(authorities, serving)
	// The copy is due when the older authority is replaced, because the other authority signs
	// from then on.
	if err := r.publish(ctx, bundle, older(authorities).cert.NotAfter.Add(-caReplace)); err != nil {
		return err
	}
	changed, err := r.trust(ctx, bundle)
	if err != nil {
		return err
	}
	if changed {
		r.WaitForReload(ctx)
	}
	return r.serving(ctx, serving, authorities, bundle)
}

func (r *Rotation) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	s, err := r.Client.CoreV1().Secrets(r.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace}}, nil
	}
	return s, err
}

// write creates or updates a Secret. It fails if another client has changed the Secret since it
// was read.
func (r *Rotation) write(ctx context.Context, s *corev1.Secret) error {
	var err error
	if s.ResourceVersion == "" {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Create(ctx, s, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Update(ctx, s, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	return err
}

// slots returns the parts of the Secret's keys that distinguish the two authorities.
func slots() [2]string { return [2]string{"1", "2"} }

// authorities returns both authorities. It first creates an authority that is missing, invalid,
// expired or near its expiry. If both are near their expiry, it replaces only the authority that
// expires first.
func (r *Rotation) authorities(ctx context.Context) ([2]*keyPair, error) {
	var found [2]*keyPair
	s, err := r.secret(ctx, AuthoritiesName)
	if err != nil {
		return found, err
	}
	now := r.Now()
	for i, slot := range slots() {
		p, err := parseKeyPair(s.Data["ca-"+slot+".crt"], s.Data["ca-"+slot+".key"])
		if err == nil && p.cert.IsCA && !p.expiresWithin(now, 0) {
			found[i] = p
		}
	}
	due := replaceable(found, now)
	if due == nil {
		return found, nil
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for i, lifetime := range due {
		if found[i], err = newAuthority(now, lifetime); err != nil {
			return found, err
		}
		key, err := found[i].keyPEM()
		if err != nil {
			return found, err
		}
		slot := slots()[i]
		s.Data["ca-"+slot+".crt"] = found[i].certPEM()
		s.Data["ca-"+slot+".key"] = key
	}
	klog.FromContext(ctx).Info("Created a certificate authority for the webhooks", "secret", AuthoritiesName)
	return found, r.write(ctx, s)
}

// replaceable returns the lifetimes of the authorities to create, keyed by their index. These are
// the missing authorities. If none is missing, it is the authority that expires first, if its
// expiry is near.
func replaceable(found [2]*keyPair, now time.Time) map[int]time.Duration {
	switch a, b := found[0], found[1]; {
	case a == nil && b == nil:
		return map[int]time.Duration{0: caLifetime, 1: secondCALifetime}
	case a == nil:
		return map[int]time.Duration{0: caLifetime}
	case b == nil:
		return map[int]time.Duration{1: caLifetime}
	}
	next := 0
	if found[1].cert.NotAfter.Before(found[0].cert.NotAfter) {
		next = 1
	}
	if found[next].expiresWithin(now, caReplace) {
		return map[int]time.Duration{next: caLifetime}
	}
	return nil
}

// bundle returns all authorities to trust, as PEM. These are both authorities, and previously
// trusted authorities that have not expired.
func (r *Rotation) bundle(authorities [2]*keyPair, serving *corev1.Secret) []byte {
	all := []*x509.Certificate{authorities[0].cert, authorities[1].cert}
	previous, err := cert.ParseCertsPEM(serving.Data[bundleKey])
	if err != nil {
		previous = nil // the bundle does not exist yet, or is invalid
	}
	for _, c := range previous {
		if c.NotAfter.After(r.Now()) && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	var out bytes.Buffer
	for _, c := range all {
		out.Write(certPEM(c))
	}
	return out.Bytes()
}

// publish writes the ConfigMap with the authorities for kube-apiserver's operator, and the time by
// which the operator must copy them.
func (r *Rotation) publish(ctx context.Context, bundle []byte, due time.Time) error {
	configs := r.Client.CoreV1().ConfigMaps(r.Namespace)
	current, err := configs.Get(ctx, AuthoritiesName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the published authorities: %w", err)
	}
	config := applycorev1.ConfigMap(AuthoritiesName, r.Namespace).WithData(map[string]string{bundleKey: string(bundle)})
	if sum := sha256.Sum256(bundle); current.Annotations[CopiedAnnotation] == hex.EncodeToString(sum[:]) {
		r.Due.Set(math.Inf(1))
	} else {
		if sooner, err := time.Parse(time.RFC3339, current.Annotations[dueAnnotation]); err == nil && sooner.Before(due) {
			due = sooner
		}
		r.Due.Set(float64(due.Unix()))
		config = config.WithAnnotations(map[string]string{dueAnnotation: due.UTC().Format(time.RFC3339)})
	}
	if _, err := configs.Apply(ctx, config, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("publish the authorities: %w", err)
	}
	return nil
}

// trust writes the authorities into the webhook configurations. It reports whether a configuration
// changed.
func (r *Rotation) trust(ctx context.Context, bundle []byte) (changed bool, err error) {
	hooks := r.Client.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, ConfigurationName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the webhooks may be installed after the service
		return false, err
	}
	clients := make([]*admissionregistrationv1.WebhookClientConfig, len(mutating.Webhooks))
	for i := range mutating.Webhooks {
		clients[i] = &mutating.Webhooks[i].ClientConfig
	}
	if patch := bundlePatch(mutating.ResourceVersion, clients, bundle); patch != nil {
		changed = true
		_, err := hooks.MutatingWebhookConfigurations().Patch(ctx, ConfigurationName, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return false, fmt.Errorf("patch caBundle: %w", err)
		}
	}
	validating, err := hooks.ValidatingWebhookConfigurations().Get(ctx, ConfigurationName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the webhooks may be installed after the service
		return false, err
	}
	clients = make([]*admissionregistrationv1.WebhookClientConfig, len(validating.Webhooks))
	for i := range validating.Webhooks {
		clients[i] = &validating.Webhooks[i].ClientConfig
	}
	if patch := bundlePatch(validating.ResourceVersion, clients, bundle); patch != nil {
		changed = true
		_, err := hooks.ValidatingWebhookConfigurations().Patch(ctx, ConfigurationName, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return false, fmt.Errorf("patch caBundle: %w", err)
		}
	}
	return changed, nil
}

// bundlePatch returns a patch that sets the caBundles of the webhooks, or nil if all are equal to
// bundle. The patch fails if another client has changed the configuration since it was read.
func bundlePatch(version string, clients []*admissionregistrationv1.WebhookClientConfig, bundle []byte) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	operations := []operation{{"test", "/metadata/resourceVersion", version}}
	for i, c := range clients {
		if !bytes.Equal(c.CABundle, bundle) {
			operations = append(operations, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(operations) == 1 {
		return nil
	}
	patch, _ := json.Marshal(operations) // the encoding of strings and bytes cannot fail
	return patch
}

// serving writes the Secret of the service if the bundle has changed or the serving certificate
// must be replaced.
func (r *Rotation) serving(ctx context.Context, s *corev1.Secret, authorities [2]*keyPair, bundle []byte) error {
	now := r.Now()
	trusted := []*x509.Certificate{authorities[0].cert, authorities[1].cert}
	leaf, err := parseKeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	valid := err == nil && leaf.isValidFor(now, r.Names, trusted)
	if valid && bytes.Equal(s.Data[bundleKey], bundle) {
		return nil
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Type = corev1.SecretTypeTLS
	s.Data[bundleKey] = bundle
	if !valid {
		if leaf, err = older(authorities).newLeaf(now, r.Names); err != nil {
			return err
		}
		s.Data[corev1.TLSCertKey] = leaf.certPEM()
		if s.Data[corev1.TLSPrivateKeyKey], err = leaf.keyPEM(); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Signed a serving certificate", "secret", ServingName, "expires", leaf.cert.NotAfter)
	}
	return r.write(ctx, s)
}

// older returns the authority with the earlier NotBefore, which clients have trusted for longer.
// If both are equal, it returns the first authority.
func older(authorities [2]*keyPair) *keyPair {
	if authorities[1].cert.NotBefore.Before(authorities[0].cert.NotBefore) {
		return authorities[1]
	}
	return authorities[0]
}
