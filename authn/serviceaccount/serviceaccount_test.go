// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serviceaccount_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/tenant"
)

const issuer = "https://kubernetes.default.svc"

// cluster has the objects to which tokens are bound, and the owner of the namespaces.
type cluster struct {
	owner string
	err   error // the error of each lookup
	uid   types.UID
	token string // the token in the Secret
	gone  bool
}

func (c *cluster) meta(name string) (metav1.ObjectMeta, error) {
	if c.err != nil {
		return metav1.ObjectMeta{}, c.err
	}
	if c.gone {
		return metav1.ObjectMeta{}, apierrors.NewNotFound(corev1.Resource("objects"), name)
	}
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: c.uid}, nil
}

func (c *cluster) GetServiceAccount(_ context.Context, _, name string) (*corev1.ServiceAccount, error) {
	m, err := c.meta(name)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}

func (c *cluster) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	m, err := c.meta(name)
	return &corev1.Pod{ObjectMeta: m}, err
}

func (c *cluster) GetSecret(_ context.Context, _, name string) (*corev1.Secret, error) {
	m, err := c.meta(name)
	return &corev1.Secret{ObjectMeta: m, Data: map[string][]byte{"token": []byte(c.token)}}, err
}

func (c *cluster) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	m, err := c.meta(name)
	return &corev1.Node{ObjectMeta: m}, err
}

func (c *cluster) ownerOf(context.Context, string) (tenant.ID, error) {
	if c.err != nil {
		return tenant.ID{}, c.err
	}
	return tenant.Parse(c.owner)
}

func keyFile(t testing.TB, keys ...*authntest.Key) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sa.pub")
	writeKeys(t, path, keys...)
	return path
}

