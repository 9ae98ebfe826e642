// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var schemaPods = schema.GroupVersionResource{Resource: "pods"}

// serverConfig returns the client configuration of a server with a handler.
func serverConfig(t *testing.T, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
}

// authenticatingServer returns the client configuration of a server that authenticates every
// caller as the given user (a UserInfo in JSON). The server answers reads of a Namespace with
// the given status code and body.
func authenticatingServer(t *testing.T, user string, code int, namespace string) *rest.Config {
	t.Helper()
	return serverConfig(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(namespace))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(
			[]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":` + user + `}}`),
		)
	})
}

// TestWhoAmITenant checks the tenant and the rule that determined it, or the reason why the
// tenant is unknown. If the caller may not read the Namespace, the tenant extra from the server
// is enough.
func TestWhoAmITenant(t *testing.T) {
	const robot = `{"username":"system:serviceaccount:acme--web:robot","groups":["system:serviceaccounts"]`
	const owned = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"acme--web",` +
		`"labels":{"kubetenant.dev/tenant":"acme"}}}`
	const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for name, c := range map[string]struct {
		user      string
		code      int
		namespace string
		tenant    string
		because   string
	}{
		"tenant extra": {
			`{"username":"alice","extra":{"kubetenant.dev/tenant":["acme"]}}`, 0, "", "acme", "the extra kubetenant.dev/tenant",
		},
		"tenant group of a certificate": {
			`{"username":"alice","groups":["tenant:acme"],` +
				`"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=00"]}}`,
			0,
			"",
			"acme",
			"the only group tenant:<id> of a certificate",
		},
		"tenant group without a certificate": {`{"username":"alice","groups":["tenant:acme"]}`, 0, "", "", "none: "},
		"no tenant":                          {`{"username":"alice"}`, 0, "", "", "none: "},
		"two tenants in the extra": {
			`{"username":"alice","extra":{"kubetenant.dev/tenant":["acme","globex"]}}`, 0, "", "", "none: ",
		},
		"group of the system tenant": {
			`{"username":"admin","groups":["system:masters"]}`, 0, "", "system", "a name of the system tenant",
		},
		"service account": {robot + "}", 200, owned, "acme", "the owner of the service account's namespace"},
		"unreadable namespace": {
			robot + "}", 403, forbidden, "", "unknown: you may not read the namespace of the service account",
		},
		"unreadable namespace with a tenant extra": {
			robot + `,"extra":{"kubetenant.dev/tenant":["acme"]}}`, 403, forbidden, "acme", "the extra kubetenant.dev/tenant",
		},
		"invalid tenant label": {robot + "}", 200, strings.Replace(owned, `"acme"`, `"NO/"`, 1), "", "none: "},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := (&client.Cluster{Config: authenticatingServer(t, c.user, c.code, c.namespace)}).WhoAmI(t.Context())
			if err != nil || i.Tenant != c.tenant || !strings.HasPrefix(i.TenantReason, c.because) {
				t.Errorf("%+v, %v; want %q, %q", i, err, c.tenant, c.because)
			}
		})
	}
}

// TestWhoAmIExpires checks the expiry of the credential that the server used, or the reason why
// it is unknown.
func TestWhoAmIExpires(t *testing.T) {
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	ends := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	const alice = `{"username":"alice","extra":{"kubetenant.dev/tenant":["acme"],"kubetenant.dev/source":["idp"]}}`
	byCertificate := strings.Replace(alice, `"extra":{`,
		`"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=00"],`, 1)
	for name, c := range map[string]struct {
		user, token string
		change      func(*rest.Config)
		want        string
	}{
		"token":                      {alice, jwt(`{"exp":1927857906}`), nil, ends.Format(time.RFC3339)},
		"token without expiry":       {alice, jwt(`{"sub":"alice"}`), nil, "never: the token has no expiry"},
		"opaque token":               {alice, "sesame", nil, "unknown: the token is opaque"},
		"opaque token with two dots": {alice, "a.!.c", nil, "unknown: the token is opaque"},
		"invalid expiry":             {alice, jwt(`{"exp":"soon"}`), nil, "unknown: the token is opaque"},
		"certificate used, not the token": {
			byCertificate,
			jwt(`{"exp":1}`),
			func(c *rest.Config) { c.CertData = certificate(t, ends) },
			ends.Format(time.RFC3339),
		},
		"token used, not the certificate": {
			alice, jwt(`{"exp":1}`), func(c *rest.Config) { c.CertData = certificate(t, ends) }, "1970-01-01T00:00:01Z",
		},
		"no credential": {alice, "", nil, "unknown: no credential with an expiry was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			config := authenticatingServer(t, c.user, 0, "")
			config.BearerToken = c.token
			if c.change != nil {
				c.change(config)
			}
			// The server has no TLS, so it never receives the certificate. WhoAmI only reads the
			// expiry.
			i, err := (&client.Cluster{Config: config}).WhoAmI(t.Context())
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			got := i.ExpiryUnknown
			if i.Expires != nil {
				got = i.Expires.Format(time.RFC3339)
			}
			if got != c.want || i.Source != "idp" || i.User != "alice" {
				t.Errorf("%+v, ends %q; want %q", i, got, c.want)
			}
		})
	}
}

// TestWhoAmIOfOldServers checks that the error for a server without SelfSubjectReviews differs
// from the error for a server that denies the review.
func TestWhoAmIOfOldServers(t *testing.T) {
	for code, matches := range map[int]func(error) bool{
		http.StatusNotFound:  apierrors.IsMethodNotSupported,
		http.StatusForbidden: apierrors.IsForbidden,
	} {
		c := &client.Cluster{Config: serverConfig(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })}
		if i, err := c.WhoAmI(t.Context()); i != nil || !matches(err) {
			t.Errorf("%d: %v, %v", code, i, err)
		}
	}
}

// certificate returns a certificate that expires at a time.
func certificate(t *testing.T, at time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "alice"},
		NotBefore:    at.Add(-time.Hour),
		NotAfter:     at,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestExpiredCertificate checks that the error for a rejected credential reports an expired
// client certificate, including a certificate in a file.
func TestExpiredCertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.crt")
	if err := os.WriteFile(file, certificate(t, time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)), 0o600); err != nil {
		t.Fatal(err)
	}
	const expired, refused = "the client certificate expired at 2020-01-02T03:04:05Z",
		"the server rejected the credential"
	for want, config := range map[string]*rest.Config{
		expired:          {TLSClientConfig: rest.TLSClientConfig{CertFile: file}},
		refused + ": it": {TLSClientConfig: rest.TLSClientConfig{CertData: certificate(t, time.Now().Add(time.Hour))}},
		refused: {
			TLSClientConfig: rest.TLSClientConfig{CertFile: file + ".none"},
			ExecProvider:    &clientcmdapi.ExecConfig{Command: "x"},
		},
	} {
		t.Run(want, func(t *testing.T) {
			if err := (&client.Cluster{Config: config}).Explain(apierrors.NewUnauthorized("no")); !strings.HasPrefix(err.Error(),
				want) || !apierrors.IsUnauthorized(err) {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
}

// TestTenantURL checks that the result has the tenant's path if the server serves it, even if
// the kubeconfig has another tenant's path. The system tenant has no path. If the server does
// not respond, TenantURL returns an error.
func TestTenantURL(t *testing.T) {
	serves := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tenants/acme/version" {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		path    string
		of      tenant.ID
		want    string
	}{
		"served path": {serves, "", acme, "/tenants/acme"},
		"another tenant's path in the kubeconfig": {serves, "/tenants/globex", acme, "/tenants/acme"},
		"tenant path after another path": {
			func(http.ResponseWriter, *http.Request) {}, "/k8s/tenants/globex/", acme, "/k8s/tenants/acme",
		},
		"no tenant paths": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "/", acme, "",
		},
		"forbidden path": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "", acme, "",
		},
		"system tenant": {
			func(http.ResponseWriter, *http.Request) { t.Error("unexpected request") }, "/tenants/globex", tenant.System(), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := serverConfig(t, c.handler)
			base := config.Host
			config.Host += c.path
			if got, err := (&client.Cluster{Config: config}).TenantURL(t.Context(), c.of); err != nil || got != base+c.want {
				t.Errorf("%s, %v; want %s", got, err, base+c.want)
			}
		})
	}
	away := httptest.NewServer(nil)
	away.Close()
	if got, err := (&client.Cluster{Config: &rest.Config{Host: away.URL}}).TenantURL(t.Context(), acme); err == nil ||
		got != "" {
		t.Errorf("unreachable server: %q, %v", got, err)
	}
}
