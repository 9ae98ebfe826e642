// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/keyutil"
	upstream "k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	testIssuer = "https://kubernetes.default.svc"
	testSeed   = 20261121
)

// liveObjects returns the objects to which tokens are bound. The name of an object determines its
// state, such as "gone" or "deleted".
type liveObjects struct{ legacy map[string][]byte }

func objectMeta(namespace, name string) (metav1.ObjectMeta, error) {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
	switch name {
	case "gone":
		return m, apierrors.NewNotFound(corev1.Resource("objects"), name)
	case "deleted":
		m.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	case "stopping":
		m.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Hour)}
	}
	return m, nil
}

func (liveObjects) GetServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	m, err := objectMeta(namespace, name)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}

func (liveObjects) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	m, err := objectMeta(namespace, name)
	return &corev1.Pod{ObjectMeta: m}, err
}

func (o liveObjects) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	m, err := objectMeta(namespace, name)
	m.Labels = map[string]string{serviceaccount.LastUsed: serviceaccount.Today(time.Now())}
	if name == "marked" {
		m.Labels["kubernetes.io/legacy-token-invalid-since"] = "2026-01-01"
	}
	return &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{"token": o.legacy[name]}}, err
}

func (liveObjects) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	m, err := objectMeta("", name)
	return &corev1.Node{ObjectMeta: m}, err
}

func (liveObjects) GetValidatingWebhookConfiguration(
	context.Context, string,
) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("objects"), "")
}

func (liveObjects) GetMutatingWebhookConfiguration(
	context.Context, string,
) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("objects"), "")
}

// pair contains upstream's authenticator and ours, with the same keys and objects.
type pair struct {
	upstream, ours authenticator.Token
	generators     []upstream.TokenGenerator // the last generator signs with an unknown key
	legacy         []upstream.TokenGenerator
	objects        liveObjects
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{objects: liveObjects{map[string][]byte{}}}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys := []any{rsaKey}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521(), elliptic.P256()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		for issuer, list := range map[string]*[]upstream.TokenGenerator{
			testIssuer:            &p.generators,
			upstream.LegacyIssuer: &p.legacy,
		} {
			g, err := upstream.JWTTokenGenerator(issuer, key)
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, g)
		}
	}
	trustedKeys := keys[:len(keys)-1]
	var files []string
	for i, key := range trustedKeys {
		data, err := keyutil.MarshalPrivateKeyToPEM(key)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprintf("%d.pem", i)))
		if err := os.WriteFile(files[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	getter, err := upstream.StaticPublicKeysGetter(trustedKeys)
	if err != nil {
		t.Fatal(err)
	}
	audiences := authenticator.Audiences{testIssuer, "second"}
	legacy, err := upstream.NewLegacyValidator(true, p.objects, fake.NewClientset().CoreV1())
	if err != nil {
		t.Fatal(err)
	}
	bound := upstream.JWTTokenAuthenticator([]string{testIssuer}, getter, audiences, upstream.NewValidator(p.objects))
	older := upstream.JWTTokenAuthenticator([]string{upstream.LegacyIssuer}, getter, audiences, legacy)
	p.upstream = authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if resp, ok, err := bound.AuthenticateToken(ctx, token); ok || err != nil {
			return resp, ok, err
		}
		return older.AuthenticateToken(ctx, token)
	})
	opened, err := serviceaccount.OpenKeys(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	acme, err := tenant.Parse("acme")
	if err != nil {
		t.Fatal(err)
	}
	p.ours = serviceaccount.New(opened, serviceaccount.Options{
		Issuer:    testIssuer,
		Legacy:    true,
		Audiences: audiences,
		Objects:   p.objects,
		Owner:     func(context.Context, string) (tenant.ID, error) { return acme, nil },
	})
	return p
}

