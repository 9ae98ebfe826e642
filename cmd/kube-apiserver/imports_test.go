// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// localFolders contain the etcd server and the controllers. The production kube-apiserver may
// import only the packages in them that upstream's kube-apiserver imports.
var localFolders = []string{"go.etcd.io/etcd/server", "k8s.io/kubernetes/pkg/controller"}

// ownFolders contain this project's packages for local control planes and for tests.
var ownFolders = []string{
	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local",
	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/test",
	"github.com/kubetenant/kubetenant/test",
}

// TestProductionServerImports checks that kube-apiserver contains neither an etcd server nor the
// controllers of a local control plane. kubetenant-local contains both, which verifies the check
// itself.
func TestProductionServerImports(t *testing.T) {
	upstream := map[string]bool{}
	for _, dep := range dependencies(t, "k8s.io/kubernetes/cmd/kube-apiserver") {
		upstream[dep] = true
	}
	for _, dep := range localOnly(dependencies(t, "."), upstream) {
		t.Errorf("kube-apiserver imports %s: only kubetenant-local may import it", dep)
	}
	found := localOnly(dependencies(t, "./kubetenant-local"), upstream)
	for _, folder := range append(localFolders, "github.com/kubetenant/kubetenant/cmd/kube-apiserver/local") {
		if !slices.ContainsFunc(found, func(dep string) bool { return isIn(dep, []string{folder}) }) {
			t.Errorf("no import of kubetenant-local in %s was found", folder)
		}
	}
}

// dependencies returns a package and all packages that it imports, directly or indirectly.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

// localOnly returns the dependencies that a production server must not have.
func localOnly(dependencies []string, upstream map[string]bool) []string {
	var found []string
	for _, dep := range dependencies {
		if isIn(dep, ownFolders) || isIn(dep, localFolders) && !upstream[dep] {
			found = append(found, dep)
		}
	}
	return found
}

// isIn reports whether a package is in one of the folders.
func isIn(pkg string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}
