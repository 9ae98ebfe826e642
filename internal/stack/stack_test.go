// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/plugins/gate"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// owners returns the owners of the namespaces a--web and b--web, which belong to the tenants a
// and b.
func owners(t testing.TB) *authz.Owners {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, label := range map[string]string{"a--web": "a", "b--web": "b"} {
		if err := indexer.Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: label}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return authz.NewOwners(corelisters.NewNamespaceLister(indexer).Get, nil)
}

const config = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: tokens, tokenFile: { path: tokens.csv } }
  - { name: passwords, basicAuthFile: { path: passwords.csv } }
`

// replace writes files into dir. Each file is replaced atomically.
func replace(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

func bearer(token string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	waittest.Until(t, func() error {
		if !f() {
			return errors.New("not yet: " + what)
		}
		return nil
	})
}

// reloads returns the number of reloads with the given result, which is success or error.
func reloads(t *testing.T, registry metrics.KubeRegistry, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "kubetenant_config_reloads_total" && l.GetName() == "result" && l.GetValue() == result {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func TestConfigurationIsReloaded(t *testing.T) {
	dir := t.TempDir()
	replace(t, dir, map[string]string{"tenancy.yaml": config, "tokens.csv": "tok,alice,1,,a\n", "passwords.csv": ""})
	registry := metrics.NewKubeRegistry()
	stack, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: registry.Register})
	if err != nil {
		t.Fatal(err)
	}
	nodes := authorizer.AttributesRecord{
		User:            &user.DefaultInfo{Name: "ops"},
		Verb:            "get",
		Resource:        "nodes",
		ResourceRequest: true,
	}
	denied := func() bool {
		d, _, _ := stack.Authorizer.Authorize(t.Context(), nodes)
		return d == authorizer.DecisionDeny
	}
	source := func() string {
		resp, ok, _ := stack.Authenticator.AuthenticateRequest(bearer("tok"))
		if !ok {
			return ""
		}
		return resp.User.GetExtra()[tenant.SourceKey][0]
	}
	if source() != "tokens" || !denied() {
		t.Fatalf("at the start: source %q, denied %v", source(), denied())
	}
	changed := strings.Replace(config, "name: tokens", "name: renamed", 1) +
		"authorization: { systemSubjects: { users: [ops] } }\n"
	replace(t, dir, map[string]string{"tenancy.yaml": changed})
	eventually(t, "the new configuration takes effect as a whole", func() bool {
		return source() == "renamed" && !denied()
	})

	replace(t, dir, map[string]string{"tenancy.yaml": changed + "nonsense: true\n"})
	result := func(name string) float64 { return reloads(t, registry, name) }
	eventually(t, "the bad configuration is counted", func() bool { return result("error") == 1 })
	if source() != "renamed" || denied() {
		t.Errorf("after a bad configuration: source %q, denied %v", source(), denied())
	}
	replace(t, dir, map[string]string{"tokens.csv": "tok,alice\n"})
	eventually(t, "the bad token file is counted", func() bool { return result("error") == 2 })
	if source() != "renamed" {
		t.Error("a bad token file took effect")
	}
	replace(t, dir, map[string]string{"tenancy.yaml": changed})
	eventually(t, "a configuration with a bad token file is rejected", func() bool { return result("error") == 3 })
	if source() != "renamed" {
		t.Error("a configuration with a bad token file took effect")
	}
	if result("success") != 1 {
		t.Errorf("%v reloads are counted as successful, want 1", result("success"))
	}
}

// TestReloadUnderLoad checks that each request during a reload uses either the old or the new
// configuration, and never a mix of both.
func TestReloadUnderLoad(t *testing.T) {
	dir := t.TempDir()
	replace(t, dir,
		map[string]string{"tenancy.yaml": config, "tokens.csv": "tok,alice,1,,a\n", "passwords.csv": "p,bob,2,,b\n"})
	stack, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				resp, ok, err := stack.Authenticator.AuthenticateRequest(bearer("tok"))
				if !ok || err != nil {
					t.Errorf("during a reload: %v, %v", ok, err)
					return
				}
				d, _, _ := stack.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
					User:            resp.User,
					Verb:            "get",
					Resource:        "pods",
					Namespace:       "b--web",
					ResourceRequest: true,
				})
				if d != authorizer.DecisionDeny {
					t.Errorf("during a reload: %v", d)
				}
			}
		})
	}
	for i := range 3 {
		replace(t, dir, map[string]string{
			"tenancy.yaml": config + fmt.Sprintf("# %d\n", i),
			"tokens.csv":   fmt.Sprintf("tok,alice,%d,,a\n", i+2),
		})
		eventually(t, "the new token file takes effect", func() bool {
			resp, ok, _ := stack.Authenticator.AuthenticateRequest(bearer("tok"))
			return ok && resp.User.GetUID() == fmt.Sprint(i+2)
		})
	}
	cancel()
	all.Wait()
}

// TestNoSecretInLogsAndErrors checks that log lines, errors and identities contain no token or
// password. It covers valid and invalid token and password files, and correct and wrong
// credentials.
func TestNoSecretInLogsAndErrors(t *testing.T) {
	const canary = "CANARY"
	var log authntest.Log
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(&log)))
	ctx := klog.NewContext(t.Context(), logger)
	good := map[string]string{
		"tokens.csv":    canary + "1,alice,1,,a\n,nobody,2\n",
		"passwords.csv": canary + "2,bob,2,,b\n$2a$04$t3ujSowHBmau8Z5Yp0KZSevGHWQVCVgqqLfH2YMcaeOn5DMZvGFTy,carol,3,,b\n",
	}
	dir := t.TempDir()
	replace(t, dir, good)
	replace(t, dir, map[string]string{"tenancy.yaml": config})
	path := filepath.Join(dir, "tenancy.yaml")
	var told []error
	registry := metrics.NewKubeRegistry()
	opened, err := stack.Open(ctx, path,
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: registry.Register})
	if err != nil {
		t.Fatal(err)
	}
	basic := func(login, password string) *http.Request {
		return &http.Request{
			Header: http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(login+":"+password))}},
		}
	}
	for _, r := range []*http.Request{
		bearer(canary + "1"),
		bearer(canary + "x"),
		basic("bob", canary+"2"),
		basic("bob", canary+"x"),
		basic("carol", canary+"x"),
		basic(canary, canary),
		{Header: http.Header{"Authorization": {"Basic " + canary}}},
	} {
		resp, ok, err := opened.Authenticator.AuthenticateRequest(r.WithContext(ctx))
		told = append(told, err)
		if ok && strings.Contains(fmt.Sprintf("%+v", resp.User), canary) {
			t.Errorf("the identity contains the secret: %+v", resp.User)
		}
	}
	bad := []string{
		canary + ",alice\n", canary + ",,1\n", canary + ",alice,1,,\n", canary + ",alice,1,,bad tenant\n",
		canary + ",alice,1,system:masters,,a\n",
		canary + ",alice,1\n" + canary + ",bob,2\n", canary + "\",alice,1\n", "\"" + canary + "\n",
		"$2a$04$" + canary + ",alice,1\n", canary + ",a:b,1\n",
	}
	for _, text := range bad {
		for _, name := range []string{"tokens.csv", "passwords.csv"} {
			replace(t, dir, good)
			replace(t, dir, map[string]string{name: text})
			err := stack.Check(ctx, path)
			told = append(told, err)
		}
	}
	replace(t, dir, map[string]string{"tokens.csv": bad[0], "passwords.csv": bad[1]})
	eventually(t, "both bad files are reported", func() bool {
		return strings.Count(log.String(), "Rejected a new version") >= 2
	})
	for _, err := range told {
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("an error contains the secret: %v", err)
		}
	}
	if strings.Contains(log.String(), canary) {
		t.Errorf("the log contains the secret:\n%s", log.String())
	}
	if len(told) < 20 || errors.Join(told...) == nil {
		t.Error("no credential or file was rejected")
	}
}

// authority returns the certificate of a new CA.
func authority(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestClientCAMayNotContainProxyCA checks a server that accepts front proxies with any common name.
// A new version of a client CA file must be rejected if it contains the proxy's CA. The previous
// version remains in effect.
func TestClientCAMayNotContainProxyCA(t *testing.T) {
	clients, proxies := authority(t, "clients"), authority(t, "proxies")
	content, err := dynamiccertificates.NewStaticCAContent("proxies", []byte(proxies))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tenancy.yaml")
	replace(t, dir, map[string]string{
		"ca.crt": clients,
		"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
			"authentication: { sources: [ { name: certs, x509: { clientCAFile: ca.crt } } ] }\n",
	})
	anybody := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   content,
		AllowedClientNames:  headerrequest.StaticStringSlice{},
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{},
		GroupHeaders:        headerrequest.StaticStringSlice{},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{},
	}
	opened, err := stack.Open(t.Context(), path,
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Authentication: stack.Authentication{RequestHeader: anybody}})
	if err != nil {
		t.Fatal(err)
	}
	listener := make(chan struct{}, 10)
	opened.ClientCA.AddListener(enqueue(listener))
	replace(t, dir, map[string]string{"ca.crt": clients + proxies})
	<-listener // the new version has been checked
	if got := string(opened.ClientCA.CurrentCABundleContent()); got != strings.TrimSpace(clients) {
		t.Errorf("the client CAs contain the CA of the proxy:\n%s", got)
	}
	replace(t, dir, map[string]string{"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
		"authentication: { sources: [ { name: proxy, tenants: [a], frontProxy: {} } ] }\n"})
	if _, err := stack.Open(t.Context(), path, stack.Server{
		Cluster:        lookuptest.OwnedBy(owners(t)),
		Authentication: stack.Authentication{RequestHeader: anybody},
	}); !errors.Is(err, frontproxy.ErrAnyName) {
		t.Errorf("front proxies with any common name: %v; want ErrAnyName", err)
	}
	if _, err := stack.Open(t.Context(), path, stack.Server{Cluster: lookuptest.OwnedBy(owners(t))}); err == nil {
		t.Error("a frontProxy source is accepted on a server that trusts no front proxy")
	}
}

// enqueue is a CA listener that notifies a test through the channel.
type enqueue chan struct{}

func (e enqueue) Enqueue() { e <- struct{}{} }

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tenancy.yaml")
	replace(t, dir, map[string]string{
		"tenancy.yaml":  config + "  - { name: proxy, tenants: [a], frontProxy: {} }\n",
		"tokens.csv":    "",
		"passwords.csv": "",
	})
	if err := stack.Check(t.Context(), path); err != nil {
		t.Errorf("Check of a good configuration = %v", err)
	}
	replace(t, dir, map[string]string{"tokens.csv": "x\n"})
	if err := stack.Check(t.Context(), path); err == nil || !strings.Contains(err.Error(), "tokens.csv: line 1") {
		t.Errorf("Check of a bad token file = %v", err)
	}
	if _, err := stack.Open(t.Context(), path, stack.Server{}); err == nil {
		t.Error("a server without a Cluster is accepted")
	}
}

// TestNewAppliesDefaults checks that New applies the defaults to empty settings.
func TestNewAppliesDefaults(t *testing.T) {
	built, err := stack.New(t.Context(), &configv1alpha1.Settings{},
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
	if err != nil {
		t.Fatal(err)
	}
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"a"}}}
	ds := admission.NewAttributesRecord(&appsv1.DaemonSet{}, nil, appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		"a--web", "d",
		appsv1.SchemeGroupVersion.WithResource("daemonsets"), "", admission.Create, nil, false, alice)
	ns := admission.NewAttributesRecord(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b--trap"}}, nil,
		corev1.SchemeGroupVersion.WithKind("Namespace"), "", "b--trap",
		corev1.SchemeGroupVersion.WithResource("namespaces"), "", admission.Create, nil, false, alice)
	for _, a := range []admission.Attributes{ds, ns} {
		refused := false
		for _, p := range built.Admission {
			if v, ok := p.Interface.(admission.ValidationInterface); ok {
				refused = refused || v.Validate(t.Context(), a, nil) != nil
			}
		}
		if !refused {
			t.Errorf("%s is admitted by a stack with empty settings", a.GetKind().Kind)
		}
	}
	bad := &configv1alpha1.Settings{
		Authentication: configv1alpha1.Authentication{Sources: []configv1alpha1.Source{{Name: "x"}}},
	}
	if _, err := stack.New(t.Context(), bad, stack.Server{Cluster: lookuptest.OwnedBy(owners(t))}); err == nil {
		t.Error("invalid settings are accepted")
	}
}

// TestPluginsAreRegistered checks that Register registers exactly the plugins of the stack, and
// that only TenantGate handles connect requests.
func TestPluginsAreRegistered(t *testing.T) {
	dir := t.TempDir()
	replace(t, dir, map[string]string{"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"})
	opened, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
	if err != nil {
		t.Fatal(err)
	}
	plugins := admission.NewPlugins()
	stack.Register(opened.Admission, plugins)
	for _, p := range opened.Admission {
		made, err := plugins.InitPlugin(p.Name, nil, admission.PluginInitializers{})
		if err != nil || made == nil || !made.Handles(admission.Update) ||
			made.Handles(admission.Connect) != (p.Name == gate.Name) {
			t.Errorf("plugin %s = %v, %v", p.Name, made, err)
		}
	}
	if got := plugins.Registered(); len(got) != len(opened.Admission) {
		t.Errorf("registered %v", got)
	}
}
