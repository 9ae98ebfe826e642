// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package certificates creates and renews the certificates of the webhooks in the cluster.
//
// The lifetimes of two authorities overlap. One is replaced halfway through the life of the other,
// so all clients have trusted one of them for months. The older authority signs. A replaced
// authority stays trusted until it expires, so that a certificate in use is never rejected.
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

// Names of the objects in the cluster. A separate Secret contains the keys of the authorities. Only
// this package and the controller read it. The service mounts the other Secret. The ConfigMap
// contains the content for the files of kube-apiserver, which only its operator can write.
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
	// reloadDelay is the time after which kube-apiserver uses the authorities of an updated webhook
	// configuration.
	reloadDelay = 10 * time.Second
)

// Rotation maintains the certificates. Only one instance MUST run in a cluster at a time. The
// fields are required.
type Rotation struct {
	Client    kubernetes.Interface
	Namespace string
	// Names are the names and addresses under which clients reach the service.
	Names []string
	Now   func() time.Time
	// WaitForReload waits until kube-apiserver uses new authorities.
	WaitForReload func(context.Context)
	// Due is the time, in seconds since 1970, by which kube-apiserver's own copy must contain the
	// current authorities. After that time, an authority that an earlier copy lacks may sign. It is
	// infinite if [CopiedAnnotation] on the ConfigMap confirms the copy.
	Due *metrics.Gauge
}

const (
	// CopiedAnnotation specifies the SHA-256, in hex, of the ca.crt in the ConfigMap that was last
	// copied to kube-apiserver.
	CopiedAnnotation = "kubetenant.dev/copied"
	// dueAnnotation specifies the time at which the ca.crt in the ConfigMap must be copied to
	// kube-apiserver. The time does not change until the file is copied.
	dueAnnotation = "kubetenant.dev/copy-due"
)

// New returns the rotation for the names of the service in a namespace, and for further names.
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

// Reconcile reconciles once: first the authorities, then the clients that trust them, then the
// certificates that they sign. The cluster works after each step, even if the next step never
// happens.
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
	// After this time, another authority signs.
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

// write creates or updates a Secret. It fails if another client has changed the Secret in between.
func (r *Rotation) write(ctx context.Context, s *corev1.Secret) error {
	var err error
	if s.ResourceVersion == "" {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Create(ctx, s, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		_, err = r.Client.CoreV1().Secrets(r.Namespace).Update(ctx, s, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	return err
}

// slots are the keys of the two authorities in their Secret.
func slots() [2]string { return [2]string{"1", "2"} }

// authorities returns both authorities. It first creates an authority that is missing, damaged or
// near its expiry. If both are near their expiry, it replaces one at a time.
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
		s.Data["ca-"+slot+".crt"], s.Data["ca-"+slot+".key"] = found[i].certPEM(), key
	}
	klog.FromContext(ctx).Info("Created a certificate authority for the webhooks", "secret", AuthoritiesName)
	return found, r.write(ctx, s)
}

// replaceable returns the authorities to create, with their lifetimes. These are the missing ones,
// or else the one that expires first if it is near its expiry.
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

// bundle returns all authorities to trust. These are both authorities, and formerly trusted ones
// that have not expired.
func (r *Rotation) bundle(authorities [2]*keyPair, serving *corev1.Secret) []byte {
	all := []*x509.Certificate{authorities[0].cert, authorities[1].cert}
	previous, err := cert.ParseCertsPEM(serving.Data[bundleKey])
	if err != nil {
		previous = nil // it does not exist yet, or is damaged
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

// publish writes the authorities for kube-apiserver's operator, and the time by which they must be
// copied.
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

// trust writes the authorities into the webhook configurations. It reports whether they changed.
func (r *Rotation) trust(ctx context.Context, bundle []byte) (changed bool, err error) {
	hooks := r.Client.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, ConfigurationName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // they may be installed after the service
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
	if err != nil && !apierrors.IsNotFound(err) { // they may be installed after the service
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

// bundlePatch returns the patch of the caBundles that differ, or nil if there are none. The patch
// fails if the configuration has changed in between.
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
	patch, _ := json.Marshal(operations) // strings and bytes always encode
	return patch
}

// serving writes the serving certificate if it must be replaced, and the authorities to trust.
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

// older returns the authority that clients have known for longer. Initially, it is the one with the
// longer lifetime.
func older(authorities [2]*keyPair) *keyPair {
	if authorities[1].cert.NotBefore.Before(authorities[0].cert.NotBefore) {
		return authorities[1]
	}
	return authorities[0]
}
