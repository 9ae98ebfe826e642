// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// kubelet implements the parts of a kubelet that kubectl needs for a running Pod. It uses the
// streaming code of container runtimes for SPDY and websockets. The container's commands run in a
// directory of this machine.
type kubelet struct {
	root string // working directory of the container
	port int    // local port to which all ports of the Pod are forwarded
	// logLines supplies the lines of the container's log after the first line.
	logLines chan string
}

// ServeHTTP serves the paths of k8s.io/kubernetes pkg/kubelet/server/server.go, v1.37.1, for
// requests that kube-apiserver sends.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const idle, creation = time.Minute, 30 * time.Second
	operation, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	options, err := remotecommand.NewOptions(r)
	switch {
	case operation == "containerLogs":
		k.log(w, r)
	case operation == "portForward":
		portforward.ServePortForward(w, r, k, "p", "", &portforward.V4Options{}, idle, creation,
			portforward.SupportedProtocols)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case operation == "exec":
		remotecommand.ServeExec(w, r, k, "p", "", "c", r.URL.Query()["command"], options, idle, creation,
			remotecommand.SupportedStreamingProtocols)
	case operation == "attach":
		remotecommand.ServeAttach(w, r, k, "p", "", "c", options, idle, creation, remotecommand.SupportedStreamingProtocols)
	default:
		http.NotFound(w, r)
	}
}

// log writes one line. If the caller follows the log, it also writes each line from logLines.
func (k *kubelet) log(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "first\n")
	for r.URL.Query().Get("follow") == "true" {
		_ = http.NewResponseController(w).Flush()
		select {
		case line, more := <-k.logLines:
			if !more {
				return
			}
			_, _ = io.WriteString(w, line)
		case <-r.Context().Done():
			return
		}
	}
}

// ExecInContainer implements [remotecommand.Executor].
func (k *kubelet) ExecInContainer(
	ctx context.Context,
	_, _, _ string,
	args []string,
	in io.Reader,
	out, err io.WriteCloser,
	_ bool,
	_ <-chan remotecommand.TerminalSize,
	_ time.Duration,
) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) // #nosec G204 -- a test
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.WaitDelay = k.root, in, out, time.Second
	if err != nil {
		cmd.Stderr = err
	}
	exited := &exec.ExitError{}
	if failed := cmd.Run(); errors.As(failed, &exited) {
		return &utilexec.ExitErrorWrapper{ExitError: exited}
	} else if failed != nil && !errors.Is(failed, exec.ErrWaitDelay) {
		return failed
	}
	return nil
}

// AttachContainer implements [remotecommand.Attacher]. The container echoes its input.
func (k *kubelet) AttachContainer(
	_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	_, err := io.Copy(out, in)
	return err
}

// PortForward implements [portforward.PortForwarder].
func (k *kubelet) PortForward(ctx context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", k.port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, err = io.Copy(stream, conn)
	return err
}

