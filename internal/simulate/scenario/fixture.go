// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	asn1util "k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authn/authntest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Values of X509Credential.CA for certificate authorities that belong to no x509 source.
const (
	otherCA      = "other"
	frontProxyCA = "front-proxy"
)

// Fixture contains the files, certificate authorities and keys that the configuration of a scenario
// needs.
type Fixture struct {
	Scenario *Scenario
	// Dir contains the files. A local server can use it as its directory.
	Dir string
	// Config is the configuration with absolute paths. ConfigFile is the path of its file. The
	// configuration may be invalid.
	Config     *configv1alpha1.TenancyConfiguration
	ConfigFile string

	// UID returns the UID of a ServiceAccount, or "" if the ServiceAccount does not exist. The mode
	// sets this function.
	UID func(ctx context.Context, namespace, name string) (string, error)

	now       time.Time
	cas       map[string]*ca
	keys      map[string]*authntest.Key // keys of the sources that issue tokens
	shared    *Keys
	providers *providers
}

type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Keys contains the keys that a server reads only when it starts: the key of the front proxies'
// certificate authority, and the key of service account tokens. All fixtures of one server share
// these keys.
type Keys struct {
	frontProxies    *ca
	serviceAccounts *authntest.Key
}

// NewKeys returns new keys that are valid at the current time.
func NewKeys() (*Keys, error) { return newKeys(time.Now()) }

func newKeys(now time.Time) (*Keys, error) {
	proxies, err := newAuthority(frontProxyCA, now)
	if err != nil {
		return nil, err
	}
	accounts, err := authntest.NewKey("ES256")
	return &Keys{proxies, accounts}, err
}

// Write writes the keys to those files in dir that the local server reads.
func (k *Keys) Write(dir string) error {
	pki := filepath.Join(dir, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return err
	}
	if err := k.frontProxies.write(filepath.Join(pki, "front-proxy-ca.crt")); err != nil {
		return err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(k.serviceAccounts.Private)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, serviceAccountKey), data, 0o600)
}

// serviceAccountKey is the path of the local server's signing key, relative to its directory.
const serviceAccountKey = "pki/service-account.key"

// NewFixture creates the files and the certificate authorities of a scenario in a new directory. If
// keys is nil, the fixture creates its own keys.
func NewFixture(s *Scenario, keys *Keys) (_ *Fixture, err error) {
	dir, err := os.MkdirTemp("", "scenario-")
	if err != nil {
		return nil, err
	}
	w := &Fixture{
		Scenario: s,
		Dir:      dir,
		now:      time.Now(),
		cas:      map[string]*ca{},
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if s.Now != nil {
		w.now = s.Now.Time
	}
	if w.shared = keys; keys == nil {
		if w.shared, err = newKeys(w.now); err != nil {
			return nil, err
		}
	}
	w.Config = &configv1alpha1.TenancyConfiguration{Settings: s.Config}
	w.Config.Authentication.Sources = slices.Clone(s.Config.Authentication.Sources)
	w.Config.APIVersion, w.Config.Kind = v1alpha1.GroupVersion, configv1alpha1.KindTenancyConfiguration
	if err := w.writeFiles(); err != nil {
		return nil, err
	}
	if err := w.makeAuthorities(); err != nil {
		return nil, err
	}
	if err := w.makeProviders(); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(w.Config)
	if err != nil {
		return nil, err
	}
	w.ConfigFile = filepath.Join(dir, "scenario.yaml")
	if err := os.WriteFile(w.ConfigFile, data, 0o600); err != nil {
		return nil, err
	}
	return w, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return reload.MarkComplete(path)
	})
}

// Close removes the directory and stops the providers.
func (w *Fixture) Close() {
	w.providers.close()
	_ = os.RemoveAll(w.Dir)
}

