// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// withoutWorkloads disables the controllers that create Pods, because few tests need them.
const withoutWorkloads = "--workload-controllers=false"

// server is a running control plane of kubetenant-local, in any deployment mode. The name of a
// caller is the name of a kubeconfig in the server's directory, such as admin or acme.
type server struct{ *localserver.Server }

// start starts kubetenant-local in dir. The server runs until the test ends.
func start(t testing.TB, dir string, args ...string) *localserver.Server {
	t.Helper()
	args = append([]string{withoutWorkloads, "--unsafe-no-fsync"}, args...) // args come last, so they override these flags
	s, err := localserver.Start(t.Context(), binary(t, "kubetenant-local"), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// newServer is like [start], but returns a server.
func newServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	return &server{start(t, dir, args...)}
}

// startServer starts a server in a new directory with the given files. The keys are file names.
func startServer(t testing.TB, files map[string]string, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return newServer(t, dir, args...)
}

// stop stops the server, which must not have failed.
func (s *server) stop(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

// restart stops the server and starts it again in the same directory.
func (s *server) restart(t testing.TB, args ...string) {
	t.Helper()
	s.stop(t)
	s.Server = start(t, s.Dir, args...)
}

// write replaces a file in the server's directory in one step.
func (s *server) write(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(s.Dir, name)
	writeFile(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file in the server's directory.
func (s *server) read(t testing.TB, name string) string {
	t.Helper()
	return readFile(t, filepath.Join(s.Dir, name))
}

// config returns the client configuration of a caller.
func (s *server) config(t testing.TB, caller string) *rest.Config {
	t.Helper()
	return configOf(t, s.Kubeconfig(caller))
}

// impersonate returns the admin's client configuration that impersonates the given user. Requests
// with it get the same decisions as requests of the user.
func (s *server) impersonate(t testing.TB, user rest.ImpersonationConfig) *rest.Config {
	t.Helper()
	c := s.config(t, "admin")
	c.Impersonate = user
	return c
}

// clientAs returns a client of the admin that impersonates the given user.
func (s *server) clientAs(t testing.TB, user string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	return client(t, s.impersonate(t, rest.ImpersonationConfig{UserName: user, Groups: groups}))
}

// client returns a client of a caller.
func (s *server) client(t testing.TB, caller string) *kubernetes.Clientset {
	t.Helper()
	return client(t, s.config(t, caller))
}

// dynamic returns a client of a caller for any kind of object.
func (s *server) dynamic(t testing.TB, caller string) dynamic.Interface {
	t.Helper()
	return dynamicClient(t, s.config(t, caller))
}

// kubectl runs kubectl as a caller. It returns the standard output and the standard error.
func (s *server) kubectl(t testing.TB, caller string, args ...string) (string, error) {
	t.Helper()
	out, err := s.command(t.Context(), t, "kubectl", caller, args...).CombinedOutput()
	return string(out), err
}

// tenant is like kubectl, but runs kubectl-tenant.
func (s *server) tenant(t testing.TB, caller string, args ...string) (string, error) {
	t.Helper()
	out, err := s.command(t.Context(), t, "kubectl-tenant", caller, args...).CombinedOutput()
	return string(out), err
}

// mustKubectl is like kubectl, but the command must succeed.
func (s *server) mustKubectl(t testing.TB, caller string, args ...string) string {
	t.Helper()
	out, err := s.kubectl(t, caller, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %s", strings.Join(args, " "), out)
	}
	return out
}

// awaitKubectl runs kubectl as a caller until it succeeds.
func (s *server) awaitKubectl(t testing.TB, caller string, args ...string) (out string) {
	t.Helper()
	waittest.Until(t, func() (err error) {
		if out, err = s.kubectl(t, caller, args...); err != nil {
			err = fmt.Errorf("kubectl %s as %s: %s", strings.Join(args, " "), caller, out)
		}
		return err
	})
	return out
}

// awaitOutput runs kubectl as the admin until it succeeds with the given output.
func (s *server) awaitOutput(t testing.TB, want string, args ...string) {
	t.Helper()
	waittest.Until(t, func() error {
		if out, err := s.kubectl(t, "admin", args...); err != nil || out != want {
			return fmt.Errorf("kubectl %s prints %q, want %q", strings.Join(args, " "), out, want)
		}
		return nil
	})
}

// command returns a command that runs a built program with the kubeconfig of a caller.
func (s *server) command(ctx context.Context, t testing.TB, program, caller string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{"--kubeconfig", s.Kubeconfig(caller)}, args...)
	return exec.CommandContext(ctx, binary(t, program), args...)
}

// apply applies objects as the admin.
func (s *server) apply(t testing.TB, text string, flags ...string) {
	t.Helper()
	s.mustKubectl(t, "admin", append([]string{"apply", "-f", testFile(t, text)}, flags...)...)
}

// namespace applies a namespace of a tenant as the admin.
func (s *server) namespace(t testing.TB, name, tenant string) {
	t.Helper()
	s.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubetenant.dev/tenant: %s}}}",
		name, tenant))
}

// metrics returns the metrics of kube-apiserver.
func (s *server) metrics(t testing.TB) (string, error) {
	t.Helper()
	return s.kubectl(t, "admin", "get", "--raw", "/metrics")
}

// process returns a process that kubetenant-local has started. It reads the PID file.
func (s *server) process(t testing.TB, name string) *os.Process {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(s.read(t, name+".pid")))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// second starts another kube-apiserver on the server's etcd. It returns the admin's client
// configuration, and a function that stops this kube-apiserver.
func (s *server) second(t testing.TB, program string, flags ...string) (*rest.Config, func()) {
	t.Helper()
	flags = append([]string{"--authorization-mode=Node,RBAC"}, flags...)
	address, cmd, err := startSecond(binary(t, program), s.Dir, "second-server.log", flags...)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error reports the kill
	})
	t.Cleanup(stop)
	c := s.config(t, "admin")
	c.Host = "https://" + address
	awaitReady(t, c)
	return c, stop
}