// runKubelet starts a kubelet, and creates the running Pod p of acme--web on its node.
func runKubelet(t *testing.T, s *server) *kubelet {
	t.Helper()
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a page")
	}))
	t.Cleanup(pages.Close)
	k := &kubelet{root: t.TempDir(), port: pages.Listener.Addr().(*net.TCPAddr).Port, logLines: make(chan string)}
	server := httptest.NewTLSServer(k)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	admin := s.client(t, "admin")
	nodeAt(t, admin, "runs", server)
	podOn(t, admin, "acme--web", "runs")
	waittest.Until(t, func() error {
		pod, err := admin.CoreV1().Pods("acme--web").Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning,
			[]corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		_, err = admin.CoreV1().Pods("acme--web").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
	return k
}

// nodeAt creates a Node object with the given server as its kubelet.
func nodeAt(t *testing.T, admin *kubernetes.Clientset, name string, kubelet *httptest.Server) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(
		kubelet.Listener.Addr().(*net.TCPAddr).Port,
	) // #nosec G115 -- a port
	if _, err := admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// fallback is in the output of "kubectl -v=4" if kubectl uses SPDY because the websocket fails
// (k8s.io/client-go tools/remotecommand/fallback.go and tools/portforward/fallback_dialer.go,
// v0.37.1).
const fallback = "fallback"

// kubectlConnects checks that the kubectl commands exec, attach, cp and port-forward work for a
// tenant's admin, with websockets and with SPDY. It also checks "kubectl logs -f".
func kubectlConnects(t *testing.T, s *server) {
	k := runKubelet(t, s)
	for _, websocket := range []string{"true", "false"} {
		run := func(in string, args ...string) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			cmd := s.command(ctx, t, "kubectl", "acme", append([]string{"-n", "acme--web", "-v=4"}, args...)...)
			cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websocket,
				"KUBECTL_PORT_FORWARD_WEBSOCKETS="+websocket)
			cmd.Stdin, cmd.Dir = strings.NewReader(in), t.TempDir()
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), fallback) {
				t.Errorf("%v, websocket %s: kubectl used the other protocol: %.300s", args, websocket, out)
			}
			return string(out), err
		}
		for _, c := range []struct {
			in   string
			args []string
			want string
			code int
		}{
			{"", []string{"exec", "p", "--", "echo", "hello"}, "hello", 0},
			{"from here", []string{"exec", "-i", "p", "--", "cat"}, "from here", 0},
			{"", []string{"exec", "p", "--", "sh", "-c", "exit 7"}, "exit code 7", 7},
			{"", []string{"exec", "p", "--", "head", "-c", "3000000", "/dev/zero"}, strings.Repeat("\x00", 3_000_000), 0},
			{"to it", []string{"attach", "-i", "p"}, "to it", 0},
		} {
			out, err := run(c.in, c.args...)
			exited, code := &exec.ExitError{}, 0
			if errors.As(err, &exited) {
				code = exited.ExitCode()
			}
			if !strings.Contains(out, c.want) || code != c.code {
				t.Errorf("%v, websocket %s: %v: %.200s", c.args, websocket, err, out)
			}
		}
		here := filepath.Join(t.TempDir(), "here")
		text := strings.Repeat("0123456789abcdef", 1<<16)
		writeFile(t, here, text)
		if out, err := run("", "cp", here, "p:there"); err != nil {
			t.Errorf("cp to the Pod, websocket %s: %v: %s", websocket, err, out)
		}
		if out, err := run("", "cp", "p:there", here+"-back"); err != nil {
			t.Errorf("cp from the Pod, websocket %s: %v: %s", websocket, err, out)
		}
		if back, err := os.ReadFile(here + "-back"); err != nil || string(back) != text {
			t.Errorf("cp, websocket %s: %d bytes were copied back: %v", websocket, len(back), err)
		}
		if err := os.Remove(filepath.Join(k.root, "there")); err != nil {
			t.Error(err)
		}
		checkPortForward(t, s, websocket)
	}
	logsFollow(t, s, k)
}

// startKubectl starts kubectl as a tenant's admin, and returns a scanner of its output. kubectl is
// stopped when ctx ends.
func startKubectl(ctx context.Context, t *testing.T, s *server, env string, args ...string) *bufio.Scanner {
	t.Helper()
	cmd := s.command(ctx, t, "kubectl", "acme", args...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return bufio.NewScanner(out)
}

// checkPortForward checks that "kubectl port-forward" forwards several connections to the Pod.
func checkPortForward(t *testing.T, s *server, websocket string) {
	t.Helper()
	lines := startKubectl(t.Context(), t, s, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websocket, "-v=4",
		"-n", "acme--web", "port-forward", "p", ":80", "--address", "127.0.0.1")
	rest := ""
	for rest == "" {
		if !lines.Scan() {
			t.Fatalf("port-forward, websocket %s: kubectl printed no port", websocket)
		}
		if strings.Contains(lines.Text(), fallback) {
			t.Errorf("port-forward, websocket %s: kubectl used the other protocol: %s", websocket, lines.Text())
		}
		_, rest, _ = strings.Cut(lines.Text(), "Forwarding from 127.0.0.1:")
	}
	port, _, _ := strings.Cut(rest, " ")
	for range 3 { // several connections in one session
		resp, err := (&http.Client{
			Timeout:   waitLimit,
			Transport: &http.Transport{DisableKeepAlives: true},
		}).Get("http://127.0.0.1:" + port + "/")
		if err != nil {
			t.Fatalf("port-forward, websocket %s: %v", websocket, err)
		}
		text, _ := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); string(text) != "a page" {
			t.Errorf("port-forward, websocket %s: %q", websocket, text)
		}
	}
}

// logsFollow checks that "kubectl logs -f" prints each line when it is logged, before the log ends.
func logsFollow(t *testing.T, s *server, k *kubelet) {
	t.Helper()
	lines := startKubectl(t.Context(), t, s, "", "-n", "acme--web", "logs", "-f", "p")
	for _, want := range []string{"first", "second", "third"} {
		if want != "first" {
			k.logLines <- want + "\n"
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("logs -f: %q, want %q", lines.Text(), want)
		}
	}
	close(k.logLines)
	if lines.Scan() {
		t.Errorf("logs -f: %q after the end", lines.Text())
	}
}
