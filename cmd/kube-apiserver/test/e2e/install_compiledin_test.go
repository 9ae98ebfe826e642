// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// containerPath is the PATH in which a container runtime finds programs (containerd, oci.WithDefaultPathEnv).
const containerPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// kubeadmConfig contains the fields of the page's kubeadm configuration that change the static pod.
type kubeadmConfig struct {
	APIServer struct {
		ExtraArgs    []struct{ Name, Value string }
		ExtraVolumes []struct{ HostPath, MountPath string }
	}
}

// TestInstallCompiledIn checks that the steps of docs/install.md replace kube-apiserver with the
// compiled-in server. The test starts the image of the release with the page's kubeadm
// configuration and patch.
func TestInstallCompiledIn(t *testing.T) {
	releaseOf(t)
	if !runIsolated(t) {
		return
	}
	s, r, _ := startAPIServer(t)
	ca, err := os.ReadFile(filepath.Join(s.local.Dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir("/etc/kubernetes/pki", 0o700),
		os.WriteFile("/etc/kubernetes/pki/ca.crt", ca, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.section(t, "install.md", "## Get the release")
	var config kubeadmConfig
	var patch corev1.Pod
	var last, digest string
	for _, block := range sectionBlocks(t, "install.md", "## Install the compiled-in server") {
		text := regexp.MustCompile(`(?m)^ {3}`).ReplaceAllString(block[2], "")
		switch {
		case strings.Contains(text, "kind: TenancyConfiguration"):
			r.write(t, "tenancy.yaml", text+"\n")
		case strings.Contains(text, "kind: ClusterConfiguration"):
			first, _, _ := strings.Cut(text, "\n---\n")
			if err := yaml.Unmarshal([]byte(first), &config); err != nil {
				t.Fatal(err)
			}
		case block[1] == "yaml":
			if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(r.localize(text), "DIGEST", digest)), &patch); err != nil {
				t.Fatal(err)
			}
		default:
			for _, command := range commandsOf(text) {
				if strings.HasPrefix(command, "kubectl wait ") { // the manual steps on each machine come before this command
					s.replace(t, r, config, patch)
				}
				last = r.run(t, command)
				if strings.HasPrefix(command, "tar ") {
					digest = strings.TrimSpace(last)
				}
			}
		}
	}
	checkTenant(t, last)
	t.Run("the server enforces the boundary", func(t *testing.T) {
		out, err := r.try(t, "kubectl --kubeconfig alice.kubeconfig get secrets -n kube-system")
		if err == nil || !strings.Contains(out, "tenant boundary") {
			t.Errorf("secrets of the system tenant: %v\n%s", err, out)
		}
	})
}

// replace replaces kube-apiserver with the image in the patch, as kubeadm and the kubelet do.
func (s *apiServer) replace(t *testing.T, r *reader, config kubeadmConfig, patch corev1.Pod) {
	t.Helper()
	if user := patch.Spec.SecurityContext.RunAsUser; user == nil || *user != 0 {
		t.Fatalf("the patch does not set the user that can read kubeadm's keys: %+v", patch.Spec.SecurityContext)
	}
	root := t.TempDir()
	if _, err := (archives{r.dir}).pull(patch.Spec.Containers[0].Image, root); err != nil {
		t.Fatal(err)
	}
	for _, folder := range strings.Split(containerPath, ":") {
		if _, err := os.Stat(filepath.Join(root, folder, patch.Spec.Containers[0].Name)); err == nil {
			s.program = filepath.Join(folder, patch.Spec.Containers[0].Name)
			break
		}
	}
	// The folders that the static pod of kubeadm contains, and those of the test's etcd and keys.
	folders := []string{"/etc/kubernetes/pki", s.local.Dir, filepath.Dir(strings.TrimPrefix(s.etcd, "unix://"))}
	for _, v := range config.APIServer.ExtraVolumes {
		if v.HostPath != v.MountPath {
			t.Fatalf("the volume %s has another path in the container", v.HostPath)
		}
		folders = append(folders, v.HostPath)
	}
	for _, folder := range folders {
		inside := filepath.Join(root, folder)
		if err := os.MkdirAll(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount(folder, inside, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(inside, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	s.root = root
	flags := []string{"--authorization-mode=Node,RBAC"}
	for _, arg := range config.APIServer.ExtraArgs {
		flags = append(flags, "--"+arg.Name+"="+arg.Value)
	}
	s.restart(t, flags, nil)
}