// startLimit is the longest time that a server may need to start on a busy machine.
const startLimit = 5 * time.Minute

// awaitReady waits until a kube-apiserver is ready.
func awaitReady(t testing.TB, c *rest.Config) {
	t.Helper()
	waittest.Within(t, startLimit, func() error {
		return client(t, c).Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
}

// startSecond starts another kube-apiserver on the etcd of the control plane in dir.
func startSecond(program, dir, log string, flags ...string) (address string, cmd *exec.Cmd, err error) {
	endpoint, err := etcdOf(dir)
	if err != nil {
		return "", nil, err
	}
	if address, err = local.FreeAddress(); err != nil {
		return "", nil, err
	}
	output, err := os.Create(filepath.Join(dir, log))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = output.Close() }()
	_, port, _ := strings.Cut(address, ":")
	flags = append([]string{"--secure-port=" + port}, flags...)
	cmd = exec.Command(program, append(local.ServerFlags(dir, endpoint), flags...)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, localserver.EndsWithParent()
	return address, cmd, cmd.Start()
}

// etcdOf returns the endpoint of etcd of the control plane in dir.
func etcdOf(dir string) (string, error) {
	sockets, err := os.ReadFile(filepath.Join(dir, "etcd", "sockets"))
	return "unix://" + filepath.Join(string(sockets), "client"), err
}

// prepare applies the example manifest with the rights of tenants' admins. The tenants acme and
// globex then each create a namespace.
func (s *server) prepare(t testing.TB) {
	t.Helper()
	s.mustKubectl(t, "admin", "apply", "-f", "../../../../examples/manifests/tenants.yaml")
	for name, namespace := range map[string]string{"acme": "acme--web", "globex": "globex--shop"} {
		s.awaitKubectl(t, name, "create", "ns", namespace)
	}
}

// configOf returns the client configuration of a kubeconfig.
func configOf(t testing.TB, kubeconfig string) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}

func client(t testing.TB, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func dynamicClient(t testing.TB, c *rest.Config) dynamic.Interface {
	t.Helper()
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// withToken returns a copy of the configuration with a bearer token instead of the client
// certificate.
func withToken(c *rest.Config, token string) *rest.Config {
	c = rest.AnonymousClientConfig(c)
	c.BearerToken = token
	return c
}

// whoami returns the user that a server authenticates.
func whoami(ctx context.Context, c *rest.Config) (authenticationv1.UserInfo, error) {
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	r, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return r.Status.UserInfo, nil
}

// whoami returns the user that the server authenticates for a bearer token.
func (s *server) whoami(t testing.TB, token string) (authenticationv1.UserInfo, error) {
	t.Helper()
	return whoami(t.Context(), withToken(s.config(t, "admin"), token))
}

// bind creates a ClusterRoleBinding.
func bind(t testing.TB, admin kubernetes.Interface, name, clusterRole string, subjects ...rbacv1.Subject) {
	t.Helper()
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   subjects,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// get sends one GET request, without the retries of client-go. The caller must close the body of
// the response.
func get(ctx context.Context, t testing.TB, c *rest.Config, path string) *http.Response {
	t.Helper()
	connection, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := connection.Do(req)
	if err != nil {
		t.Error(err)
		return &http.Response{Body: http.NoBody}
	}
	return resp
}

// memoryKiB returns a field of a process's status that contains an amount of memory, in KiB.
func memoryKiB(t testing.TB, pid int, field string) int {
	t.Helper()
	_, rest, _ := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/status", pid)), field+":")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// shell runs commands of the documentation in a directory.
type shell struct {
	dir string
	env []string
}

// newShell returns a shell in dir. Its commands find the built programs and use the kubeconfigs.
func newShell(t testing.TB, dir string, kubeconfigs ...string) *shell {
	t.Helper()
	separator := string(os.PathListSeparator)
	return &shell{dir: dir, env: append(os.Environ(), "PATH="+binaries(t)+separator+os.Getenv("PATH"), "HOME="+dir,
		"KUBECONFIG="+strings.Join(kubeconfigs, separator), "KUBECTL_KUBERC=false")}
}

// try runs a command. It returns the standard output and the standard error.
func (s *shell) try(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command) // #nosec G204 -- a command of our own page
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// auditFlags writes an audit policy to dir. It returns the flags with which kube-apiserver records
// every request in the file audit.log in dir.
func auditFlags(t testing.TB, dir, policy string) []string {
	t.Helper()
	path := filepath.Join(dir, "audit-policy.yaml")
	writeFile(t, path, policy)
	return []string{
		"--audit-policy-file=" + path, "--audit-log-path=" + filepath.Join(dir, "audit.log"), "--audit-log-mode=blocking",
	}
}

// certificatesConfig is the configuration of a server that accepts client certificates.
const certificatesConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: pki/ca.crt } }
`

// groupsConfig is the configuration of a webhook service that reads the tenant from the groups of
// the caller.
const groupsConfig = `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication: { sources: [] }
authorization: { subject: { fromGroups: true } }
`

const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata } ]\n"

// testFile writes text to a new file and returns its path.
func testFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	writeFile(t, path, text)
	return path
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// binaries returns the folder of the built commands.
func binaries(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(binDir)
	if dir == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set: run make test", binDir)
		}
		t.Skipf("%s is not set: run make test, which builds the commands", binDir)
	}
	return dir
}

// binary returns the path of a command or tool that the test's make target builds.
func binary(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(binaries(t), name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run the test with its make target, which must build %s", err, name)
	}
	return path
}
