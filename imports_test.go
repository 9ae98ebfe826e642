package kubetenant_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/kubetenant/kubetenant"

// packages returns what each package of the module imports, all the way down.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = fields[1:]
	}
	return all
}

func under(pkg string, folders ...string) bool {
	for _, f := range folders {
		if f = path.Join(module, f); pkg == f || strings.HasPrefix(pkg, f+"/") {
			return true
		}
	}
	return false
}

// TestImports holds who may import whom:
// tenant <- {authn, authz, plugins} <- cluster <- kubetenant <- cmd.
func TestImports(t *testing.T) {
	forbidden := []struct {
		of  []string // folders
		not func(string) bool
		why string
	}{
		{[]string{"tenant"}, func(p string) bool {
			return under(p, "authn", "authz", "plugins", "cluster", "cmd", "internal") || p == module
		}, "tenant knows nothing of the rest"},
		{[]string{"authn"}, func(p string) bool {
			return under(p, "authz", "plugins", "cluster", "cmd", "tenant/v1alpha1") || p == module
		}, "authn stands alone"},
		{[]string{"authz"}, func(p string) bool {
			return under(p, "authn", "plugins", "cluster", "cmd", "tenant/v1alpha1") || p == module
		}, "authz stands alone"},
		{[]string{"plugins"}, func(p string) bool {
			return under(p, "authn", "authz", "cluster", "cmd", "tenant/v1alpha1") || p == module
		}, "plugins get what they need as function values"},
		{[]string{"cluster"}, func(p string) bool { return under(p, "cmd") || p == module }, "cluster knows nothing of stacks"},
		{[]string{"cluster/accessgrant", "cluster/provision", "cluster/retirement", "cluster/tenantquota", "cluster/tenants"}, func(p string) bool { return p == path.Join(module, "cluster") }, "the parts of cluster do not know it"},
		{[]string{""}, func(p string) bool {
			return strings.HasPrefix(p, "k8s.io/kubernetes/") || strings.HasPrefix(p, "go.etcd.io/")
		}, "only the nested module may import the server and etcd"},
	}
	for pkg, deps := range packages(t) {
		for _, rule := range forbidden {
			if !under(pkg, rule.of...) {
				continue
			}
			for _, dep := range deps {
				if rule.not(dep) {
					t.Errorf("%s imports %s: %s", pkg, dep, rule.why)
				}
			}
		}
		if under(pkg, "authn") && pkg != path.Join(module, "authn") {
			for _, dep := range deps {
				if under(dep, "authn") && !strings.Contains(dep, "/internal/") && dep != pkg {
					t.Errorf("source %s imports %s: sources know nothing of each other", pkg, dep)
				}
			}
		}
		if !under(pkg, "cmd") {
			for _, dep := range deps {
				if under(dep, "cmd") {
					t.Errorf("%s imports %s", pkg, dep)
				}
			}
		}
		switch path.Base(pkg) {
		case "util", "utils", "common", "helpers", "types":
			t.Errorf("%s: a name that names nothing", pkg)
		}
	}
}

// TestThirdPartyClients: each lives in one folder, so that removing a source is deleting its folder; those
// that somebody logs in with, in the command line's too.
func TestThirdPartyClients(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	lives := map[string]string{
		"github.com/gophercloud/": "authn/keystone", "github.com/golang-jwt/": "authn/serviceaccount", "github.com/go-jose/": "authn/oidc",
		"github.com/coreos/go-oidc": "authn/oidc", "golang.org/x/oauth2": "internal/cli/login", "golang.org/x/crypto/bcrypt": "authn/basicauth",
		"k8s.io/pod-security-admission": "internal/simulate/podsecurity",
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			for client, folder := range lives {
				if strings.HasPrefix(imported, client) && !under(fields[0], folder) && !under(fields[0], "internal/cli/login") {
					t.Errorf("%s imports %s, which lives in %s", fields[0], imported, folder)
				}
			}
		}
	}
}

// TestTheLibrarysModule stays free of the server, of etcd and of replacements.
func TestTheLibrarysModule(t *testing.T) {
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"k8s.io/kubernetes ", "go.etcd.io/", "replace"} {
		if strings.Contains(string(data), word) {
			t.Errorf("go.mod holds %q", word)
		}
	}
}
