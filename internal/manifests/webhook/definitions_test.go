// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

const repository = "../../.."

// registered returns the resources of the constants Resource* in the API package.
func registered(t *testing.T) (resources []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), repository+"/tenant/v1alpha1/kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Resource") || len(spec.Values) == 0 {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, name)
		return true
	})
	slices.Sort(resources)
	return resources
}

// names returns the sorted names of files, without their extension.
func names(files []string) (resources []string) {
	for _, file := range files {
		resources = append(resources, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	slices.Sort(resources)
	return resources
}

// TestEveryDefinition checks that the library, the chart and the folder that generate writes
// contain the definition of each kind.
func TestEveryDefinition(t *testing.T) {
	want := registered(t)
	if len(want) < 6 {
		t.Fatalf("the API package names %q", want)
	}
	chart, err := fs.Glob(deploy.Files, "chart/crds/*")
	if err != nil {
		t.Fatal(err)
	}
	files, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for path := range files {
		if strings.HasPrefix(path, "crds/") {
			written = append(written, path)
		} else if bytes.Contains(files[path], []byte("kind: CustomResourceDefinition\n")) {
			t.Errorf("generate writes a definition to %s", path)
		}
	}
	for where, got := range map[string][]string{
		"deploy.Definitions":        names(slices.Collect(maps.Keys(deploy.Definitions()))),
		"deploy/chart/crds":         names(chart),
		"crds, written by generate": names(written),
	} {
		t.Run(where, func(t *testing.T) {
			if !slices.Equal(got, want) {
				t.Errorf("%s has definitions of %q; want %q", where, got, want)
			}
		})
	}
	for name, text := range deploy.Definitions() {
		data, err := deploy.Files.ReadFile("chart/crds/" + name)
		if err != nil || string(data) != text || string(files["crds/"+name]) != text {
			t.Errorf("%s differs between the chart and what generate writes: %v", name, err)
		}
	}
}

// TestEveryKindIsReadable checks that the service accounts of the service and of the controller may
// watch each kind of the API, except TenantUsages, which they only write.
func TestEveryKindIsReadable(t *testing.T) {
	files, err := webhook.Generate(options(t))
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]map[string]bool{}
	for _, doc := range bytes.Split(files["cluster/accounts.yaml"], []byte("\n---\n")) {
		role := rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		may[role.Name] = map[string]bool{}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.APIGroups, func(g string) bool { return g == "*" || g == "kubetenant.dev" }) {
				continue
			}
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					may[role.Name][verb+" "+resource] = true
				}
			}
		}
	}
	for _, account := range []string{"kubetenant-webhook", "kubetenant-controller"} {
		for _, resource := range registered(t) {
			verbs := []string{"list", "watch"}
			if resource == "tenantusages" {
				verbs = []string{"create", "delete", "get", "patch"}
			}
			for _, verb := range verbs {
				if !may[account][verb+" "+resource] && !may[account][verb+" *"] {
					t.Errorf("%s may not %s %s", account, verb, resource)
				}
			}
		}
	}
}

// TestPagesInstallDefinitionsFolder checks that the documentation instructs readers to install the
// whole folder of definitions, and never names the file of a single definition.
func TestPagesInstallDefinitionsFolder(t *testing.T) {
	one := regexp.MustCompile(`\b(` + strings.Join(registered(t), "|") + `)\.yaml\b`)
	pages := []string{repository + "/README.md", repository + "/CHANGELOG.md"}
	for _, dir := range []string{repository + "/docs"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" || filepath.Base(path) == "NOTES.txt" {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(pages) < 30 {
		t.Fatalf("found %d pages", len(pages))
	}
	for _, page := range pages {
		if strings.Contains(filepath.Base(page), "migrate") {
			continue // files of a migration have such names
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		// An example has the name of a definition's file.
		for i, line := range strings.Split(strings.ReplaceAll(string(text), "examples/manifests/tenants.yaml", ""), "\n") {
			if found := one.FindString(line); found != "" {
				t.Errorf("%s:%d names %s: install the folder crds", page, i+1, found)
			}
		}
	}
	for page, sections := range map[string][]string{
		"docs/install.md":       {"3. Start the service", "When a definition is missing"},
		"docs/tasks/upgrade.md": {"Webhook service"},
	} {
		t.Run(page, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(repository, page))
			if err != nil {
				t.Fatal(err)
			}
			for _, section := range sections {
				_, text, _ := strings.Cut(string(content), "\n## "+section+"\n")
				text, _, _ = strings.Cut(text, "\n## ")
				if !strings.Contains(text, "kubectl apply --server-side -f installed/crds/ --force-conflicts\n") {
					t.Errorf("%s, %s: must apply the folder", page, section)
				}
			}
		})
	}
}

// TestCheckDefinitions checks that a missing, outdated or misplaced definition is reported, and
// that a definition with the defaults of a server is not reported.
func TestCheckDefinitions(t *testing.T) {
	for _, resource := range registered(t) {
		path, name := "crds/"+resource+".yaml", "CustomResourceDefinition "+resource+".kubetenant.dev"
		expectFinding(t, "without "+path, findingsAfter(t, options(t), func(files map[string][]byte) { delete(files, path) }),
			strings.Replace(name, " ", "/", 1)+" is missing: apply the whole folder crds")
		expectFinding(t, "an older "+path, findingsAfter(t, options(t), func(files map[string][]byte) {
			files[path] = bytes.Replace(files[path], []byte("served: true"), []byte("served: false"), 1)
		}), path+": "+name+" is outdated or modified")
	}
	expectFinding(t, "a file of an earlier release", findingsAfter(t, options(t), func(files map[string][]byte) {
		files["cluster/tenants.yaml"] = files["crds/tenants.yaml"]
	}), "cluster/tenants.yaml: CustomResourceDefinition tenants.kubetenant.dev: an earlier release wrote this file")
	expectFinding(t, "as a server returns it", findingsAfter(t, options(t), func(files map[string][]byte) {
		definition := map[string]any{}
		if err := yaml.Unmarshal(files["crds/tenants.yaml"], &definition); err != nil {
			t.Fatal(err)
		}
		definition["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
		definition["metadata"].(map[string]any)["uid"] = "1"
		definition["status"] = map[string]any{"storedVersions": []any{"v1alpha1"}}
		text, err := yaml.Marshal(definition)
		if err != nil {
			t.Fatal(err)
		}
		files["crds/tenants.yaml"] = text
	}), "")
}
