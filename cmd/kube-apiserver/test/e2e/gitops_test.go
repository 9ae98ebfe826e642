// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// platformManifest is the file that a platform team stores in Git. The GitOps tools that apply it
// are Flux's kustomize-controller, and our own agent with Argo CD's engine (hack/gitops).
const platformManifest = "../../../../examples/manifests/platform.yaml"

// gitopsTool returns the path of a file that "make test-gitops" has built.
func gitopsTool(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("KUBETENANT_GITOPS")
	if dir == "" {
		t.Skip("KUBETENANT_GITOPS is not set: run make test-gitops, which builds the tools")
	}
	return filepath.Join(dir, name)
}

// runTool runs a tool until the test ends, and returns its output. If the test fails, the test logs
// the output.
func runTool(t *testing.T, kubeconfig string, command ...string) *lockedText {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	output := &lockedText{}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- built by make
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = output, output, 5*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "RUNTIME_NAMESPACE=flux-system", "KUBECONFIG="+kubeconfig)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			text := output.String()
			t.Logf("output of %s:\n%s", command[0], text[max(0, len(text)-4000):])
		}
	})
	return output
}

// lockedText contains the output of a process. It may be read while the process runs.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// gitops is a GitOps tool that applies a Git repository to a server.
type gitops struct {
	// sync commits the manifest, and returns after the tool has applied it.
	sync func(manifest string)
	// refused returns an error until the tool reports that it could not prune an object.
	refused func() error
}

// applyRepeatedly checks that a tool can apply the platform team's file repeatedly without
// changing fields that other clients write. It also checks that a commit that removes the
// Tenant from the file deletes none of the tenant's objects.
func (g *gitops) applyRepeatedly(t *testing.T, s *server) {
	manifest := readFile(t, platformManifest)
	g.sync(manifest)
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "networkpolicies,rolebindings", "-n", "acme--web", "-l",
			"kubetenant.dev/managed", "-o", "name")
		if want := "networkpolicy.networking.k8s.io/own-tenant-only\n" +
			"rolebinding.rbac.authorization.k8s.io/kubetenant:admins\n"; err != nil || out != want {
			return fmt.Errorf("the managed objects are %q", out)
		}
		return nil
	})
	s.awaitOutput(t, `True acme 1 ["kubetenant.dev/tenant"]`, "get", "tenant", "acme", "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.quota} {.status.namespaces.prepared} `+
			`{.metadata.finalizers}`)
	if out, err := s.tenant(t, "admin", "suspend", "acme", "--read-only"); err != nil {
		t.Fatal(out)
	}
	written := func() string {
		t.Helper()
		return s.mustKubectl(t, "admin", "get", "tenants/acme", "namespacetemplates/std", "namespaces/acme--web", "-o",
			"jsonpath={.items[*].metadata.resourceVersion} {.items[0].spec.suspension}")
	}
	s.awaitOutput(t, "True", "get", "tenant", "acme", "-o",
		`jsonpath={.status.conditions[?(@.type=="Suspended")].status}`)
	before := written()
	g.sync(manifest + "# the same\n")
	g.sync(manifest + "# and again\n")
	if after := written(); after != before || !strings.HasSuffix(after, "ReadOnly") {
		t.Errorf("a commit without changes updates objects: %s, was %s", after, before)
	}
	g.sync(strings.Replace(manifest, "pods: 100", "pods: 50", 1))
	s.awaitOutput(t, "50", "get", "tenantquota", "acme", "-o", "jsonpath={.spec.hard.pods}")
	if !strings.HasSuffix(written(), "ReadOnly") {
		t.Error("a commit resumes a suspended tenant")
	}

	// A commit that removes the Tenant from the file deletes none of the tenant's objects.
	template, _, _ := strings.Cut(manifest, "---\n# The tenant")
	g.sync(template)
	waittest.Until(t, g.refused)
	for _, object := range []string{"tenant/acme", "tenantquota/acme"} {
		if out, err := s.kubectl(t, "admin", "get", object, "-o", "jsonpath={.metadata.deletionTimestamp}"); err != nil ||
			out != "" {
			t.Errorf("a commit without the Tenant deletes %s: %s", object, out)
		}
	}
}

