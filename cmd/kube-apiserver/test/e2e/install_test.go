// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// maxCommands is the largest number of commands that an installation may need, including "kubectl
// tenant whoami".
const maxCommands = 13

// apiServer is upstream's unmodified kube-apiserver at an address that pods can reach. It uses the
// etcd and the controllers of a kubetenant-local without tenancy.
type apiServer struct {
	local      *localserver.Server
	etcd       string
	cmd        *exec.Cmd
	admin      *rest.Config
	kubeconfig string // path of the operator's kubeconfig
	program    string
	root       string // root directory of the program. If empty, it is that of the machine.
}

const operatorContext = "production"

// startAPIServer starts kube-apiserver, and a node that runs the images of the release.
func startAPIServer(t *testing.T) (*apiServer, *reader, *node) {
	t.Helper()
	dir := t.TempDir()
	s := &apiServer{
		kubeconfig: filepath.Join(dir, "operator.kubeconfig"),
		program:    binary(t, "vanilla-kube-apiserver"),
	}
	s.local = start(t, dir, "--tenancy=false", "--workload-controllers=true", "--tenant=", "--",
		"--service-cluster-ip-range=10.96.0.0/16")
	sockets, err := os.ReadFile(filepath.Join(dir, "etcd", "sockets"))
	if err != nil {
		t.Fatal(err)
	}
	s.etcd = "unix://" + filepath.Join(string(sockets), "client")
	config, err := clientcmd.LoadFromFile(s.local.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	config.Clusters[current.Cluster].Server = "https://" + machineAddress + ":6443"
	config.Contexts[operatorContext], config.CurrentContext = current, operatorContext
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	s.admin.QPS = -1
	r := newReader(t, s.kubeconfig)
	// Create a serving certificate for the addresses that pods use.
	r.run(t, fmt.Sprintf("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=kube-apiserver "+
		"-addext subjectAltName=IP:%s,IP:10.96.0.1 -keyout %[2]s/server.key | openssl x509 -req -copy_extensions copy "+
		"-CA %[2]s/ca.crt -CAkey %[2]s/ca.key -days 1 -out %[2]s/server.crt", machineAddress, filepath.Join(dir, "pki")))
	s.restart(t, []string{"--authorization-mode=Node,RBAC"}, nil)
	client := kubernetes.NewForConfigOrDie(s.admin)
	return s, r, runNode(t, client, archives{r.release})
}

// restart stops a running kube-apiserver, and starts it with the given additional flags and
// environment variables.
func (s *apiServer) restart(t *testing.T, flags, environment []string) {
	t.Helper()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	log, err := os.OpenFile(filepath.Join(s.local.Dir, "server.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	pki := filepath.Join(s.local.Dir, "pki")
	s.cmd = exec.Command(s.program, slices.Concat(local.ServerFlags(s.local.Dir, s.etcd),
		[]string{
			"--bind-address=" + machineAddress, "--advertise-address=" + machineAddress, "--secure-port=6443",
			"--service-cluster-ip-range=10.96.0.0/16",
			"--tls-cert-file=" + pki + "/server.crt", "--tls-private-key-file=" + pki + "/server.key",
		}, flags)...)
	if s.root != "" {
		s.cmd.SysProcAttr, s.cmd.Dir = &syscall.SysProcAttr{Chroot: s.root}, "/"
	}
	s.cmd.Env = append(os.Environ(), environment...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started := s.cmd
	t.Cleanup(func() {
		if started == s.cmd {
			_ = started.Process.Kill()
			_ = started.Wait()
		}
	})
	awaitReady(t, s.admin)
}

// checkCommands checks that the installation needs at most maxCommands commands, and ends with
// "kubectl tenant whoami".
func checkCommands(t *testing.T, r *reader) {
	t.Helper()
	t.Logf("%d commands", len(r.ran))
	last := r.ran[len(r.ran)-1]
	if len(r.ran) > maxCommands || !strings.HasPrefix(last, "kubectl tenant whoami") {
		t.Errorf("%d commands up to %q, want at most %d:\n%s", len(r.ran), last, maxCommands, strings.Join(r.ran, "\n"))
	}
}

// checkTenant checks that the output of "kubectl tenant whoami" contains the tenant acme.
func checkTenant(t *testing.T, output string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^Tenant:\s+acme `).MatchString(output) {
		t.Errorf("whoami: %s; want the tenant acme", output)
	}
}

// TestInstallGateway checks that the commands of docs/gateway.md install a working gateway from the
// artifacts of a release.
func TestInstallGateway(t *testing.T) {
	releaseOf(t)
	if !runIsolated(t) {
		return
	}
	_, r, _ := startAPIServer(t)
	r.section(t, "install.md", "## Get the release")
	checkTenant(t, r.section(t, "gateway.md", "## Install it"))
	checkCommands(t, r)
	t.Run("the gateway enforces the boundary", func(t *testing.T) {
		out, err := r.try(t, "kubectl --kubeconfig alice.kubeconfig get secrets -n kube-system")
		if err == nil || !strings.Contains(out, "tenant boundary") {
			t.Errorf("secrets of the system tenant: %v\n%s", err, out)
		}
	})
	t.Run("a created tenant can be used", func(t *testing.T) {
		waittest.Until(t, func() error {
			out, err := r.try(t, "kubectl tenant create-tenant acme --admin alice --members-admin --namespaces acme--web")
			if err != nil && !strings.Contains(out, "exists") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		waittest.Until(t, func() error {
			out, err := r.try(t, "kubectl --kubeconfig alice.kubeconfig get namespaces -o name")
			if err != nil || strings.TrimSpace(out) != "namespace/acme--web" {
				return fmt.Errorf("namespaces of acme: %w: %s", err, out)
			}
			return nil
		})
	})
}

// TestInstallAdmissionOnly checks that the commands of docs/install.md install only the admission
// webhooks, as in a cluster behind a gateway.
func TestInstallAdmissionOnly(t *testing.T) {
	releaseOf(t)
	if !runIsolated(t) {
		return
	}
	_, r, _ := startAPIServer(t)
	r.section(t, "install.md", "## Get the release")
	// Use the configuration of the gateway.
	r.write(t, "tenancy.yaml", sectionBlocks(t, "gateway.md", "## Install it")[0][2])
	r.write(t, "client-ca.crt", r.run(t, "kubectl -n kube-system get configmap extension-apiserver-authentication "+
		"-o 'jsonpath={.data.client-ca-file}'"))
	r.section(t, "install.md", "## Install only admission")
	checkCommands(t, r)
	t.Run("the webhooks correct a forged label", func(t *testing.T) {
		r.run(t, "kubectl create namespace plain")
		waittest.Until(t, func() error {
			out, err := r.try(t, "kubectl -n plain create configmap forged -o yaml --dry-run=client | "+
				"kubectl label --local -f - kubetenant.dev/tenant=acme -o yaml | "+
				"kubectl create -f - -o 'jsonpath=labels:{.metadata.labels}'")
			if err == nil {
				r.run(t, "kubectl -n plain delete configmap forged")
			}
			if _, labels, _ := strings.Cut(out, "labels:"); err != nil || strings.Contains(labels, "acme") {
				return fmt.Errorf("the ConfigMap has the label or was not created: %w: %s", err, out)
			}
			return nil
		})
	})
}

// TestInstallWebhook checks that the commands of docs/install.md install a working webhook service.
// It configures kube-apiserver as the page describes.
func TestInstallWebhook(t *testing.T) {
	releaseOf(t)
	if !runIsolated(t) {
		return
	}
	s, r, _ := startAPIServer(t)
	for _, heading := range []string{
		"## Get the release", "## Before you begin", "## 1. The configuration", "## 2. Generate the manifests",
		"## 3. Start the service",
	} {
		r.section(t, "install.md", heading)
	}
	namedFilesExist(t, r.dir)
	var after bool
	var last string
	for _, block := range sectionBlocks(t, "install.md", "## 4. Configure kube-apiserver") {
		for _, command := range commandsOf(block[2]) {
			if strings.Contains(command, " annotate ") { // the page's manual steps on each machine come before this command
				s.configure(t)
				presentsCertificate(t, r)
				after = true
			}
			last = r.run(t, command)
			if strings.HasSuffix(command, "webhooks.yaml") { // the service writes its certificate authorities within ten seconds
				waittest.Until(t, func() error {
					out, err := r.try(t, "kubectl tenant tenants")
					if err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					return nil
				})
			}
		}
	}
	if !after {
		t.Error("the page does not record the authorities that kube-apiserver trusts")
	}
	checkTenant(t, last)
	t.Run("kube-apiserver calls the service", func(t *testing.T) {
		r.run(t, "sed -i 's/mode: Shadow/mode: Enforce/' tenancy.yaml")
		for _, command := range r.ran {
			if strings.HasPrefix(command, "kubetenant-webhook generate") {
				r.run(t, command)
			}
		}
		r.run(t, "kubectl apply --server-side --force-conflicts -f installed/cluster/config.yaml")
		waittest.Until(t, func() error {
			out, err := r.try(t, "kubectl --kubeconfig alice.kubeconfig get secrets -n kube-system")
			if err == nil || !strings.Contains(out, "tenant boundary") {
				return fmt.Errorf("secrets of the system tenant: %w: %s", err, out)
			}
			return nil
		})
	})
}

// presentsCertificate waits until the page's check shows that kube-apiserver presents its client
// certificate to the service. The check is a request that must be answered with Forbidden.
func presentsCertificate(t *testing.T, r *reader) {
	t.Helper()
	waittest.Until(t, func() error {
		if out, err := r.try(t, "kubectl get pods --as somebody"); err == nil || !strings.Contains(out, "Forbidden") {
			return fmt.Errorf("got %w: %s; want Forbidden", err, out)
		}
		return nil
	})
}

// configure restarts kube-apiserver with the generated flags.txt and environment.txt, as step 4 of
// docs/install.md describes.
func (s *apiServer) configure(t *testing.T) {
	t.Helper()
	const folder = "/etc/kubernetes/kubetenant/"
	flags, err := os.ReadFile(folder + "flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	environment, err := os.ReadFile(folder + "environment.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(strings.Fields(string(environment))) == 0 {
		t.Error("environment.txt is empty")
	}
	s.restart(t, strings.Fields(string(flags)), strings.Fields(string(environment)))
}

// namedFilesExist checks that docs/install.md mentions only files in the folder "installed"
// that exist.
func namedFilesExist(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(text)) {
		if word = strings.Trim(word, "`.,()"); strings.HasPrefix(word, "installed/") {
			if _, err := os.Stat(filepath.Join(dir, word)); err != nil {
				t.Error(err)
			}
		}
	}
}
