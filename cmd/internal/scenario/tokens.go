package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// token returns the bearer token that a credential presents, empty if it presents none, and sees to
// it that whoever is asked about it answers.
func (w *World) token(ctx context.Context, c *v1alpha1.Credential) (string, error) {
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

// source returns the source of a name, or the first that is of the kind.
func (w *World) source(name, kind string, is func(*v1alpha1.Source) bool) (*v1alpha1.Source, error) {
	for i := range w.Config.Authentication.Sources {
		if src := &w.Config.Authentication.Sources[i]; is(src) && (name == "" || name == src.Name) {
			return src, nil
		}
	}
	return nil, fmt.Errorf("credential: no source %q of kind %s", name, kind)
}

func (w *World) serviceAccountToken(ctx context.Context, c *v1alpha1.ServiceAccountCredential) (string, error) {
	src, err := w.source("", "serviceAccount", func(s *v1alpha1.Source) bool { return s.ServiceAccount != nil })
	if err != nil {
		return "", err
	}
	uid := c.UID
	if uid == "" {
		if uid, err = w.UID(ctx, c.Namespace, c.Name); err != nil {
			return "", err
		}
	}
	audiences := c.Audiences
	if audiences == nil {
		audiences = []string{Audience}
	}
	begins := w.now.Add(duration(c.NotBeforeIn, 0)).Unix()
	claims := map[string]any{
		"iss": src.ServiceAccount.Issuer, "aud": audiences, "sub": "system:serviceaccount:" + c.Namespace + ":" + c.Name,
		"exp": w.now.Add(duration(c.ExpiresIn, time.Hour)).Unix(), "nbf": begins, "iat": begins, "jti": rand.Text(),
		"kubernetes.io": map[string]any{"namespace": c.Namespace, "serviceaccount": map[string]any{"name": c.Name, "uid": uid}},
	}
	return sign(w.keys[src.Name], merged(claims, c.Claims), &c.JWT)
}

func (w *World) idToken(c *v1alpha1.OIDCCredential) (string, error) {
	src, err := w.source(c.Issuer, "oidc", func(s *v1alpha1.Source) bool { return s.OIDC != nil })
	if err != nil {
		return "", err
	}
	// Upstream's authenticator has the machine's clock.
	now := time.Now()
	issuer := src.OIDC.JWT.Issuer
	claims := map[string]any{"iss": issuer.URL, "aud": issuer.Audiences[0], "sub": "subject",
		"exp": now.Add(duration(c.ExpiresIn, time.Hour)).Unix(), "iat": now.Unix()}
	return sign(w.keys[src.Name], merged(claims, c.Claims), &c.JWT)
}

func (w *World) keystoneToken(c *v1alpha1.KeystoneCredential) (string, error) {
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

func (w *World) webhookToken(c *v1alpha1.WebhookCredential) (string, error) {
	src, err := w.source(c.Source, "webhook", func(s *v1alpha1.Source) bool { return s.Webhook != nil })
	if err != nil {
		return "", err
	}
	token := src.Webhook.Match.Prefix + rand.Text()
	if issuer := src.Webhook.Match.Issuer; issuer != "" {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", err
		}
		if token, err = sign(key, map[string]any{"iss": issuer, "jti": rand.Text()}, &v1alpha1.Forgery{}); err != nil {
			return "", err
		}
	}
	answer := faulty(c.Fault)
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(authenticationv1.TokenReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}, Status: c.Status})
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

// merged returns claims with more added; nil takes one away.
func merged(claims, more map[string]any) map[string]any {
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// keyID is the key ID that kube-apiserver derives.
func keyID(key *ecdsa.PrivateKey) string {
	sum := sha256.Sum256(publicDER(key))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func publicDER(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err) // of a key that was just made
	}
	return der
}

// sign returns the compact form (RFC 7515, section 7.1) of a token, as forged. It is written out
// here because libraries refuse to make what these tokens are to show.
func sign(key *ecdsa.PrivateKey, claims map[string]any, f *v1alpha1.Forgery) (string, error) {
	if key == nil {
		return "", fmt.Errorf("credential: the runner has no key of this source: leave its keyFiles or discoveryURL out")
	}
	header := map[string]any{"alg": "ES256", "kid": keyID(key), "typ": "JWT"}
	switch f.SignWith {
	case v1alpha1.SignWithNone:
		header["alg"] = "none"
	case v1alpha1.SignWithPublicKeyAsHMAC:
		header["alg"] = "HS256"
	}
	head, err := json.Marshal(merged(header, f.Header))
	if err != nil {
		return "", err
	}
	payload := []byte(text(f.RawPayload))
	if len(f.RawPayload) == 0 {
		if payload, err = json.Marshal(claims); err != nil {
			return "", err
		}
	}
	input := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(payload)
	signature, err := signature(key, input, f.SignWith)
	return input + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

func signature(key *ecdsa.PrivateKey, input, signWith string) ([]byte, error) {
	switch signWith {
	case v1alpha1.SignWithNone:
		return nil, nil
	case v1alpha1.SignWithPublicKeyAsHMAC:
		h := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER(key)}))
		_, _ = h.Write([]byte(input))
		return h.Sum(nil), nil
	case v1alpha1.SignWithOtherKey:
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	out := make([]byte, 64) // RFC 7518, section 3.4
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out, nil
}