// TestGitOpsFlux checks that Flux's kustomize-controller applies a platform team's Tenants and
// waits until they are Ready. It also runs the checks of applyRepeatedly.
func TestGitOpsFlux(t *testing.T) {
	t.Parallel()
	controller := gitopsTool(t, "kustomize-controller")
	s := startServer(t, nil)
	for _, crds := range []string{"flux-kustomize", "flux-source"} {
		s.mustKubectl(t, "admin", "apply", "--server-side", "-f", gitopsTool(t, crds))
	}
	s.mustKubectl(t, "admin", "create", "namespace", "flux-system")
	var mu sync.Mutex
	artifacts := map[string][]byte{}
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = w.Write(artifacts[r.URL.Path])
	}))
	t.Cleanup(source.Close)
	runTool(t, s.Kubeconfig("admin"), controller, "--metrics-addr=127.0.0.1:0",
		"--health-addr=127.0.0.1:0", "--log-level=info")
	s.apply(t,
		`{ apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: { name: platform, `+
			`namespace: flux-system }, spec: { interval: 1h, url: "https://example.com/platform" } }`)
	s.apply(t,
		`{ apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization,
  metadata: { name: platform, namespace: flux-system },
  spec: { interval: 1h, retryInterval: 2s, timeout: 1m, prune: true, wait: true, path: ./,
  sourceRef: { kind: GitRepository, name: platform } } }`)
	ready := func() (status, revision, message string) {
		out, _ := s.kubectl(t, "admin", "get", "kustomization", "platform", "-n", "flux-system", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}|{.status.lastAttemptedRevision}|`+
				`{.status.conditions[?(@.type=="Ready")].message}`)
		parts := append(strings.SplitN(out, "|", 3), "", "", "")
		return parts[0], parts[1], parts[2]
	}
	n := 0
	g := &gitops{sync: func(manifest string) {
		t.Helper()
		content := tarball(t, manifest)
		sum := sha256.Sum256(content)
		n++
		path, revision := fmt.Sprintf("/%d.tar.gz", n), fmt.Sprintf("main@sha1:%040d", n)
		mu.Lock()
		artifacts[path] = content
		mu.Unlock()
		now := time.Now().UTC().Format(time.RFC3339)
		status, err := json.Marshal(map[string]any{"status": map[string]any{
			"observedGeneration": 1,
			"artifact": map[string]any{
				"digest":         "sha256:" + hex.EncodeToString(sum[:]),
				"lastUpdateTime": now,
				"path":           strings.TrimPrefix(path, "/"),
				"revision":       revision,
				"url":            source.URL + path,
			},
			"conditions": []any{map[string]any{
				"type":               "Ready",
				"status":             "True",
				"reason":             "Succeeded",
				"message":            "stored",
				"lastTransitionTime": now,
				"observedGeneration": 1,
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.mustKubectl(t, "admin", "patch", "gitrepository", "platform", "-n", "flux-system",
			"--subresource=status", "--type=merge", "-p", string(status))
		lost := !strings.Contains(manifest, "kind: Tenant\n")
		waittest.Until(t, func() error {
			if status, at, message := ready(); at != revision || status == "Unknown" || !lost && status != "True" {
				return fmt.Errorf("%s is not applied: %s at %s: %s", revision, status, at, message)
			}
			return nil
		})
	}, refused: func() error {
		if status, _, message := ready(); status != "False" || !strings.Contains(message, "spec.deletionPolicy is Protect") {
			return fmt.Errorf("Flux does not report the object that it may not prune: %s %s", status, message)
		}
		return nil
	}}
	g.applyRepeatedly(t, s)
}

// tarball returns a compressed archive that contains the manifest as its only file.
func tarball(t *testing.T, manifest string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{
		Name:     "platform.yaml",
		Mode:     0o644,
		Size:     int64(len(manifest)),
		Typeflag: tar.TypeReg,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []interface{ Close() error }{files, zipped} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestGitOpsArgo runs the checks of applyRepeatedly with an agent that uses Argo CD's engine.
func TestGitOpsArgo(t *testing.T) {
	t.Parallel()
	agent := gitopsTool(t, "argo-agent")
	s := startServer(t, nil)
	repository := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{
			"-c", "user.name=platform", "-c", "user.email=platform@example.com",
		}, args...)...) // #nosec G204 -- our own arguments
		cmd.Dir = repository
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	git("init", "-q")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	var output *lockedText
	trigger := func() {
		t.Helper()
		before := 0
		if output == nil { // the agent applies the repository when it starts
			output = runTool(
				t,
				s.Kubeconfig("admin"),
				agent,
				repository,
				"--port",
				strconv.Itoa(port),
				"--resync-seconds",
				"3600",
				"--default-namespace",
				"default",
			)
		} else {
			before = strings.Count(output.String(), "RESOURCE ")
			waittest.Until(t, func() error {
				r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/sync", port)) //nolint:noctx // a test's
				if err != nil {
					return err
				}
				return r.Body.Close()
			})
		}
		waittest.Until(t, func() error {
			if strings.Count(output.String(), "RESOURCE ") == before {
				return fmt.Errorf("the agent has not synchronized")
			}
			return nil
		})
	}
	g := &gitops{sync: func(manifest string) {
		t.Helper()
		writeFile(t, filepath.Join(repository, "platform.yaml"), manifest)
		git("add", ".")
		git("commit", "-q", "-m", "platform")
		trigger()
	}, refused: func() error {
		if !strings.Contains(output.String(), "spec.deletionPolicy is Protect") {
			return fmt.Errorf("the agent does not report the object that it may not prune")
		}
		return nil
	}}
	g.applyRepeatedly(t, s)
}
