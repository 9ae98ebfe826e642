// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

const namespace = "kubetenant-system"

// fixture is a fake cluster in which the webhooks are installed.
type fixture struct {
	*Rotation
	client  *fake.Clientset
	now     time.Time
	settled int
}

func newFixture() *fixture {
	meta := metav1.ObjectMeta{Name: ConfigurationName, ResourceVersion: "1"}
	w := &fixture{
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		client: fake.NewClientset(
			&admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: meta,
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "a"}, {Name: "b"}},
			},
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: meta,
				Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "c"}},
			},
		),
	}
	// A server sets a resource version on stored objects.
	w.client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		a.(clienttesting.CreateAction).GetObject().(*corev1.Secret).ResourceVersion = "1"
		return false, nil, nil
	})
	w.Rotation = New(w.client, namespace, []string{"127.0.0.1"})
	w.Now = func() time.Time { return w.now }
	w.WaitForReload = func(context.Context) { w.settled++ }
	return w
}

func (w *fixture) secrets(t *testing.T) (authorities, serving *corev1.Secret) {
	t.Helper()
	var err error
	if authorities, err = w.client.CoreV1().Secrets(namespace).Get(t.Context(),
		AuthoritiesName, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if serving, err = w.client.CoreV1().Secrets(namespace).Get(t.Context(), ServingName, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	return authorities, serving
}

// trustedBundle returns the authorities that kube-apiserver trusts. It fails the test if webhooks
// have different bundles.
func (w *fixture) trustedBundle(t *testing.T) []byte {
	t.Helper()
	m, err := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(),
		ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(),
		ConfigurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), AuthoritiesName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle := m.Webhooks[0].ClientConfig.CABundle
	for _, other := range [][]byte{
		m.Webhooks[1].ClientConfig.CABundle, v.Webhooks[0].ClientConfig.CABundle, []byte(c.Data["ca.crt"]),
	} {
		if !bytes.Equal(bundle, other) {
			t.Fatal("the clients do not trust the same authorities")
		}
	}
	return bundle
}

// verify returns an error if a client that trusts bundle would reject the certificate.
func verify(bundle, certificate []byte, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return errors.New("no authority")
	}
	certs, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return err
	}
	_, err = certs[0].Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: now,
		DNSName:     "kubetenant-webhook." + namespace + ".svc",
	})
	return err
}

// TestRotationOverThreeYears reconciles every day for three years. It checks that clients accept
// replicas with an older certificate, and that a kube-apiserver with files from months ago accepts
// the current certificate.
func TestRotationOverThreeYears(t *testing.T) {
	w := newFixture()
	type day struct{ bundle, certificate []byte }
	var days []day
	renewed := 0
	for range 3 * 365 {
		if err := w.Reconcile(t.Context()); err != nil {
			t.Fatalf("%s: %v", w.now, err)
		}
		_, serving := w.secrets(t)
		today := day{w.trustedBundle(t), serving.Data[corev1.TLSCertKey]}
		if len(days) > 0 {
			yesterday := days[len(days)-1]
			if err := verify(today.bundle, yesterday.certificate, w.now); err != nil {
				t.Fatalf("%s: the certificate of the day before is rejected: %v", w.now, err)
			}
			if !bytes.Equal(yesterday.certificate, today.certificate) {
				renewed++
			}
		}
		if err := verify(today.bundle, today.certificate, w.now); err != nil {
			t.Fatalf("%s: %v", w.now, err)
		}
		if back := len(days) - 75; back >= 0 {
			if err := verify(days[back].bundle, today.certificate, w.now); err != nil {
				t.Fatalf("%s: a client with the authorities of 75 days ago rejects the certificate: %v", w.now, err)
			}
		}
		if certs, _ := cert.ParseCertsPEM(today.certificate); w.now.Add(leafReplace - 25*time.Hour).After(certs[0].NotAfter) {
			t.Fatalf("%s: the certificate ends at %s and was not renewed", w.now, certs[0].NotAfter)
		}
		days = append(days, today)
		w.now = w.now.Add(24 * time.Hour)
	}
	if renewed < 15 || renewed > 30 {
		t.Errorf("%d certificates in three years", renewed)
	}
}