func (w *Fixture) writeFiles() error {
	for name, content := range w.Scenario.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("file %q: must be a relative path", name)
		}
		path := filepath.Join(w.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeAuthorities creates a certificate authority for each x509 source without a file, and one that
// no source trusts.
func (w *Fixture) makeAuthorities() error {
	if err := w.shared.Write(w.Dir); err != nil {
		return err
	}
	w.cas[frontProxyCA] = w.shared.frontProxies
	sources := w.Config.Authentication.Sources
	for i := range sources {
		if x := sources[i].X509; x != nil && x.ClientCAFile == "" {
			copied := *x
			copied.ClientCAFile = filepath.Join("pki", sources[i].Name+"-client-ca.crt")
			sources[i].X509 = &copied
			if err := w.makeAuthority(sources[i].Name, copied.ClientCAFile); err != nil {
				return err
			}
		}
	}
	return w.makeAuthority(otherCA, filepath.Join("pki", "other-ca.crt"))
}

func (w *Fixture) makeAuthority(name, path string) error {
	authority, err := newAuthority(name, w.now)
	if err != nil {
		return err
	}
	w.cas[name] = authority
	return authority.write(filepath.Join(w.Dir, path))
}

// newAuthority creates a certificate authority that is valid from one year before now until ten
// years after now.
func newAuthority(name string, now time.Time) (*ca, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "scenario " + name},
		NotBefore:             now.Add(-365 * 24 * time.Hour),
		NotAfter:              now.Add(10 * 365 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return &ca{parsed, key}, err
}

// write writes the certificate to a path that ends in .crt, and the key to the same path with .key.
func (c *ca) write(path string) error {
	key, err := keyutil.MarshalPrivateKeyToPEM(c.key)
	if err != nil {
		return err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
	if err := os.WriteFile(path, certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(path, ".crt")+".key", key, 0o600)
}

// ClusterObjects returns all objects in the cluster of a scenario, including the old objects of its
// cases. It returns an error if the scenario contains two different definitions of an object.
func ClusterObjects(s *Scenario) ([]runtime.RawExtension, error) {
	all := slices.Clone(s.Objects)
	seen := map[string]string{}
	for i := range s.Cases {
		a := s.Cases[i].Admit
		if a == nil || a.OldObject == nil {
			continue
		}
		w, err := WriteOf(&Admit{OldObject: a.OldObject})
		if err != nil {
			return nil, err
		}
		key := fmt.Sprint(w.GVK.GroupKind(), w.Namespace, "/", w.Name)
		switch content, known := seen[key]; {
		case !known:
			seen[key] = string(a.OldObject.Raw)
			all = append(all, *a.OldObject)
		case content != string(a.OldObject.Raw):
			return nil, fmt.Errorf("case %q: oldObject %s differs from that of an earlier case", s.Cases[i].Name, key)
		}
	}
	return all, nil
}

// Certificate returns the client certificate of a credential, or nil if the credential has none.
func (w *Fixture) Certificate(c *Credential) (*tls.Certificate, error) {
	if c.X509 == nil {
		return nil, nil
	}
	issuer, err := w.issuer(c.X509.CA)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := w.template(c.X509)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func (w *Fixture) issuer(name string) (*ca, error) {
	if name == "" {
		for _, src := range w.Config.Authentication.Sources {
			if src.X509 != nil {
				name = src.Name
				break
			}
		}
	}
	issuer, ok := w.cas[name]
	if !ok {
		return nil, fmt.Errorf("credential: unknown authority %q", name)
	}
	return issuer, nil
}

func (w *Fixture) template(c *X509Credential) (*x509.Certificate, error) {
	serial := big.NewInt(c.Serial)
	if c.Serial == 0 {
		var err error
		if serial, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
			return nil, err
		}
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:         c.CommonName,
			Organization:       c.Organization,
			OrganizationalUnit: c.OrganizationalUnit,
		},
		NotBefore:   w.now.Add(duration(c.NotBeforeIn, -24*time.Hour)),
		NotAfter:    w.now.Add(duration(c.NotAfterIn, time.Hour)),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if c.UID != "" {
		t.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1util.X509UID(), Value: c.UID}}
	}
	if c.Usages != nil {
		t.ExtKeyUsage = nil
	}
	for _, usage := range c.Usages {
		switch usage {
		case "client":
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case "server":
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		default:
			return nil, fmt.Errorf("credential: unknown usage %q", usage)
		}
	}
	return t, nil
}

// Headers returns the HTTP headers of a request with a credential, including impersonation headers.
// Each call creates new tokens.
func (w *Fixture) Headers(ctx context.Context, c *Credential) (http.Header, error) {
	h := http.Header{}
	for name, values := range c.Headers {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	token, err := w.token(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case token != "":
		h.Set("Authorization", "Bearer "+token)
	case c.Basic != nil:
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Basic.Username+":"+c.Basic.Password)))
	}
	if c.Impersonate != nil {
		SetImpersonation(h, c.Impersonate)
	}
	return h, nil
}

// SetImpersonation sets the headers that impersonate a user.
func SetImpersonation(h http.Header, u *UserCredential) {
	h.Set("Impersonate-User", u.Name)
	if u.UID != "" {
		h.Set("Impersonate-Uid", u.UID)
	}
	for _, group := range u.Groups {
		h.Add("Impersonate-Group", group)
	}
	for key, values := range u.Extra {
		for _, v := range values {
			h.Add("Impersonate-Extra-"+escapeKey(key), v)
		}
	}
}

// escapeKey percent-encodes the characters that are not allowed in the name of a header. RFC 9110,
// section 5.6.2, specifies these names.
func escapeKey(key string) string {
	out := ""
	for i := range len(key) {
		if c := key[i]; c == '/' || c == '%' || c == ':' || c > 0x7e || c <= ' ' {
			out += fmt.Sprintf("%%%02X", c)
		} else {
			out += string(c)
		}
	}
	return out
}

// Now returns the clock of the scenario, or nil if the scenario uses the system clock.
func (w *Fixture) Now() func() time.Time {
	if w.Scenario.Now == nil {
		return nil
	}
	return func() time.Time { return w.now }
}
