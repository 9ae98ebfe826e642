// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package architecture_test

import (
	"debug/elf"
	"debug/gosym"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLinked checks that kubectl-tenant does not link large packages that it does not need.
// docs/design/benchmarks.md lists the sizes.
func TestLinked(t *testing.T) {
	functions := functionsOf(t, "./cmd/kubectl-tenant")
	for _, needed := range []string{"main", "k8s.io/client-go/kubernetes/typed/core/v1"} {
		if functionOf(functions, needed) == "" {
			t.Errorf("found no function of %s: the test does not read the binary correctly", needed)
		}
	}
	for name, instead := range map[string]string{
		"k8s.io/cli-runtime/pkg/resource":                 "internal/cli/client and internal/cli/output",
		"k8s.io/client-go/applyconfigurations/extensions": "internal/kube",
		"k8s.io/client-go/informers":                      "lists",
		"k8s.io/client-go/kubernetes.(*Clientset)":        "internal/kube",
		"k8s.io/client-go/kubernetes/typed/autoscaling":   "internal/kube",
		"k8s.io/client-go/kubernetes/typed/resource":      "internal/kube",
		"k8s.io/client-go/kubernetes/typed/storage":       "internal/kube",
		"k8s.io/kubernetes":                               "packages of the staging repositories",
		"sigs.k8s.io/kustomize":                           "internal/cli/client and internal/cli/output",
	} {
		t.Run(name, func(t *testing.T) {
			if found := functionOf(functions, name); found != "" {
				t.Errorf("kubectl-tenant links %s: use %s", found, instead)
			}
		})
	}
}

// functionOf returns a function in the named package or in one of its subpackages, or a method of
// the named type. If there is no such function, functionOf returns "".
func functionOf(functions []string, name string) string {
	i := slices.IndexFunc(functions, func(f string) bool {
		rest, ok := strings.CutPrefix(f, name)
		return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/"))
	})
	if i < 0 {
		return ""
	}
	return functions[i]
}

// functionsOf builds a command for Linux and returns the functions in the binary. Imports alone do
// not show which code is linked, because the linker removes unused functions.
func functionsOf(t *testing.T, command string) (names []string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, command)
	build.Dir = root
	build.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines, err := file.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, file.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	for i := range table.Funcs {
		names = append(names, table.Funcs[i].Name)
	}
	return names
}
