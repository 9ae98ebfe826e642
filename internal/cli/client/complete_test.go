// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
)

// clusters returns kubectl's flags, parsed from args, and the command that has them. $KUBECONFIG
// is set to the file with the given kubeconfig.
func clusters(t *testing.T, kubeconfig string, args ...string) (*client.Flags, *cobra.Command) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	f, cmd := client.NewFlags(), &cobra.Command{Use: "test"}
	f.AddFlags(cmd)
	cmd.SetContext(t.Context())
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f, cmd
}

// twoClusters returns a kubeconfig with two clusters. server is the server of the current context.
func twoClusters(server string) string {
	return `{apiVersion: v1, kind: Config, current-context: east, clusters: [{name: e, cluster: {server: "` + server +
		`"}}, {name: w, cluster: {server: "https://west.example.com"}}],
contexts: [{name: west, context: {cluster: w, user: u, namespace: acme--web}}, {name: east, context: {cluster: e, ` +
		`user: u}}], users: [{name: u, user: {token: t}}]}`
}

// TestClusters checks that each context has its own client configuration. An unknown context is
// an error.
func TestClusters(t *testing.T) {
	const east = "https://east.example.com"
	for name, c := range map[string]struct {
		kubeconfig string
		args       []string
		want       string // "<name> <server> <host> <namespace>" of each cluster, or a part of the error
	}{
		"current context": {twoClusters(east), nil, "east e https://east.example.com default"},
		"another context": {twoClusters(east), []string{"--context", "west"}, "west w https://west.example.com acme--web"},
		"two contexts": {
			twoClusters(east),
			[]string{"--context", "west,east"},
			"west w https://west.example.com acme--web, east e https://east.example.com default",
		},
		"same context twice": {twoClusters(east), []string{"--context", "west,west"}, `--context names "west" twice`},
		"unknown context": {
			twoClusters(east),
			[]string{"--context", "west,north"},
			`the kubeconfig has no context "north": its contexts are east, west`,
		},
		"no current context": {
			strings.Replace(twoClusters(east), "current-context: east, ", "", 1),
			nil,
			"no current context: select one with --context (east, west)",
		},
		"no kubeconfig": {"", nil, "no kubeconfig found: set --kubeconfig or $KUBECONFIG"},
		"server flag without a kubeconfig": {
			"",
			[]string{"--server", "https://direct.example.com"},
			"https://direct.example.com https://direct.example.com https://direct.example.com default",
		},
		"namespace flag":     {twoClusters(east), []string{"-n", "web"}, "east e https://east.example.com web"},
		"invalid kubeconfig": {"a: [", nil, "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := clusters(t, c.kubeconfig, c.args...)
			all, err := f.Clusters()
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				for _, found := range all {
					got += ", " + found.Name + " " + found.Server + " " + found.Config.Host + " " + found.Namespace
				}
				got = strings.TrimPrefix(got, ", ")
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestCluster checks that a command for one cluster rejects several contexts. Its client has the
// user agent kubectl-tenant and no rate limit.
func TestCluster(t *testing.T) {
	f, _ := clusters(t, twoClusters("https://east.example.com"), "--context", "east,west")
	if _, err := f.Cluster(); err == nil || !strings.Contains(err.Error(), "--context names 2") {
		t.Errorf("two: %v", err)
	}
	f, cmd := clusters(t, twoClusters("https://east.example.com"), "--context", "west")
	c, err := f.Cluster()
	if err != nil || c.Name != "west" || c.Config.UserAgent != "kubectl-tenant" || c.Config.QPS >= 0 {
		t.Errorf("one: %+v, %v", c, err)
	}
	if !client.Changed(cmd.Flags(), "context") || client.Changed(cmd.Flags(), "namespace") ||
		client.Changed(cmd.Flags(), "none") {
		t.Error("Changed does not distinguish flags that are set from other flags")
	}
}

// TestMapperOfItsContext checks that a cluster's mapper uses the discovery of that cluster only.
func TestMapperOfItsContext(t *testing.T) {
	var paths []string
	east := serverConfig(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	})
	west := serverConfig(t, func(http.ResponseWriter, *http.Request) { t.Error("the other cluster received a request") })
	f, _ := clusters(t, strings.Replace(twoClusters(east.Host), "https://west.example.com", west.Host, 1), "--context",
		"east,west", "--cache-dir", t.TempDir())
	all, err := f.Clusters()
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := all[0].Mapper()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = mapper.ResourcesFor(schemaPods) // the result does not matter, only which server receives the requests
	if len(paths) == 0 {
		t.Error("the cluster received no request")
	}
}

// TestComplete checks that a completion returns each matching name once, in order. If the server
// denies its requests, a completion returns no names and also no file names.
func TestComplete(t *testing.T) {
	server := serverConfig(t, func(w http.ResponseWriter, r *http.Request) {
		text := map[string]string{
			"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1",` +
				`"items":[{"metadata":{"name":"b","labels":{"kubetenant.dev/tenant":"two"}}},` +
				`{"metadata":{"name":"ab","labels":{"kubetenant.dev/tenant":"one"}}},{"metadata":{"name":"aa",` +
				`"labels":{"kubetenant.dev/tenant":"one"}}}]}`,
			"/apis/rbac.authorization.k8s.io/v1/clusterroles": `{"kind":"ClusterRoleList",` +
				`"apiVersion":"rbac.authorization.k8s.io/v1","items":[{"metadata":{"name":"view"}},{"metadata":{"name":"edit"}}]}`,
			"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": bindings("ClusterRole", "User", "alice", "Group", "dev"),
			"/apis/rbac.authorization.k8s.io/v1/rolebindings": bindings("Role", "User", "bob", "User", "alice",
				"ServiceAccount", "robot"),
		}[r.URL.Path]
		if selector := r.URL.Query().Get("labelSelector"); selector != "" && selector != "kubetenant.dev/tenant" ||
			r.URL.Query().Get("limit") == "" {
			t.Errorf("unexpected request for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	})
	f, cmd := clusters(t, twoClusters(server.Host))
	for name, c := range map[string]struct {
		complete cobra.CompletionFunc
		prefix   string
		want     []string
	}{
		"namespaces":               {f.CompleteNamespaces, "", []string{"aa", "ab", "b"}},
		"namespaces with a prefix": {f.CompleteNamespaces, "a", []string{"aa", "ab"}},
		"tenants":                  {f.CompleteTenants, "", []string{"one", "two"}},
		"users":                    {f.CompleteUsers, "", []string{"alice", "bob"}},
		"groups":                   {f.CompleteGroups, "", []string{"dev"}},
		"roles":                    {f.CompleteRoles, "v", []string{"view"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, said := c.complete(cmd, nil, c.prefix); !slices.Equal(got, c.want) ||
				said != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("%q, %d; want %q", got, said, c.want)
			}
		})
	}
	contexts, _ := cmd.GetFlagCompletionFunc("context")
	if got, _ := contexts(cmd, nil, ""); !slices.Equal(got, []string{"east", "west"}) {
		t.Errorf("contexts: %q", got)
	}
	closed := serverConfig(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	f, cmd = clusters(t, twoClusters(closed.Host))
	if got, said := f.CompleteUsers(cmd, nil, ""); len(got) > 0 || said != cobra.ShellCompDirectiveError {
		t.Errorf("forbidden: %q, %d", got, said)
	}
}

// bindings returns a list with one binding. subjects alternates between kinds and names.
func bindings(kind string, subjects ...string) string {
	var all []string
	for pair := range slices.Chunk(subjects, 2) {
		all = append(all, `{"kind":"`+pair[0]+`","name":"`+pair[1]+`"}`)
	}
	return `{"kind":"` + kind +
		`BindingList","apiVersion":"rbac.authorization.k8s.io/v1","items":[{"metadata":{"name":"b"},"subjects":[` +
		strings.Join(all, ",") + `]}]}`
}
