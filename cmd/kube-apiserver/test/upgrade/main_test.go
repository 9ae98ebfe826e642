// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// waitLimit is the longest time that a process may need to start or stop on a busy machine.
const waitLimit = 3 * time.Minute

// releases returns the folders that contain the commands of the earlier release and of this
// release.
func releases(t *testing.T) (earlier, current string) {
	t.Helper()
	earlier, current = os.Getenv("KUBETENANT_UPGRADE_FROM"), os.Getenv("KUBETENANT_BIN")
	if earlier == "" {
		t.Skip("KUBETENANT_UPGRADE_FROM is not set: run make test-upgrade")
	}
	for _, dir := range []string{earlier, current} {
		for _, name := range []string{"kube-apiserver", "kubetenant-webhook", "kubetenant-gateway"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Fatalf("%v: run make test-upgrade", err)
			}
		}
	}
	return earlier, current
}

// process is a running command of a release.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	log    string
}

// run starts a command, and appends its output to the file log. The process ends with the test.
func run(t *testing.T, log, binary string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p := &process{cmd: exec.Command(binary, args...), exited: make(chan struct{}), log: log}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = file, file, localserver.EndsWithParent()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the log of the process contains the reason
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // the process may have ended
		<-p.exited
	})
	return p
}

// stop sends SIGTERM to the process, as the kubelet does, and waits until it ends.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s ended by itself: %v", p.log, err)
	}
	select {
	case <-p.exited:
	case <-time.After(waitLimit):
		t.Fatalf("%s did not stop", p.log)
	}
}

// hasExited reports whether the process has ended.
func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// controlPlane is a running kubetenant-local with its etcd, controllers and files.
type controlPlane struct {
	*localserver.Server

	etcd string
}

// startControlPlane starts kubetenant-local from the folder bin, with the given configuration of
// testdata.
func startControlPlane(t *testing.T, bin, config string, args ...string) *controlPlane {
	t.Helper()
	dir := t.TempDir()
	copyFiles(t, dir, config)
	args = append([]string{
		"--tenancy-config=" + filepath.Join(dir, "upgrade.yaml"), "--unsafe-no-fsync", "--workload-controllers=false",
	}, args...)
	s, err := localserver.Start(t.Context(), filepath.Join(bin, "kubetenant-local"), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	sockets, err := os.ReadFile(filepath.Join(s.Dir, "etcd", "sockets"))
	if err != nil {
		t.Fatal(err)
	}
	return &controlPlane{s, "unix://" + filepath.Join(string(sockets), "client")}
}

// replica is a kube-apiserver process. Several replicas may run behind one balancer.
type replica struct {
	address string
	*process
}

// startServer starts the compiled-in kube-apiserver from the folder bin. It does not wait until the
// server is ready.
func (p *controlPlane) startServer(t *testing.T, bin, address string, more ...string) *replica {
	t.Helper()
	_, port, _ := strings.Cut(address, ":")
	args := append(local.ServerFlags(p.Dir, p.etcd), "--secure-port="+port, "--authorization-mode=Node,RBAC",
		"--tenancy-config="+filepath.Join(p.Dir, "upgrade.yaml"))
	args = append(args, more...)
	return &replica{address, run(t, filepath.Join(p.Dir, "server-"+port+".log"),
		filepath.Join(bin, "kube-apiserver"), args...)}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := local.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// admin returns the administrator's client configuration for the given address.
func admin(t *testing.T, s *localserver.Server, address string) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	c.Host, c.QPS, c.WarningHandler = "https://"+address, -1, rest.NoWarnings{}
	return c
}

func dynamicClient(t *testing.T, c *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// readyz returns an error if the server is not ready. It opens a new connection.
func readyz(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- no secret is sent
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		failed := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "[+]")
		})
		err = fmt.Errorf("%s: %d: %q", url, resp.StatusCode, failed)
	}
	return err
}

// awaitReady waits until a process is ready. If the process ends, the test fails.
func (p *process) awaitReady(t *testing.T, url string) {
	t.Helper()
	waittest.Within(t, waitLimit, func() error {
		if p.hasExited() {
			t.Fatalf("%s: the process ended:\n%s", p.log, tail(p.log))
		}
		return readyz(t.Context(), url)
	})
}

// tail returns the last five lines of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
