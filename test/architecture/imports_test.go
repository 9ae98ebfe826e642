// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package architecture_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/kubetenant/kubetenant"
	root   = "../.."
)

// source is a Go file with its folder and the paths that it imports. The folder is relative to
// the root of the repository, and "" for the root.
type source struct {
	folder, file string
	imports      []string
	test         bool
}

// sources reads the imports of all Go files in the repository, including files for other
// operating systems. It opens the files itself, so that Go's test cache detects changes to them.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(file) != ".go":
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		s := source{
			folder: strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), "."),
			file:   name,
			test:   strings.HasSuffix(file, "_test.go"),
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("found %d files", len(all))
	}
	return all
}

// own returns the folder of an imported package, or false if the package is not part of the
// project.
func own(imported string) (folder string, ok bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// under reports whether a folder is one of the specified folders or in one of them.
func under(folder string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}

// A layer is a folder, and the folders of the project from which its packages may import. An
// entry of may includes the subfolders of a folder, unless the entry ends with a dot.
type layer struct {
	folder string
	may    []string
}

// layers returns the layers from bottom to top. A package belongs to the first layer that contains
// it.
func layers() []layer {
	shared := []string{
		"internal/bearer", "internal/budget", "internal/fairuse", "internal/kube", "internal/listinformer",
		"internal/projection", "internal/reload", "internal/reviews", "internal/tenantaudit", "internal/turns",
		"internal/typed", "internal/usage", "internal/version", "internal/yamlfile",
	}
	kinds := []string{"tenant.", "tenant/v1alpha1"}
	library := slices.Concat([]string{"authn", "authz", "plugins", "cluster", "config/v1alpha1"}, kinds, shared)
	engine := append([]string{"internal/stack"}, library...)
	service := append([]string{"deploy", "internal/serving", "internal/manifests"}, engine...)
	public := append([]string{"."}, library...)
	return []layer{
		{"tenant/client", []string{"tenant/client", "tenant/v1alpha1"}},
		{"tenant/v1alpha1", []string{"tenant."}},
		{"tenant/impersonate", []string{"tenant."}},
		{"tenant/tenanttest", []string{"tenant."}},
		{"tenant", nil},
		{"config/v1alpha1", append([]string{"internal/projection", "internal/yamlfile"}, kinds...)},
		{"internal/bearer", nil},
		{"internal/budget", nil},
		{"internal/fairuse", kinds},
		{"internal/kube", nil},
		{"internal/listinformer", nil},
		{"internal/projection", nil},
		{"internal/reload", nil},
		{"internal/reviews", []string{"tenant.", "internal/bearer"}},
		{"internal/tenantaudit", []string{"tenant.", "internal/budget"}},
		{"internal/turns", []string{"tenant."}},
		{"internal/typed", []string{"internal/listinformer", "tenant/v1alpha1"}},
		{"internal/usage", append([]string{"internal/typed"}, kinds...)},
		{"internal/version", nil},
		{"internal/yamlfile", nil},
		// authn, authz and plugins do not import each other, the kinds or the configuration. A
		// source does not import another source, and a plugin does not import another plugin.
		{"authn/authntest", nil},
		{"authn", []string{"authn/internal", "tenant.", "internal/bearer", "internal/reload"}},
		{"authz", []string{"authz", "tenant.", "internal/budget"}},
		{"plugins", []string{"plugins.", "plugins/workload", "tenant."}},
		// Most packages in cluster import no other package in cluster except cluster/tenants.
		{"cluster/accessgrant", slices.Concat([]string{"authz", "cluster/tenants", "plugins"}, kinds, shared)},
		{
			"cluster/provision",
			slices.Concat([]string{"authz", "cluster/publication", "cluster/template", "cluster/tenants", "plugins"}, kinds,
				shared),
		},
		{"cluster/flowschemas", slices.Concat([]string{"cluster/tenants"}, kinds, shared)},
		{
			"cluster/projects",
			slices.Concat([]string{"authn/keystone", "cluster/tenants", "config/v1alpha1"}, kinds, shared),
		},
		{"cluster/retirement", slices.Concat([]string{"authz", "cluster/tenants"}, kinds, shared)},
		{"cluster/stored", slices.Concat([]string{"plugins"}, kinds, shared)},
		{"cluster/tenantquota", slices.Concat([]string{"plugins"}, kinds, shared)},
		{"cluster/publication", slices.Concat([]string{"cluster/template", "config/v1alpha1", "plugins"}, kinds, shared)},
		{
			"cluster/tenants",
			slices.Concat([]string{"authz", "cluster/publication", "cluster/template", "plugins"}, kinds, shared),
		},
		{
			"cluster/lookup",
			slices.Concat([]string{"authz", "cluster/lookup", "cluster/publication", "plugins"}, kinds),
		},
		{
			"cluster",
			slices.Concat([]string{
				"authn/keystone", "authn/serviceaccount", "authz", "cluster", "plugins", "config/v1alpha1", "deploy",
			}, kinds, shared),
		},
		{"internal/stack", library},
		{"deploy", nil},
		{"internal/leaving", append([]string{"config/v1alpha1", "internal/kube"}, kinds...)},
		{"internal/serving", append([]string{"internal/serving"}, engine...)},
		{"internal/apiserver", append([]string{"internal/serving/leader"}, engine...)},
		{"internal/simulate", append([]string{"internal/simulate", "authn/authntest"}, engine...)},
		{
			"internal/manifests",
			slices.Concat([]string{
				"deploy", "internal/leaving", "internal/manifests", "internal/serving",
			}, library),
		},
		{"internal/webhook", append([]string{"internal/webhook", "internal/serving"}, engine...)},
		{"internal/gateway", append([]string{"internal/gateway", "internal/serving"}, engine...)},
		{
			"internal/cli",
			slices.Concat([]string{
				"internal/cli", "internal/gateway/views", "internal/leaving", "internal/simulate",
			}, service),
		},
		{
			"cmd/kubectl-tenant",
			slices.Concat([]string{
				".", "internal/cli", "internal/gateway/views", "internal/leaving", "internal/simulate",
			}, engine),
		},
		{"cmd/kubetenant-gateway", append([]string{".", "internal/gateway"}, service...)},
		{"cmd/kubetenant-webhook", append([]string{"internal/webhook", "internal/cli/validate"}, service...)},
		{"cmd/kube-apiserver/kubetenant-local", []string{"cmd/kube-apiserver/local"}},
		{
			"cmd/kube-apiserver/local",
			slices.Concat([]string{
				"cmd/kube-apiserver/app", "internal/manifests", "internal/serving/state", "internal/stack", "test/localserver",
			}, library),
		},
		{
			"cmd/kube-apiserver/test",
			slices.Concat([]string{
				".", "authn/authntest", "cmd/kube-apiserver", "internal", "tenant", "test",
			}, library),
		},
		{"cmd/kube-apiserver/issuer", []string{"tenant."}},
		{
			"cmd/kube-apiserver",
			slices.Concat([]string{
				"cmd/kube-apiserver/app", "cmd/kube-apiserver/issuer", "internal/apiserver",
			}, public),
		},
		{"examples", append([]string{"tenant/impersonate"}, withoutInternal(public)...)},
		{"test", slices.Concat([]string{".", "authn/authntest", "internal", "tenant", "test"}, library)},
		{"hack", slices.Concat([]string{"authn/authntest", "test"}, library)},
		{"", append([]string{"internal/apiserver", "internal/stack"}, library...)},
	}
}

func withoutInternal(folders []string) []string {
	return slices.DeleteFunc(slices.Clone(folders), func(f string) bool { return under(f, "internal") })
}

func mayImport(l layer, s source, imported string) bool {
	if imported == s.folder {
		return true // an external test imports its own package
	}
	if under(imported, "authn/authntest") && !slices.Contains(l.may, "authn/authntest") {
		return false
	}
	return slices.ContainsFunc(l.may, func(f string) bool {
		alone, ok := strings.CutSuffix(f, ".")
		return ok && imported == alone || !ok && under(imported, f)
	})
}

// TestImports checks that each package imports only the packages of the project that its layer
// allows.
func TestImports(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		i := slices.IndexFunc(layers(), func(l layer) bool {
			return under(s.folder, l.folder) || l.folder == "" && s.folder == ""
		})
		if i < 0 {
			t.Errorf("%s is in no layer", s.folder)
			continue
		}
		l := layers()[i]
		used[l.folder] = true
		for _, imported := range s.imports {
			folder, ok := own(imported)
			if !ok || s.test && mayTestImport(folder) {
				continue
			}
			if !mayImport(l, s, folder) && (!s.test || !sameTop(s.folder, folder)) {
				t.Errorf("%s imports %s, which is not in a layer below it", s.file, imported)
			}
		}
		switch path.Base(s.folder) {
		case "util", "utils", "common", "helpers", "types":
			t.Errorf("%s: the package name does not describe the package", s.folder)
		}
	}
	for _, l := range layers() {
		if !used[l.folder] {
			t.Errorf("the layer %q contains no package", l.folder)
		}
	}
}

