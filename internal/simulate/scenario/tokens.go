// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/authntest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// token returns the bearer token of a credential, or "" if the credential has none. It also sets
// the response of the fake provider that validates the token.
func (w *Fixture) token(ctx context.Context, c *Credential) (string, error) {
	switch {
	case c.ServiceAccount != nil:
		return w.serviceAccountToken(ctx, c.ServiceAccount)
	case c.OIDC != nil:
		return w.idToken(c.OIDC)
	case c.Keystone != nil:
		return w.keystoneToken(c.Keystone)
	case c.Webhook != nil:
		return w.webhookToken(c.Webhook)
	}
	return c.BearerToken, nil
}

// source returns the source of a kind with the given name. If name is empty, it returns the first
// source of the kind.
func (w *Fixture) source(name, kind string, matches func(*configv1alpha1.Source) bool) (*configv1alpha1.Source, error) {
	for i := range w.Config.Authentication.Sources {
		if src := &w.Config.Authentication.Sources[i]; matches(src) && (name == "" || name == src.Name) {
			return src, nil
		}
	}
	if name == "" {
		return nil, fmt.Errorf("credential: the configuration has no source of kind %s", kind)
	}
	return nil, fmt.Errorf("credential: the configuration has no source %q of kind %s", name, kind)
}

func (w *Fixture) serviceAccountToken(ctx context.Context, c *ServiceAccountCredential) (string, error) {
	src, err := w.source("", "serviceAccount", func(s *configv1alpha1.Source) bool { return s.ServiceAccount != nil })
	if err != nil {
		return "", err
	}
	uid := c.UID
	if uid == "" {
		if uid, err = w.UID(ctx, c.Namespace, c.Name); err != nil {
			return "", err
		}
		if uid == "" && len(c.JWT.RawPayload) == 0 {
			return "", fmt.Errorf("credential: ServiceAccount %s/%s is not in objects: add it, or set the credential's uid",
				c.Namespace, c.Name)
		}
	}
	audiences := c.Audiences
	if audiences == nil {
		audiences = []string{Audience}
	}
	begins := w.now.Add(duration(c.NotBeforeIn, 0)).Unix()
	claims := map[string]any{
		"iss": src.ServiceAccount.Issuer,
		"aud": audiences,
		"sub": "system:serviceaccount:" + c.Namespace + ":" + c.Name,
		"exp": w.now.Add(duration(c.ExpiresIn, time.Hour)).Unix(),
		"nbf": begins,
		"iat": begins,
		"jti": rand.Text(),
		"kubernetes.io": map[string]any{
			"namespace":      c.Namespace,
			"serviceaccount": map[string]any{"name": c.Name, "uid": uid},
		},
	}
	return sign(w.keys[src.Name], merged(claims, c.Claims), &c.JWT)
}

func (w *Fixture) idToken(c *OIDCCredential) (string, error) {
	src, err := w.source(c.Issuer, "oidc", func(s *configv1alpha1.Source) bool { return s.OIDC != nil })
	if err != nil {
		return "", err
	}
	// Upstream's authenticator uses the system clock, not the clock of the scenario.
	now := time.Now()
	issuer := src.OIDC.JWT.Issuer
	claims := map[string]any{
		"iss": issuer.URL,
		"aud": issuer.Audiences[0],
		"sub": "subject",
		"exp": now.Add(duration(c.ExpiresIn, time.Hour)).Unix(),
		"iat": now.Unix(),
	}
	return sign(w.keys[src.Name], merged(claims, c.Claims), &c.JWT)
}

func (w *Fixture) keystoneToken(c *KeystoneCredential) (string, error) {
	token := c.Token
	if token == "" {
		token = "gAAAAA" + rand.Text()
	}
	answer := faulty(c.Fault)
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if c.Status != 0 {
				w.WriteHeader(c.Status)
			}
			_, _ = w.Write([]byte(text(c.Body)))
		}
	}
	w.providers.expect(token, answer)
	return token, nil
}

func (w *Fixture) webhookToken(c *WebhookCredential) (string, error) {
	src, err := w.source(c.Source, "webhook", func(s *configv1alpha1.Source) bool { return s.Webhook != nil })
	if err != nil {
		return "", err
	}
	token := src.Webhook.Match.Prefix + rand.Text()
	if issuer := src.Webhook.Match.Issuer; issuer != "" {
		key, err := authntest.NewKey("ES256")
		if err != nil {
			return "", err
		}
		if token, err = sign(key, map[string]any{"iss": issuer, "jti": rand.Text()}, &Forgery{}); err != nil {
			return "", err
		}
	}
	answer := faulty(c.Fault)
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
				Status:   c.Status,
			})
		}
	}
	w.providers.expect(src.Name+" "+token, answer)
	return token, nil
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// merged adds the claims of more to claims. A nil value in more removes a claim.
func merged(claims, more map[string]any) map[string]any {
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// sign returns a token with the claims, changed as the forgery specifies.
func sign(key *authntest.Key, claims map[string]any, f *Forgery) (string, error) {
	if key == nil {
		return "", errors.New("credential: the test runner has no signing key for this source: remove its keyFiles or " +
			"discoveryURL")
	}
	header := key.Header()
	payload := []byte(text(f.RawPayload))
	if len(f.RawPayload) == 0 {
		var err error
		if payload, err = json.Marshal(claims); err != nil {
			return "", err
		}
	}
	switch f.SignWith {
	case SignWithNone:
		header["alg"] = "none"
		return authntest.Unsigned(merged(header, f.Header), payload)
	case SignWithPublicKeyAsHMAC:
		header["alg"] = "HS256"
		return key.SignHMAC(merged(header, f.Header), payload)
	case SignWithOtherKey:
		var err error
		if key, err = authntest.NewKey(key.Algorithm); err != nil {
			return "", err
		}
	}
	return key.Sign(merged(header, f.Header), payload)
}