func TestFirstReconciliation(t *testing.T) {
	w := newFixture()
	if err := w.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	authorities, serving := w.secrets(t)
	for slot, want := range map[string]time.Duration{"1": caLifetime, "2": secondCALifetime} {
		t.Run(slot, func(t *testing.T) {
			p, err := parseKeyPair(authorities.Data["ca-"+slot+".crt"], authorities.Data["ca-"+slot+".key"])
			if err != nil || p.cert.NotAfter.Sub(w.now) != want {
				t.Errorf("authority %s: %v, ends after %v; want %v", slot, err, p.cert.NotAfter.Sub(w.now), want)
			}
		})
	}
	for key := range serving.Data {
		if key == "ca.key" || bytes.Contains(serving.Data[key], authorities.Data["ca-1.key"]) {
			t.Errorf("the service's Secret contains the key of an authority in %s", key)
		}
	}
	if w.settled != 1 {
		t.Errorf("waited %d times for kube-apiserver, want 1", w.settled)
	}
	// The second reconciliation writes only the ConfigMap, which is applied unchanged.
	w.client.ClearActions()
	if err := w.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range w.client.Actions() {
		if a.GetVerb() != "get" && !a.Matches("patch", "configmaps") {
			t.Errorf("unneeded write: %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestTrustBeforeUse checks that no certificate is written before all clients trust its authority.
func TestTrustBeforeUse(t *testing.T) {
	w := newFixture()
	refuse := errors.New("kube-apiserver is unavailable")
	w.client.PrependReactor("patch", "validatingwebhookconfigurations",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refuse })
	if err := w.Reconcile(t.Context()); !errors.Is(err, refuse) {
		t.Fatalf("Reconcile() = %v", err)
	}
	if _, err := w.client.CoreV1().Secrets(namespace).Get(t.Context(),
		ServingName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a serving certificate was written: %v", err)
	}
}

func TestDamagedObjectsAreRepaired(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, w *fixture, authorities, serving *corev1.Secret){
		"an authority is garbage": func(_ *testing.T, _ *fixture, a, _ *corev1.Secret) {
			a.Data["ca-1.crt"] = []byte("garbage")
		},
		"a key belongs to another authority": func(_ *testing.T, _ *fixture, a, _ *corev1.Secret) {
			a.Data["ca-1.key"] = a.Data["ca-2.key"]
		},
		"an authority is missing":      func(_ *testing.T, _ *fixture, a, _ *corev1.Secret) { delete(a.Data, "ca-2.crt") },
		"both authorities are missing": func(_ *testing.T, _ *fixture, a, _ *corev1.Secret) { a.Data = nil },
		"an authority is a leaf": func(_ *testing.T, _ *fixture, a, s *corev1.Secret) {
			a.Data["ca-1.crt"], a.Data["ca-1.key"] = s.Data["tls.crt"], s.Data["tls.key"]
		},
		"the serving key is missing": func(_ *testing.T, _ *fixture, _, s *corev1.Secret) { delete(s.Data, "tls.key") },
		"the certificate is garbage": func(_ *testing.T, _ *fixture, _, s *corev1.Secret) {
			s.Data["tls.crt"] = []byte("-----BEGIN")
		},
		"the bundle is garbage": func(_ *testing.T, _ *fixture, _, s *corev1.Secret) { s.Data["ca.crt"] = []byte("garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			if err := w.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			authorities, serving := w.secrets(t)
			before := bytes.Clone(serving.Data["tls.crt"])
			damage(t, w, authorities, serving)
			for _, s := range []*corev1.Secret{authorities, serving} {
				if _, err := w.client.CoreV1().Secrets(namespace).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, serving = w.secrets(t)
			if err := verify(w.trustedBundle(t), serving.Data["tls.crt"], w.now); err != nil {
				t.Errorf("the new certificate: %v", err)
			}
			// Certificates that replicas still serve remain trusted, unless the bundle was lost.
			if err := verify(w.trustedBundle(t), before, w.now); err != nil && name != "the bundle is garbage" {
				t.Errorf("the previous certificate: %v", err)
			}
		})
	}
}

// TestOneAuthorityIsReplacedAtATime checks that each reconciliation replaces at most one
// authority.
func TestOneAuthorityIsReplacedAtATime(t *testing.T) {
	w := newFixture()
	if err := w.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	was, _ := w.secrets(t)
	w.now = w.now.Add(300 * day) // one has expired, and the other expires soon, as if no controller was running
	for i, want := range []int{1, 2} {
		if err := w.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		is, _ := w.secrets(t)
		changed := 0
		for _, key := range []string{"ca-1.crt", "ca-2.crt"} {
			if !bytes.Equal(was.Data[key], is.Data[key]) {
				changed++
			}
		}
		if changed != want {
			t.Errorf("reconciliation %d: %d authorities replaced in total, want %d", i, changed, want)
		}
	}
}

// TestConcurrentWriteIsNotOverwritten checks that Reconcile fails instead of overwriting a
// concurrent write of another controller.
func TestConcurrentWriteIsNotOverwritten(t *testing.T) {
	w := newFixture()
	w.client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), fmt.Sprint(a.GetResource()))
	})
	if err := w.Reconcile(t.Context()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Reconcile() = %v", err)
	}
}

// TestCopyDue checks the alert for an operator that copies the authorities only once. The alert
// starts weeks before certificates are signed by an authority that the copy lacks, and does not
// end. An operator that confirms each copy gets no alert.
func TestCopyDue(t *testing.T) {
	for name, diligent := range map[string]bool{"copied once": false, "copied each time": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			if err := metrics.NewKubeRegistry().Register(w.Due); err != nil {
				t.Fatal(err)
			}
			var copied []byte
			alertSince, refused := time.Time{}, time.Time{}
			for range 3 * 365 / 5 {
				if err := w.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				published, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), AuthoritiesName, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if copied == nil || diligent {
					copied = []byte(published.Data[bundleKey])
					sum := sha256.Sum256(copied)
					published.Annotations = map[string]string{CopiedAnnotation: hex.EncodeToString(sum[:])}
					if _, err := w.client.CoreV1().ConfigMaps(namespace).Update(t.Context(),
						published, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
					if err := w.Reconcile(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				due, err := testutil.GetGaugeMetricValue(w.Due)
				if err != nil {
					t.Fatal(err)
				}
				switch alert := due-float64(w.now.Unix()) < (60 * day).Seconds(); {
				case !alert && !alertSince.IsZero():
					t.Fatalf("on %s, the alert ended although the file was not copied", w.now)
				case alert && diligent:
					t.Fatalf("alert on %s", w.now)
				case alert && alertSince.IsZero():
					alertSince = w.now
				}
				_, serving := w.secrets(t)
				if verify(copied, serving.Data[corev1.TLSCertKey], w.now) != nil && refused.IsZero() {
					refused = w.now
				}
				w.now = w.now.Add(5 * day)
			}
			if diligent && !refused.IsZero() {
				t.Errorf("rejected on %s", refused)
			}
			if !diligent && (refused.IsZero() || alertSince.IsZero() || refused.Sub(alertSince) < 50*day) {
				t.Errorf("rejected on %s, alert since %s", refused, alertSince)
			}
		})
	}
}