// mayTestImport reports whether every test may import a package. These are fixtures and packages
// that provide test data, such as kinds, CustomResourceDefinitions, configurations, simulated
// clusters and generated manifests.
func mayTestImport(folder string) bool {
	return under(folder,
		"authn/authntest", "config/v1alpha1", "deploy", "internal/manifests", "internal/simulate", "tenant", "test")
}

// sameTop reports whether two packages belong to the same layer of the library or to the same
// product.
func sameTop(a, b string) bool {
	part := func(folder string) string {
		all := strings.SplitN(folder, "/", 3)
		if all[0] == "internal" || all[0] == "cmd" {
			return path.Join(all[:min(2, len(all))]...)
		}
		return all[0]
	}
	return part(a) == part(b)
}

// TestThirdPartyClients checks that only one folder imports each third-party client.
// internal/cli/login may also import the clients of identity providers, to log in.
func TestThirdPartyClients(t *testing.T) {
	folders := map[string][]string{
		"github.com/gophercloud/":       {"authn/keystone", "internal/cli/login"},
		"github.com/golang-jwt/":        {"authn/serviceaccount"},
		"github.com/go-jose/":           {"authn/oidc"},
		"github.com/coreos/go-oidc":     {"authn/oidc", "internal/cli/login"},
		"golang.org/x/oauth2":           {"internal/cli/login"},
		"golang.org/x/crypto/bcrypt":    {"authn/basicauth"},
		"k8s.io/pod-security-admission": {"internal/simulate/podsecurity"},
	}
	for _, s := range sources(t) {
		for _, imported := range s.imports {
			for client, only := range folders {
				t.Run(client, func(t *testing.T) {
					if !s.test && strings.HasPrefix(imported, client) && !under(s.folder, only...) {
						t.Errorf("%s imports %s, which only %v may import", s.file, imported, only)
					}
				})
			}
		}
	}
}

// TestLibraryModule checks that go.mod has no requirement or replacement that would burden
// users of the library. Its packages cannot import modules that its go.mod does not require.
func TestLibraryModule(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		"k8s.io/kubernetes ", "go.etcd.io/etcd/server", "replace", "tool ", "sigs.k8s.io/controller-runtime",
		"k8s.io/apiextensions-apiserver",
	} {
		if strings.Contains(string(data), word) {
			t.Errorf("go.mod contains %q", word)
		}
	}
}
