// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// tokenConfig is a configuration with a revocation list and sources for certificates, service
// account tokens and ID tokens of an OIDC issuer.
const tokenConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
  - { name: cluster, serviceAccount: { issuer: https://kubernetes.default.svc, keyFiles: [pki/service-account.key] } }
  - name: corp
    tenants: [acme]
    oidc:
      jwt:
        issuer: { url: %q, audiences: [kubernetes], certificateAuthority: %q }
        claimMappings: { username: { claim: sub, prefix: "" } }
      tenant: { claim: org }
`

const noRevocations = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"

// TestTokens checks which tokens a server accepts, and when it no longer accepts them.
func TestTokens(t *testing.T) {
	t.Parallel()
	key := authntest.MustKey("ES256")
	issuer := authntest.NewIssuer(key)
	defer issuer.Close()
	s := startServer(t, map[string]string{
		"tenancy.yaml": fmt.Sprintf(tokenConfig, issuer.URL(), issuer.CA()),
		"revoked.yaml": noRevocations,
	}, "--", "--v=4")
	s.prepare(t)
	t.Run("issued tokens contain the tenant", func(t *testing.T) { issuedTokensNameTheirTenant(t, s) })
	t.Run("legacy tokens", func(t *testing.T) { legacyTokens(t, s) })
	t.Run("bound objects", func(t *testing.T) { boundObjects(t, s) })
	t.Run("streams end", func(t *testing.T) { streamsEnd(t, s) })
	t.Run("a recreated namespace", func(t *testing.T) { namespaceIsRecreated(t, s) })
	alice := key.MustSign(map[string]any{
		"iss": issuer.URL(),
		"aud": "kubernetes",
		"sub": "alice",
		"org": "acme",
		"jti": "one",
		"exp": time.Now().Add(time.Hour).Unix(),
	})
	t.Run("revocation", func(t *testing.T) { revocation(t, s, alice) })
	t.Run("an added client authority", func(t *testing.T) { clientAuthorityIsAdded(t, s, alice) })
	t.Run("no token is logged", func(t *testing.T) {
		log := s.read(t, "kube-apiserver.log")
		if log == "" {
			t.Fatal("the log is empty")
		}
		for _, word := range strings.Fields(log) {
			if strings.Count(word, ".") == 2 && strings.Contains(word, "eyJ") {
				t.Errorf("the log contains a token: %s", word)
			}
		}
	})
}

// account creates the ServiceAccount robot in a namespace.
func account(t *testing.T, k kubernetes.Interface, namespace string) {
	t.Helper()
	waittest.Until(t, func() error { // an earlier namespace of the same name may still be in the server's cache
		_, err := k.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
		return err
	})
}

// request returns a new token for the ServiceAccount robot.
func request(t *testing.T, k kubernetes.Interface, namespace string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	r, err := k.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "robot",
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(data, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// issuedTokensNameTheirTenant checks that TokenRequest tokens contain the tenant claim,
// whatever their audiences. It also checks the authenticated user of such a token.
func issuedTokensNameTheirTenant(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	account(t, admin, "acme--web")
	account(t, admin, "kube-system")
	for namespace, want := range map[string]string{"acme--web": "acme", "kube-system": "system"} {
		for _, audiences := range [][]string{nil, {"vault"}} {
			if got := claimsOf(t, request(t, admin, namespace,
				authenticationv1.TokenRequestSpec{Audiences: audiences}))[tenant.ExtraKey]; got != want {
				t.Errorf("a token of %s for %q names tenant %v", namespace, audiences, got)
			}
		}
	}
	// A tenant's admin runs kubectl create token.
	out := s.mustKubectl(t, "acme", "create", "token", "robot", "-n", "acme--web")
	u, err := s.whoami(t, strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	if u.Username != "system:serviceaccount:acme--web:robot" ||
		!slices.Equal(u.Extra[tenant.ExtraKey], []string{"acme"}) ||
		!slices.Equal(u.Extra[tenant.SourceKey], []string{"cluster"}) ||
		!strings.HasPrefix(u.Extra["authentication.kubernetes.io/credential-id"][0], "JTI=") ||
		!slices.Contains(u.Groups, "tenant:acme") {
		t.Errorf("whoami = %+v", u)
	}
	if _, err := s.whoami(t,
		request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}})); err == nil {
		t.Error("a token for another audience was accepted")
	}
}

// legacyTokens checks that a legacy token is accepted, that its Secret is labeled as used, and that
// the token is rejected after the Secret is deleted.
func legacyTokens(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	robot, err := admin.CoreV1().ServiceAccounts("acme--web").Get(t.Context(), "robot", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := legacySecret(t, s, robot)
	if err != nil {
		t.Fatal(err)
	}
	token := string(secret.Data["token"])
	u, err := s.whoami(t, token)
	if err != nil || u.Username != "system:serviceaccount:acme--web:robot" ||
		!slices.Equal(u.Extra[tenant.ExtraKey], []string{"acme"}) {
		t.Fatalf("whoami = %+v, %v", u, err)
	}
	waittest.Until(t, func() error {
		got, err := admin.CoreV1().Secrets("acme--web").Get(t.Context(), secret.Name, metav1.GetOptions{})
		if err == nil && got.Labels["kubernetes.io/legacy-token-last-used"] == "" {
			err = fmt.Errorf("labels %v", got.Labels)
		}
		return err
	})
	if err := admin.CoreV1().Secrets("acme--web").Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if _, err := s.whoami(t, token); err == nil {
			return fmt.Errorf("the token of a deleted Secret is accepted")
		}
		return nil
	})
}

// legacySecret creates a legacy token Secret as the token controller of kube-controller-manager
// does, because kubetenant-local does not run this controller.
func legacySecret(t *testing.T, s *server, robot *corev1.ServiceAccount) (*corev1.Secret, error) {
	t.Helper()
	const prefix = "kubernetes.io/serviceaccount/"
	token, err := signAsServer(s, map[string]any{
		"iss":                           "kubernetes/serviceaccount",
		"sub":                           "system:serviceaccount:acme--web:robot",
		prefix + "namespace":            "acme--web",
		prefix + "secret.name":          "robot-token",
		prefix + "service-account.name": "robot",
		prefix + "service-account.uid":  string(robot.UID),
	})
	if err != nil {
		return nil, err
	}
	return s.client(t, "admin").CoreV1().Secrets("acme--web").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "robot-token",
			Annotations: map[string]string{
				corev1.ServiceAccountNameKey: "robot",
				corev1.ServiceAccountUIDKey:  string(robot.UID),
			},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token)},
	}, metav1.CreateOptions{})
}

// signAsServer signs claims with the server's key for service account tokens.
func signAsServer(s *server, claims map[string]any) (string, error) {
	key, err := authntest.LoadKey(filepath.Join(s.Dir, "pki", "service-account.key"))
	if err != nil {
		return "", err
	}
	return key.MustSign(claims), nil
}

// boundObjects checks that a token is rejected soon after the Secret to which it is bound is
// deleted, even if the token was used before.
func boundObjects(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	secret, err := admin.CoreV1().Secrets("acme--web").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Secret",
			Name:       secret.Name,
			UID:        secret.UID,
		},
	})
	if _, err := s.whoami(t, token); err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().Secrets("acme--web").Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, applyLimit, func() error {
		if _, err := s.whoami(t, token); err == nil {
			return fmt.Errorf("the token of a deleted Secret is accepted")
		}
		return nil
	})
}

// namespaceIsRecreated checks that a token is rejected after its namespace was deleted and created
// again for another tenant or for the same tenant.
func namespaceIsRecreated(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	makeAgain := func(owner string) {
		t.Helper()
		waittest.Until(t, func() error {
			_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:   "moving",
				Labels: map[string]string{tenant.Label: owner},
			}}, metav1.CreateOptions{})
			return err
		})
		account(t, admin, "moving")
	}
	makeAgain("acme")
	token := request(t, admin, "moving", authenticationv1.TokenRequestSpec{})
	if u, err := s.whoami(t, token); err != nil ||
		!slices.Equal(u.Extra[tenant.ExtraKey], []string{"acme"}) {
		t.Fatalf("whoami = %+v, %v", u, err)
	}
	for _, owner := range []string{"globex", "acme"} {
		if err := admin.CoreV1().Namespaces().Delete(t.Context(), "moving", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		makeAgain(owner)
		if u, err := s.whoami(t, token); err == nil {
			t.Errorf("the old token in the namespace of %s is %+v", owner, u)
		}
		newToken := request(t, admin, "moving", authenticationv1.TokenRequestSpec{})
		if u, err := s.whoami(t, newToken); err != nil ||
			!slices.Equal(u.Extra[tenant.ExtraKey], []string{owner}) {
			t.Errorf("a new token in the namespace of %s is %+v, %v", owner, u, err)
		}
	}
}

// clientAuthorityIsAdded checks that a client certificate is accepted after its authority is
// added to the CA file of a running server, even while other credentials are revoked. The
// certificate must be rejected after its authority is revoked.
func clientAuthorityIsAdded(t *testing.T, s *server, token string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "new"}, key)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "new-admin", Organization: []string{"system:masters"}},
		NotBefore:   ca.NotBefore,
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &tls.Certificate{Leaf: ca, PrivateKey: key})
	if err != nil {
		t.Fatal(err)
	}
	before := s.read(t, "pki/ca.crt")
	c := rest.AnonymousClientConfig(s.config(t, "admin"))
	if c.CertData, c.KeyData, err = encode(pair); err != nil {
		t.Fatal(err)
	}
	comesIn := func() error {
		_, err := client(t, c).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	// Without the source certs, the server's built-in authenticator checks certificates. It does
	// not accept acme's certificate.
	acmeAuthenticates := func(want bool) func() error {
		return func() error {
			_, err := s.client(t, "acme").CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			if (err == nil) != want {
				return fmt.Errorf("acme is authenticated: %v, want %v (%w)", err == nil, want, err)
			}
			return nil
		}
	}
	settings := s.read(t, "tenancy.yaml")
	s.write(t, "tenancy.yaml",
		strings.Replace(settings, "  - { name: certs, x509: { clientCAFile: pki/ca.crt } }\n", "", 1))
	waittest.Until(t, acmeAuthenticates(false))
	if err := comesIn(); err == nil {
		t.Error("a certificate of an unknown authority was accepted")
	}
	s.write(t, "pki/ca.crt", before+string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})))
	waittest.Until(t, comesIn)
	s.write(t, "revoked.yaml", noRevocations+"certificates: [ { sha256: "+
		"\"0000000000000000000000000000000000000000000000000000000000000000\" } ]\n"+
		"users: [ { tenant: acme, name: alice } ]\n")
	waittest.Until(t, func() error {
		if _, err := s.whoami(t, token); err == nil {
			return errors.New("the revocations have not taken effect")
		}
		return nil
	})
	if err := comesIn(); err != nil {
		t.Errorf("while other credentials are revoked: %v", err)
	}
	s.write(t, "revoked.yaml", noRevocations+fmt.Sprintf("certificates: [ { sha256: \"%x\" } ]\n", sha256.Sum256(ca.Raw)))
	waittest.Within(t, applyLimit, func() error {
		if comesIn() == nil {
			return errors.New("a certificate of a revoked authority is accepted")
		}
		return nil
	})
	s.write(t, "revoked.yaml", noRevocations)
	s.write(t, "pki/ca.crt", before)
	s.write(t, "tenancy.yaml", settings)
	waittest.Until(t, acmeAuthenticates(true))
}

// revocation checks that a revocation and its removal take effect soon after the file is
// written, even if the result of the token's authentication is cached. An invalid file must not
// change the revocations.
func revocation(t *testing.T, s *server, token string) {
	works := func(want bool) func() error {
		return func() error {
			if _, err := s.whoami(t, token); (err == nil) != want {
				return fmt.Errorf("the token works: %v, want %v", err == nil, want)
			}
			return nil
		}
	}
	waittest.Until(t, works(true))
	bad := 0
	for _, list := range []string{
		"tokens: [ { issuer: %q, id: one } ]", "users: [ { tenant: acme, name: alice } ]", "tenants: [ { name: acme } ]",
	} {
		if strings.Contains(list, "%q") {
			list = fmt.Sprintf(list, claimsOf(t, token)["iss"])
		}
		s.write(t, "revoked.yaml", noRevocations+list+"\n")
		waittest.Within(t, applyLimit, works(false))
		s.write(t, "revoked.yaml", noRevocations+"nonsense: 1\n")
		bad++
		waittest.Until(t, func() error { return newVersions(t, s, "revoked.yaml", "error", bad) })
		if err := works(false)(); err != nil {
			t.Errorf("after an invalid file: %v", err)
		}
		s.write(t, "revoked.yaml", noRevocations)
		waittest.Within(t, applyLimit, works(true))
	}
}

// applyLimit is the longest time until a revocation must take effect. It is long enough for a busy
// machine, but shorter than the lifetime of a cached result.
const applyLimit = 8 * time.Second