// one returns a random choice.
func one[T any](r *mathrand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func ref(name string) map[string]any { return map[string]any{"name": name, "uid": "uid-of-" + name} }

// claims returns random claims of a bound token. Their times are not close to the current time,
// because our authenticator allows less clock skew than upstream's.
func claims(r *mathrand.Rand) (*jwt.Claims, map[string]any) {
	name := one(r, "robot", "robot", "robot", "robot", "gone", "deleted", "stopping")
	now := time.Now()
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(now.Add(d)) }
	public := &jwt.Claims{
		Subject: "system:serviceaccount:ns:" + name,
		Audience: one(r, jwt.Audience{testIssuer}, jwt.Audience{testIssuer},
			jwt.Audience{"other", "second"}, jwt.Audience{"other"}),
		Expiry:    at(one(r, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour, 2*time.Minute, -2*time.Minute)),
		NotBefore: one(r, at(0), at(0), at(0), at(-time.Hour), at(-time.Hour), at(2*time.Minute), nil),
		IssuedAt:  one(r, at(0), at(0), at(0), at(-time.Hour), at(-time.Hour), at(2*time.Minute), nil),
		ID:        one(r, "", "id"),
	}
	k := map[string]any{"namespace": "ns", "serviceaccount": ref(name)}
	if r.IntN(10) == 0 {
		k["serviceaccount"] = map[string]any{"name": name, "uid": "another"}
	}
	object := func() string { return one(r, "live", "live", "live", "live", "live", "gone", "deleted", "stopping") }
	switch r.IntN(6) {
	case 0:
		k["pod"] = ref(object())
	case 1:
		k["pod"], k["node"] = ref(object()), ref(object())
	case 2:
		k["secret"] = ref(object())
	case 3:
		k["node"] = ref(object())
	case 4:
		k["pod"] = map[string]any{"name": "live", "uid": "another"}
	}
	if r.IntN(4) == 0 {
		k["warnafter"] = now.Add(one(r, -time.Hour, time.Hour)).Unix()
	}
	return public, map[string]any{"kubernetes.io": k}
}

// random returns a random token. It is either a token as the TokenRequest API issues it, or a
// legacy token.
func (p *pair) random(t testing.TB, r *mathrand.Rand) string {
	t.Helper()
	key := r.IntN(len(p.generators))
	public, private := claims(r)
	generator, secret := p.generators[key], ""
	if r.IntN(4) == 0 {
		name := one(r, "robot", "robot", "gone", "deleted")
		secret = one(r, "s", "s", "gone", "marked", "changed")
		public = &jwt.Claims{Subject: "system:serviceaccount:ns:" + name}
		private = map[string]any{
			"kubernetes.io/serviceaccount/namespace":            "ns",
			"kubernetes.io/serviceaccount/service-account.name": name,
			"kubernetes.io/serviceaccount/service-account.uid":  one(r, "uid-of-"+name, "uid-of-"+name, "another"),
			"kubernetes.io/serviceaccount/secret.name":          secret,
		}
		generator = p.legacy[key]
	}
	token, err := generator.GenerateToken(t.Context(), public, private)
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		p.objects.legacy[secret] = []byte(token)
		if secret == "changed" {
			p.objects.legacy[secret] = []byte("another")
		}
	}
	return token
}

// TestServiceAccountsAgreeWithUpstream checks that upstream's authenticator and ours accept the
// same tokens, and return the same audiences and the same user.Info except for the tenant.
func TestServiceAccountsAgreeWithUpstream(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := mathrand.New(mathrand.NewPCG(testSeed, 1)) // #nosec G404 -- a reproducible test
	accepted := 0
	for i := range 5000 {
		token := p.random(t, r)
		ctx := t.Context()
		if r.IntN(3) == 0 {
			ctx = authenticator.WithAudiences(ctx,
				one(r, authenticator.Audiences{"second"}, authenticator.Audiences{testIssuer}, authenticator.Audiences{"other"}))
		}
		theirs, theirsOK, theirErr := p.upstream.AuthenticateToken(ctx, token)
		ours, oursOK, ourErr := p.ours.AuthenticateToken(ctx, token)
		if theirsOK != oursOK {
			t.Fatalf("token %d: upstream %v (%v), we %v (%v)", i, theirsOK, theirErr, oursOK, ourErr)
		}
		if !oursOK {
			continue
		}
		accepted++
		if diff := cmp.Diff(asInfo(theirs.User), asInfo(ours.User)); diff != "" {
			t.Fatalf("token %d: %s", i, diff)
		}
		if diff := cmp.Diff(theirs.Audiences, ours.Audiences); diff != "" {
			t.Fatalf("token %d: %s", i, diff)
		}
	}
	if accepted < 500 || accepted > 4500 {
		t.Errorf("%d of 5000 tokens accepted: the random tokens are too similar", accepted)
	}
}

// asInfo returns a copy of an identity without its tenant.
func asInfo(u user.Info) *user.DefaultInfo {
	info := tenant.Bind(u, tenant.ID{})
	if len(info.Extra) == 0 {
		info.Extra = nil
	}
	return info
}
