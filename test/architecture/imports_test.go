package architecture_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module = "github.com/kubetenant/kubetenant"
	root   = "../.."
)

// goList returns what "go list" prints about each package of the module in dir: the package's path
// and the paths that format adds.
func goList(t *testing.T, dir, format string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} "+format, "./...")
	cmd.Dir = filepath.Join(root, dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = fields[1:]
	}
	return all
}

const (
	imports = `{{join .Imports " "}}`
	// allImports includes the imports of tests.
	allImports = `{{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`
)

// under reports whether a package is in one of the folders of the project.
func under(pkg string, folders ...string) bool {
	for _, f := range folders {
		if f = path.Join(module, f); pkg == f || strings.HasPrefix(pkg, f+"/") {
			return true
		}
	}
	return false
}

// A layer is a folder and what its packages may import of the project besides their own folder.
type layer struct {
	folder string
	may    []string
}

// layers returns the layers from the bottom to the top. The first that holds a package applies.
func layers() []layer {
	shared := []string{
		"internal/budget", "internal/listinformer", "internal/reload", "internal/reviews", "internal/yamlfile",
	}
	kinds := []string{"tenant", "tenant/v1alpha1"}
	library := append([]string{"authn", "authz", "plugins", "cluster", "config/v1alpha1"}, append(kinds, shared...)...)
	engine := append([]string{"internal/stack"}, library...)
	return []layer{
		{"tenant/client", []string{"tenant/v1alpha1"}},
		{"tenant/v1alpha1", []string{"tenant"}},
		{"tenant/impersonate", []string{"tenant"}},
		{"tenant/tenanttest", []string{"tenant"}},
		{"tenant", nil},
		{"config/v1alpha1", append([]string{"internal/yamlfile"}, kinds...)},
		{"internal/budget", nil},
		{"internal/listinformer", nil},
		{"internal/reload", nil},
		{"internal/reviews", []string{"tenant"}},
		{"internal/yamlfile", nil},
		// These three do not know each other, and they do not know the kinds or the configuration.
		{"authn", []string{"tenant", "internal/reload"}},
		{"authz", []string{"tenant", "internal/budget"}},
		{"plugins", []string{"tenant"}},
		{
			"cluster",
			append([]string{"authn/serviceaccount", "authz", "plugins", "config/v1alpha1", "deploy"},
				append(kinds, shared...)...),
		},
		{"internal/stack", library},
		{"deploy", nil},
		{"internal/serving", engine},
		{"internal/simulate", engine},
		{"internal/manifests", append([]string{"deploy", "internal/serving"}, library...)},
		{"internal/webhook", append([]string{"internal/serving"}, engine...)},
		{"internal/gateway", append([]string{"internal/serving"}, engine...)},
		{"internal/cli", append([]string{"internal/gateway/views", "internal/simulate"}, engine...)},
		{"cmd", append([]string{"", "internal"}, library...)},
		{"test", append([]string{"", "internal"}, library...)},
		{"hack", append([]string{"", "test"}, library...)},
		{"", []string{"config/v1alpha1", "internal/stack"}},
	}
}

func mayImport(l layer, imported string) bool {
	if l.folder != "" && under(imported, l.folder) {
		return true
	}
	for _, folder := range l.may {
		switch folder {
		case "", "tenant": // the package alone, without the folders in it
			if imported == path.Join(module, folder) {
				return true
			}
		default:
			if under(imported, folder) {
				return true
			}
		}
	}
	return false
}

// TestImports checks the layers: tenant <- {authn, authz, plugins} <- cluster <- internal/stack <-
// kubetenant, and what is built on them.
func TestImports(t *testing.T) {
	for pkg, list := range goList(t, ".", imports) {
		found := false
		for _, l := range layers() {
			if !under(pkg, l.folder) || l.folder == "" && pkg != module {
				continue
			}
			found = true
			for _, imported := range list {
				if under(imported, "") && !mayImport(l, imported) {
					t.Errorf("%s imports %s, which is not in a layer below it", pkg, imported)
				}
			}
			break
		}
		if !found {
			t.Errorf("%s is in no layer", pkg)
		}
		switch path.Base(pkg) {
		case "util", "utils", "common", "helpers", "types":
			t.Errorf("%s: the name of the package says nothing", pkg)
		}
	}
}

// TestPartsAreIndependent checks that sources of identities, and the parts of cluster, do not
// import each other or the package that puts them together.
func TestPartsAreIndependent(t *testing.T) {
	for pkg, list := range goList(t, ".", imports) {
		for _, imported := range list {
			if under(pkg, "authn") && pkg != module+"/authn" && under(imported, "authn") &&
				!strings.Contains(imported, "/internal/") {
				t.Errorf("source %s imports %s", pkg, imported)
			}
			if under(pkg, "cluster") && pkg != module+"/cluster" && imported == module+"/cluster" {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// TestTheServerIsApart checks that no package of the library's module links
// kube-apiserver or etcd's server.
func TestTheServerIsApart(t *testing.T) {
	for pkg, list := range goList(t, ".", `{{join .Deps " "}}`) {
		for _, dep := range list {
			if strings.HasPrefix(dep, "k8s.io/kubernetes/") || strings.HasPrefix(dep, "go.etcd.io/") {
				t.Errorf("%s links %s", pkg, dep)
			}
		}
	}
}

// TestExamplesUseThePublicPackages checks that a reader can copy every example.
func TestExamplesUseThePublicPackages(t *testing.T) {
	all := goList(t, "examples", allImports)
	if len(all) < 2 {
		t.Fatalf("found the examples %v", all)
	}
	for pkg, list := range all {
		for _, imported := range list {
			if under(imported, "internal", "test", "hack", "cmd") {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// TestThirdPartyClients checks that each client of a third party is imported by one folder:
// removing a source is deleting its folder. internal/cli/login may import them too, to log in.
func TestThirdPartyClients(t *testing.T) {
	folders := map[string]string{
		"github.com/gophercloud/":       "authn/keystone",
		"github.com/golang-jwt/":        "authn/serviceaccount",
		"github.com/go-jose/":           "authn/oidc",
		"github.com/coreos/go-oidc":     "authn/oidc",
		"golang.org/x/oauth2":           "internal/cli/login",
		"golang.org/x/crypto/bcrypt":    "authn/basicauth",
		"k8s.io/pod-security-admission": "internal/simulate/podsecurity",
	}
	for pkg, list := range goList(t, ".", imports) {
		for _, imported := range list {
			for client, folder := range folders {
				if strings.HasPrefix(imported, client) && !under(pkg, folder, "internal/cli/login") {
					t.Errorf("%s imports %s, which only %s may import", pkg, imported, folder)
				}
			}
		}
	}
}

// TestTheLibrarysModule checks what users of the library do not have to download or replace.
func TestTheLibrarysModule(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		"k8s.io/kubernetes ", "go.etcd.io/", "replace", "tool ", "sigs.k8s.io/controller-runtime",
		"k8s.io/apiextensions-apiserver",
	} {
		if strings.Contains(string(data), word) {
			t.Errorf("go.mod contains %q", word)
		}
	}
}
