// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// contextOf returns the client configuration of the given context in acme's kubeconfig.
func contextOf(t *testing.T, s *server, context string) *rest.Config {
	t.Helper()
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{
		ExplicitPath: s.Kubeconfig("acme"),
	},
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

// TestGatewayClusters checks commands and requests of tenants for two clusters behind one gateway.
func TestGatewayClusters(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--gateway", "--clusters", "2")
	s.prepare(t)
	s.mustKubectl(t, "admin", "--context", "admin@local-2", "apply", "-f", "../../../../examples/manifests/tenants.yaml")
	second := client(t, contextOf(t, s, "acme@local-2"))
	waittest.Until(t, func() error {
		_, err := second.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--db"}}, metav1.CreateOptions{})
		return err
	})
	t.Run("kubectl tenant clusters", func(t *testing.T) {
		for _, context := range []string{"acme", "acme@local-2"} {
			waittest.Until(t, func() error {
				if out := tenantCommand(t, s, "acme", "clusters", "--context",
					context, "--no-headers"); strings.Join(strings.Fields(out), " ") != "local true v1.37.1 local-2 true v1.37.1" {
					return errors.New(out)
				}
				return nil
			})
		}
		for name, want := range map[string]string{
			"acme":  "gateway\n",
			"admin": "gateway (you are connected directly to a cluster behind it)\n",
		} {
			t.Run(name, func(t *testing.T) {
				if out := tenantCommand(t, s, name, "status"); !regexp.MustCompile(`Deployment mode: +` + regexp.QuoteMeta(want)).
					MatchString(out) {
					t.Errorf("%s", out)
				}
			})
		}
		if out := tenantCommand(t, s, "admin", "clusters"); !strings.Contains(out, "it is not a gateway") {
			t.Errorf("clusters of a server without the gateway: %s", out)
		}
	})
	t.Run("kubeconfigs", func(t *testing.T) { kubeconfigsOfClusters(t, s) })
	t.Run("commands for several clusters", func(t *testing.T) { severalClusters(t, s) })
	t.Run("token of another cluster", func(t *testing.T) { tokensAreBoundToOneCluster(t, s) })
	t.Run("one cluster is paused", func(t *testing.T) { clusterPaused(t, s) })
}

// tenantCommand runs a command of kubectl tenant, and returns its output.
func tenantCommand(t *testing.T, s *server, name string, args ...string) string {
	t.Helper()
	out, _ := s.tenant(t, name, args...) // the output contains the error
	return out
}

// kubeconfigsOfClusters checks that a kubeconfig with one certificate can access both clusters, and
// that gen-kubeconfig rejects invalid flags.
func kubeconfigsOfClusters(t *testing.T, s *server) {
	gateway := strings.TrimSuffix(s.config(t, "acme").Host, "/")
	out := tenantCommand(t, s, "admin", "gen-kubeconfig", "--user", "alice", "--group", "admins", "--tenant", "acme",
		"--gateway", gateway,
		"--gateway-ca", filepath.Join(s.Dir, "pki/ca.crt"), "--cluster", "local,local-2", "--out", s.Kubeconfig("alice"))
	if !strings.Contains(out, `context "alice/acme@local", "alice/acme@local-2" written to`) {
		t.Fatal(out)
	}
	for _, cluster := range []string{"local", "local-2"} {
		if out, err := s.kubectl(t, "alice", "--context", "alice/acme@"+cluster, "auth", "whoami", "-o",
			"jsonpath={.status.userInfo.username} {.status.userInfo.groups}"); err != nil ||
			out != `alice ["admins","tenant:acme","system:authenticated"]` {
			t.Errorf("%s: %s", cluster, out)
		}
	}
	for what, args := range map[string][]string{
		"must be an https:// address": {"--gateway", "http://x", "--cluster", "a", "--user", "u", "--tenant", "acme"},
		"without a cluster": {
			"--gateway", gateway + "/clusters/local", "--cluster", "a", "--user", "u", "--tenant", "acme",
		},
		"lower-case DNS labels":      {"--gateway", gateway, "--cluster", "A", "--user", "u", "--tenant", "acme"},
		"without duplicates":         {"--gateway", gateway, "--cluster", "a,a", "--user", "u", "--tenant", "acme"},
		"valid for one cluster only": {"--gateway", gateway, "--cluster", "a,b", "--serviceaccount", "acme--web/default"},
		"[cluster]":                  {"--gateway", gateway, "--user", "u", "--tenant", "acme"},
		"needs --gateway":            {"--gateway-ca", "x", "--user", "u", "--tenant", "acme"},
		"no such file": {
			"--gateway", gateway, "--cluster", "a", "--gateway-ca", "/nowhere", "--oidc", "--issuer-url", "https://i",
			"--client-id", "c", "--tenant", "acme",
		},
		"current-context: oidc/": {
			"--gateway", gateway, "--cluster", "a", "--oidc", "--issuer-url", "https://i", "--client-id", "c", "--tenant",
			"acme",
		},
	} {
		if out := tenantCommand(t, s, "admin", append([]string{"gen-kubeconfig"}, args...)...); !strings.Contains(out, what) {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// severalClusters checks that commands for several clusters work through the gateway.
func severalClusters(t *testing.T, s *server) {
	out := tenantCommand(t, s, "acme", "grant-privileges", "--context", "acme,acme@local-2", "--user", "bob",
		"--for-namespace", "acme--shared", "--create-namespace")
	for _, context := range []string{"acme", "acme@local-2"} {
		bindings, err := client(t, contextOf(t, s, context)).RbacV1().RoleBindings("acme--shared").List(t.Context(),
			metav1.ListOptions{})
		if err != nil || len(bindings.Items) != 1 || bindings.Items[0].Subjects[0].Name != "bob" ||
			!strings.Contains(out, context+":") {
			t.Errorf("%s: %v, %v, of %s", context, bindings, err, out)
		}
	}
	out = tenantCommand(t, s, "acme", "list-privileges", "--context", "acme,acme@local-2", "--no-headers")
	if !strings.Contains(out, "acme@local-2") || !strings.Contains(out, "acme--db") ||
		!strings.Contains(out, "acme--web") {
		t.Errorf("privileges: %s", out)
	}
	for _, command := range []string{"grant-privileges", "grant-privileges", "revoke-privileges", "revoke-privileges"} {
		out := tenantCommand(t, s, "acme", command, "--user", "carol", "--for-namespace", "acme--shared", "--cluster",
			"gateway,local-2")
		for _, context := range []string{"acme", "acme@local-2"} {
			bindings, err := client(t, contextOf(t, s, context)).RbacV1().RoleBindings("acme--shared").List(t.Context(),
				metav1.ListOptions{})
			if found := fmt.Sprint(bindings); err != nil || strings.Contains(found, "carol") != (command == "grant-privileges") {
				t.Errorf("%s in %s: %v, %v\n%s", command, context, err, found, out)
			}
		}
	}
	out = tenantCommand(t, s, "acme", "list-privileges", "--cluster", "gateway,local-2")
	if !strings.Contains(out, "cluster gateway ") || !strings.Contains(out, "cluster local-2 ") {
		t.Errorf("privileges: %s", out)
	}
	out = tenantCommand(t, s, "admin", "who-can", "list", "pods", "-n", "acme--shared", "--cluster", "local,local-2")
	for _, want := range []string{`CLUSTER +KIND `, `local +Group +tenant:acme `, `local-2 +Group +tenant:acme `} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(out) {
			t.Errorf("who-can: no %s in %s", want, out)
		}
	}
	if out = tenantCommand(t, s, "acme", "list-privileges", "--cluster", "nosuch"); !strings.Contains(out,
		"gen-kubeconfig --gateway URL --cluster nosuch") {
		t.Errorf("an unknown cluster: %s", out)
	}
}

// tokensAreBoundToOneCluster checks that a service account token is valid only at the cluster
// that issued it. The clusters have the same issuer, but different keys.
func tokensAreBoundToOneCluster(t *testing.T, s *server) {
	admin := s.client(t, "admin")
	account(t, admin, "acme--web")
	token := request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{})
	local2 := contextOf(t, s, "acme@local-2")
	if _, err := whoami(t.Context(), withToken(s.config(t, "acme"), token)); err != nil {
		t.Errorf("token at its own cluster: %v", err)
	}
	if _, err := whoami(t.Context(), withToken(local2, token)); !apierrors.IsUnauthorized(err) {
		t.Errorf("token at the other cluster: %v", err)
	}
}

// clusterPaused pauses the server of one cluster. It checks that the gateway denies requests to
// this cluster while requests to the other cluster succeed.
func clusterPaused(t *testing.T, s *server) {
	p := s.process(t, "local-2/kube-apiserver")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Signal(syscall.SIGCONT) }()
	first, second := s.client(t, "acme"), client(t, contextOf(t, s, "acme@local-2"))
	reachable := func(want string) error {
		if out := tenantCommand(t, s, "acme", "clusters", "--no-headers"); strings.Join(strings.Fields(out),
			" ") != "local true v1.37.1 local-2 "+want+" v1.37.1" {
			return errors.New(out)
		}
		return nil
	}
	waittest.Until(t, func() error {
		if _, err := first.CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the running cluster: %v", err)
		}
		if _, err := second.CoreV1().Pods("acme--db").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the paused cluster: %w", err)
		}
		return reachable("false")
	})
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if _, err := second.CoreV1().Pods("acme--db").List(t.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		return reachable("true")
	})
}
