// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestCommandLine runs each command of kubectl tenant that needs a cluster, against a real server.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.prepare(t)
	commandLine(t, s, "testdata/cli")
}

// TestWebhookCommandLine runs the commands whose output is different with the webhook service.
func TestWebhookCommandLine(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--webhook")
	s.prepare(t)
	commandLine(t, s, "testdata/cliwebhook")
}

// commandLine runs the scripts in a directory. $KUBECONFIG has the contexts admin, acme and globex.
// No server listens at the address of the context down. The context expired has an expired
// certificate.
func commandLine(t *testing.T, s *server, dir string) {
	t.Helper()
	kubeconfig := kubeconfigOf(t, s)
	config, err := filepath.Abs("../../../../examples/manifests")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           dir,
		UpdateScripts: os.Getenv("UPDATE_GOLDEN") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary(t, "kubectl-tenant"))+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "kubeconfig"))
			e.Setenv("CONFIG", filepath.Join(s.Dir, "tenancy.yaml"))
			e.Setenv("EXAMPLES", config)
			e.Setenv("SERVER", s.URL)
			return clientcmd.WriteToFile(*kubeconfig, filepath.Join(e.WorkDir, "kubeconfig"))
		},
	})
}

func kubeconfigOf(t *testing.T, s *server) *clientcmdapi.Config {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for _, name := range []string{"admin", "acme", "globex"} {
		one, err := clientcmd.LoadFromFile(s.Kubeconfig(name))
		if err != nil {
			t.Fatal(err)
		}
		all.Clusters["local"] = one.Clusters["local"]
		all.AuthInfos[name], all.Contexts[name] = one.AuthInfos[name], one.Contexts[name]
	}
	all.CurrentContext = "admin"
	down := all.Clusters["local"].DeepCopy()
	down.Server = "https://127.0.0.1:1"
	all.Clusters["down"] = down
	all.Contexts["down"] = &clientcmdapi.Context{Cluster: "down", AuthInfo: "admin"}
	certificate, key := expired(t, s)
	all.AuthInfos["expired"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	all.Contexts["expired"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "expired"}
	return all
}

// expired returns an expired certificate that the server's certificate authority has signed, and
// its key.
func expired(t *testing.T, s *server) (certificate, key []byte) {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(filepath.Join(s.Dir, "pki", "ca.crt"), filepath.Join(s.Dir, "pki", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	late, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "late", Organization: []string{"tenant:acme"}},
		NotBefore:   time.Now().Add(-2 * time.Hour),
		NotAfter:    time.Now().Add(-time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &ca)
	if err == nil {
		certificate, key, err = encode(late)
	}
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// TestReplayOfAServer checks that "kubectl tenant replay" of a server's audit log makes the same
// decisions as the server if the configuration is the same.
func TestReplayOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newServer(t, dir, append([]string{"--"}, auditFlags(t, dir, auditPolicy)...)...)
	s.prepare(t)
	before := s.read(t, "audit.log")
	for _, caller := range []string{"admin", "acme", "globex"} {
		for _, path := range []string{
			"get pods -A", "get ns", "get ns kube-system", "get pods -n acme--web", "get secrets -n globex--shop", "get nodes",
			"get storageclasses", "delete pod p -n acme--web", "get --raw /metrics", "get --raw /tenants/acme/api/v1/pods",
			"get --raw /tenants/globex/api/v1/namespaces",
			"auth can-i list pods", "get pods -n acme--web --as bob --as-group tenant:globex",
			"get pods -n acme--web --as system:serviceaccount:acme--web:default",
			"get cm -A -l kubetenant.dev/tenant=globex", "api-resources", "get clusterroles",
		} {
			_, _ = s.kubectl(t, caller, strings.Fields(path)...) // the log contains allowed and denied requests
		}
	}
	after := s.read(t, "audit.log")
	log := filepath.Join(dir, "recorded.log")
	writeFile(t, log, after[len(before):])
	cluster := s.mustKubectl(t, "admin", "get", "ns,clusterroles,clusterrolebindings,crds,tenantquotas", "-o", "yaml")
	namespaced := s.mustKubectl(t, "admin", "get", "-A", "roles,rolebindings,accessgrants", "-o", "yaml")
	dump := filepath.Join(dir, "dump.yaml")
	writeFile(t, dump, cluster+"\n---\n"+namespaced)
	out := run(t, "kubectl-tenant", "replay", log, "--config", filepath.Join(dir, "tenancy.yaml"), "--objects", dump)
	events, decided := 0, 0
	if _, err := fmt.Sscanf(out, "%d events: %d evaluated", &events, &decided); err != nil || decided < 50 {
		t.Errorf("%d events, %d decided: %v\n%s", events, decided, err, out)
	}
	t.Logf("%s", out)
}