func writeKeys(t testing.TB, path string, keys ...*authntest.Key) {
	t.Helper()
	var data []byte
	for _, k := range keys {
		data = append(data, k.PublicPEM()...)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, c *cluster, keys ...*authntest.Key) *serviceaccount.Authenticator {
	t.Helper()
	opened, err := serviceaccount.OpenKeys([]string{keyFile(t, keys...)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return serviceaccount.New(opened, serviceaccount.Options{
		Issuer:  issuer,
		Legacy:  true,
		Owner:   c.ownerOf,
		Objects: c,
	})
}

func bound(uid string) map[string]any {
	return map[string]any{
		"iss":                   issuer,
		"aud":                   []string{issuer},
		"sub":                   "system:serviceaccount:ns:robot",
		"exp":                   time.Now().Add(time.Hour).Unix(),
		"kubetenant.dev/tenant": "a",
		"kubernetes.io": map[string]any{
			"namespace":      "ns",
			"serviceaccount": map[string]any{"name": "robot", "uid": uid},
		},
	}
}

func legacy() map[string]any {
	const prefix = "kubernetes.io/serviceaccount/"
	return map[string]any{
		"iss":                           serviceaccount.LegacyIssuer,
		"sub":                           "system:serviceaccount:ns:robot",
		prefix + "namespace":            "ns",
		prefix + "service-account.name": "robot",
		prefix + "service-account.uid":  "u",
		prefix + "secret.name":          "s",
	}
}

// TestRotation checks that the keys of all files verify tokens. A new version of a file adds and
// removes keys. An invalid version has no effect.
func TestRotation(t *testing.T) {
	old, fresh, third := authntest.MustKey("RS256"), authntest.MustKey("ES256"), authntest.MustKey("RS256")
	first, second := keyFile(t, old), keyFile(t, third)
	reported := make(chan error, 10)
	keys, err := serviceaccount.OpenKeys([]string{first, second}, func(_ string, err error) { reported <- err })
	if err != nil {
		t.Fatal(err)
	}
	keys.Run(t.Context())
	c := &cluster{owner: "a", uid: "u"}
	a := serviceaccount.New(keys, serviceaccount.Options{Issuer: issuer, Owner: c.ownerOf, Objects: c})
	check := func(k *authntest.Key, want error) {
		t.Helper()
		if _, _, err := a.AuthenticateToken(t.Context(), k.MustSign(bound("u"))); !errors.Is(err, want) {
			t.Errorf("AuthenticateToken() = %v, want %v", err, want)
		}
	}
	check(old, nil)
	check(third, nil)
	check(fresh, serviceaccount.ErrUnknownKey)
	writeKeys(t, first, old, fresh)
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	check(old, nil)
	check(fresh, nil)
	if err := os.WriteFile(first, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-reported; err == nil || strings.Contains(err.Error(), "nonsense") {
		t.Fatalf("a bad file was reported as %v", err)
	}
	check(old, nil)
	writeKeys(t, first, fresh)
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	check(old, serviceaccount.ErrUnknownKey)
	check(fresh, nil)
}

// TestRevalidate checks that an accepted identity becomes invalid if the owner of the namespace
// changes or a lookup fails. It also becomes invalid if an object is deleted or replaced.
func TestRevalidate(t *testing.T) {
	key := authntest.MustKey("ES256")
	for name, change := range map[string]struct {
		do   func(*cluster)
		want error
	}{
		"nothing":          {func(*cluster) {}, nil},
		"another owner":    {func(c *cluster) { c.owner = "b" }, serviceaccount.ErrTenantClaim},
		"replaced":         {func(c *cluster) { c.uid = "v" }, serviceaccount.ErrGone},
		"deleted":          {func(c *cluster) { c.gone = true }, serviceaccount.ErrGone},
		"a lookup fails":   {func(c *cluster) { c.err = context.DeadlineExceeded }, serviceaccount.ErrLookup},
		"an invalid owner": {func(c *cluster) { c.owner = "All" }, tenant.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{owner: "a", uid: "u"}
			a := open(t, c, key)
			token := key.MustSign(bound("u"))
			resp, _, err := a.AuthenticateToken(t.Context(), token)
			if err != nil {
				t.Fatalf("%v", err)
			}
			change.do(c)
			revalidator := resp.User.(authn.Revalidator)
			if err := revalidator.Revalidate(t.Context()); !errors.Is(err, change.want) || (err == nil) != (change.want == nil) {
				t.Errorf("Revalidate() = %v, want %v", err, change.want)
			}
			if _, ok, err := a.AuthenticateToken(t.Context(), token); ok != (change.want == nil) {
				t.Errorf("AuthenticateToken() = %v, %v", ok, err)
			}
		})
	}
}

func TestLegacy(t *testing.T) {
	key := authntest.MustKey("RS256")
	token := key.MustSign(legacy())
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"the Secret has the token":     {token, nil},
		"the Secret has another token": {key.MustSign(legacy()) + "x", serviceaccount.ErrInvalidated},
		"the Secret is empty":          {"", serviceaccount.ErrInvalidated},
	} {
		t.Run(name, func(t *testing.T) {
			used := 0
			cl := &cluster{owner: "a", uid: "u", token: c.token}
			keys, err := serviceaccount.OpenKeys([]string{keyFile(t, key)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := serviceaccount.New(keys, serviceaccount.Options{
				Issuer:            issuer,
				Legacy:            true,
				Owner:             cl.ownerOf,
				Objects:           cl,
				OnLegacyTokenUsed: func(_ context.Context, s *corev1.Secret) { used++ },
			})
			if _, _, err := a.AuthenticateToken(t.Context(), token); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if (used == 1) != (c.want == nil) {
				t.Errorf("its use was reported %d times", used)
			}
			a = serviceaccount.New(keys, serviceaccount.Options{Issuer: issuer, Owner: cl.ownerOf, Objects: cl})
			if _, _, err := a.AuthenticateToken(t.Context(), token); !errors.Is(err, serviceaccount.ErrIssuer) {
				t.Errorf("without Legacy: %v", err)
			}
		})
	}
}

// TestErrorsContainNoToken checks that errors contain no part of the token. The errors from the
// JWT library contain parts of the token.
func TestErrorsContainNoToken(t *testing.T) {
	const canary = "CANARY"
	key := authntest.MustKey("ES256")
	a := open(t, &cluster{owner: "a", uid: "u"}, key)
	for i, token := range []string{
		canary,
		canary + "." + canary + "." + canary,
		"eyJhbGciOiJDQU5BUlkifQ.e30.",
		"eyJhbGciOiJFUzI1NiIsImtpZCI6IkNBTkFSWSJ9.e30.x",
		key.MustSign(map[string]any{"iss": canary}),
		key.MustSign(map[string]any{"iss": issuer, "aud": canary}),
		key.MustSign(map[string]any{
			"iss": issuer,
			"aud": issuer,
			"sub": canary,
			"exp": 4102444800,
		}),
		key.MustSign(map[string]any{"exp": canary}),
	} {
		_, ok, err := a.AuthenticateToken(t.Context(), token)
		if ok || err == nil || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("token %d: %v, %v", i, ok, err)
		}
	}
}

// FuzzToken checks signed tokens with any payload. An accepted identity must be a service
// account of the namespace's owner. Only signed tokens are accepted.
func FuzzToken(f *testing.F) {
	key := authntest.MustKey("ES256")
	a := open(f, &cluster{owner: "a", uid: "u", token: "t"}, key)
	for _, claims := range []map[string]any{bound("u"), bound("v"), legacy()} {
		payload, err := json.Marshal(claims)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		token, err := key.Sign(key.Header(), payload)
		if err != nil {
			t.Fatal(err)
		}
		resp, ok, err := a.AuthenticateToken(t.Context(), token)
		if ok == (err != nil) || ok == (resp == nil) {
			t.Fatalf("AuthenticateToken() = %+v, %v, %v", resp, ok, err)
		}
		if ok {
			if id, err := tenant.Of(resp.User); err != nil || id.String() != "a" ||
				!strings.HasPrefix(resp.User.GetName(), "system:serviceaccount:") || resp.User.GetUID() == "" {
				t.Fatalf("identity %+v", resp.User)
			}
		}
		if _, ok, _ := a.AuthenticateToken(t.Context(), string(payload)); ok {
			t.Fatal("accepted without a signature")
		}
	})
}

// BenchmarkToken measures the verification of a service-account token, and the verification of
// the signature alone by the same library.
func BenchmarkToken(b *testing.B) {
	for _, algorithm := range []string{"ES256", "RS256"} {
		key := authntest.MustKey(algorithm)
		token := key.MustSign(bound("u"))
		a := open(b, &cluster{owner: "a", uid: "u"}, key)
		dot := strings.LastIndexByte(token, '.')
		signature, err := jwt.NewParser().DecodeSegment(token[dot+1:])
		if err != nil {
			b.Fatal(err)
		}
		method := jwt.GetSigningMethod(algorithm)
		b.Run(algorithm+"/signature", func(b *testing.B) {
			for b.Loop() {
				if err := method.Verify(token[:dot], signature, key.Private.Public()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(algorithm+"/kubetenant", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := a.AuthenticateToken(b.Context(), token); !ok || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// zeroPods returns an empty Pod for each name.
type zeroPods struct{ *cluster }

func (zeroPods) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return &corev1.Pod{}, nil
}

// TestEmptyUIDMatchesNoObject checks that a token that is bound to an object without a UID is
// rejected, even if the object has no UID.
func TestEmptyUIDMatchesNoObject(t *testing.T) {
	key := authntest.MustKey("ES256")
	keys, err := serviceaccount.OpenKeys([]string{keyFile(t, key)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{owner: "a", uid: "u"}
	a := serviceaccount.New(keys, serviceaccount.Options{Issuer: issuer, Owner: c.ownerOf, Objects: zeroPods{c}})
	claims := bound("u")
	claims["kubernetes.io"].(map[string]any)["pod"] = map[string]any{"name": "p"}
	if _, ok, err := a.AuthenticateToken(t.Context(), key.MustSign(claims)); ok ||
		!errors.Is(err, serviceaccount.ErrGone) {
		t.Errorf("= %v, %v", ok, err)
	}
}
