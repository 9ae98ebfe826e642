// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
)

// server is a kube-apiserver without objects. requests contains the number of requests for each
// path.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string]int
}

// kinds maps resources to the kinds of their objects. Typed clients decode lists of these
// kinds. versions are the API versions of the core group and of RBAC.
var (
	kinds = map[string]string{
		"namespaces":          "Namespace",
		"roles":               "Role",
		"rolebindings":        "RoleBinding",
		"clusterroles":        "ClusterRole",
		"clusterrolebindings": "ClusterRoleBinding",
		"configmaps":          "ConfigMap",
	}
	versions = []string{"v1", "rbac.authorization.k8s.io/v1"}
)

// newServer starts a server that allows its callers every request. around adds the handlers of
// kubetenant. If around is nil, the server behaves like upstream's.
func newServer(t *testing.T, around func(http.Handler) http.Handler) *server {
	t.Helper()
	s := &server{requests: map[string]int{}}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(code int, object map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(object)
		}
		last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case r.Method == http.MethodPost && last == "subjectaccessreviews":
			answer(http.StatusCreated, map[string]any{
				"kind":       "SubjectAccessReview",
				"apiVersion": "authorization.k8s.io/v1",
				"status":     map[string]any{"allowed": false},
			})
		case r.Method == http.MethodPost && last == "namespaces" && r.URL.Query().Get("dryRun") == "All":
			answer(http.StatusCreated, map[string]any{"kind": "Namespace", "apiVersion": "v1"})
		case r.URL.Path == "/api":
			answer(http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []any{"v1"}})
		case r.URL.Path == "/apis":
			answer(http.StatusOK, map[string]any{"kind": "APIGroupList", "groups": []any{}})
		case r.URL.Path == "/api/v1":
			answer(http.StatusOK, map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{}})
		case r.Method == http.MethodGet && strings.HasSuffix(last, "s"):
			answer(http.StatusOK, map[string]any{
				"kind":       kinds[last] + "List",
				"apiVersion": versions[strings.Count(r.URL.Path, "/rbac")],
				"items":      []any{},
			})
		default:
			answer(http.StatusNotFound, map[string]any{
				"kind":       "Status",
				"apiVersion": "v1",
				"status":     "Failure",
				"code":       404,
				"reason":     "NotFound",
				"message":    "not found",
			})
		}
	})
	if around != nil {
		handler = around(handler)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests[r.Method+" "+r.URL.Path]++
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// run runs a command, and returns its output and its error.
func (s *server) run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	var b bytes.Buffer
	root := newCommand()
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetIn(strings.NewReader(""))
	root.SetArgs(append(args, "--server", s.URL, "--token", "t"))
	err = root.ExecuteContext(t.Context())
	return b.String(), err
}

// secretFile returns a file with a Secret.
func secretFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret.yaml")
	text := "{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: platform}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// leaves returns the runnable commands, keyed by name.
func leaves(root *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, c := range root.Commands() {
		if c.Runnable() {
			all[c.Name()] = c
		}
	}
	return all
}

// invocations returns arguments for each command that requires kubetenant.
func invocations(t *testing.T) map[string][]string {
	t.Helper()
	secret := secretFile(t)
	object := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(object, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string][]string{
		"access-map":        {"-o", "json"},
		"adopt":             {"web", "--tenant", "acme"},
		"adopt-tenants":     {},
		"audit":             {},
		"clusters":          {},
		"create-tenant":     {"acme", "--admin", "alice"},
		"delete-tenant":     {"acme", "--yes"},
		"explain":           {"get", "pods"},
		"gen-kubeconfig":    {"--user", "alice", "--tenant", "acme"},
		"grant-privileges":  {"--user", "bob", "--for-namespace", "acme--web"},
		"keystone-sync":     {"--dry-run", "--config", syncConfig(t, "https://keystone.example.com")},
		"list-privileges":   {},
		"publish":           {secret, "--all"},
		"release":           {"acme--web"},
		"resume":            {"acme"},
		"retired":           {},
		"revoke-privileges": {"--user", "bob", "--for-namespace", "acme--web"},
		"shared-with-me":    {},
		"suspend":           {"acme"},
		"tenants":           {},
		"usage":             {},
		"verify-isolation":  {},
		"who-can":           {"get", "pods"},
		"who-can-become":    {"alice"},
		"whoami":            {},
	}
}

// TestEveryCommandRefusesAServerWithoutKubetenant checks that each command is in worksWithout, or
// fails on a server without kubetenant.
func TestEveryCommandRefusesAServerWithoutKubetenant(t *testing.T) {
	all := invocations(t)
	for name := range leaves(newCommand()) {
		if worksWithout(name) != "" {
			continue
		}
		args, known := all[name]
		if !known {
			t.Errorf("%s needs kubetenant by default: add its arguments to invocations, or a reason to worksWithout", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			out, err := s.run(t, append([]string{name}, args...)...)
			if want := "kubetenant is not installed on " + s.URL + ": see docs/install.md"; err == nil || err.Error() != want ||
				!errors.Is(err, installation.ErrNotInstalled) {
				t.Fatalf("%v; want %q\n%s", err, want, out)
			}
			if code := exitCode(err); code != exitUnusual || out != "" {
				t.Errorf("exit %d, output %q", code, out)
			}
			for request, n := range s.requests {
				if n > 1 {
					t.Errorf("%s was sent %d times", request, n)
				}
			}
			if len(s.requests) > 4 {
				t.Errorf("more requests than detection needs: %v", s.requests)
			}
		})
	}
}

// withoutReviews makes a server deny a caller of tenant acme the creation of
// subjectaccessreviews.
func withoutReviews(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, object := http.StatusForbidden, map[string]any{
			"kind":       "Status",
			"apiVersion": "v1",
			"status":     "Failure",
			"code":       http.StatusForbidden,
			"reason":     "Forbidden",
			"message":    "subjectaccessreviews.authorization.k8s.io is forbidden",
		}
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/selfsubjectreviews":
			code, object = http.StatusCreated, map[string]any{
				"kind":       "SelfSubjectReview",
				"apiVersion": "authentication.k8s.io/v1",
				"status": map[string]any{"userInfo": map[string]any{
					"username": "alice",
					"groups":   []string{"tenant:acme"},
					"extra":    map[string]any{"authentication.kubernetes.io/credential-id": []string{"X509SHA256=1"}},
				}},
			}
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		default:
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	})
}

// TestOnlyWhoAmIRunsWithoutReviews checks the commands if the caller may not create
// subjectaccessreviews, so that it is unknown whether kubetenant is installed. The command whoami
// prints the caller's identity and a warning. Every other command fails.
func TestOnlyWhoAmIRunsWithoutReviews(t *testing.T) {
	for name, args := range invocations(t) {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, withoutReviews)
			out, err := s.run(t, append([]string{name}, args...)...)
			if name != "whoami" {
				if !errors.Is(err, installation.ErrReviewForbidden) || exitCode(err) != exitUnusual || out != "" {
					t.Errorf("%v, exit %d\n%s", err, exitCode(err), out)
				}
				return
			}
			warning := "warning: cannot determine whether kubetenant is installed on " + s.URL +
				": you may not create subjectaccessreviews"
			if err != nil || !strings.HasPrefix(out, warning) || !strings.Contains(out, "\nTenant:    acme (") {
				t.Errorf("%v; want %q and the tenant acme\n%s", err, warning, out)
			}
		})
	}
}

// TestCommandsOfSeveralClustersRefuseEach checks that a command with several clusters continues if
// one of them runs without kubetenant.
func TestCommandsOfSeveralClustersRefuseEach(t *testing.T) {
	s := newServer(t, nil)
	config := filepath.Join(t.TempDir(), "config")
	text := `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: c, cluster: {server: "` + s.URL +
		`"}}, {name: d, cluster: {server: "` + s.URL + `"}}], ` +
		`contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: c}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"list-privileges"},
		{"who-can", "get", "pods"},
		{"grant-privileges", "--user", "bob", "--for-namespace", "acme--web"},
		{"revoke-privileges", "--user", "bob", "--for-namespace", "acme--web"},
	} {
		for _, where := range [][]string{{"--context", "a,b"}, {"--cluster", "c,d"}} {
			root := newCommand()
			var b bytes.Buffer
			root.SetErr(&b)
			root.SetArgs(slices.Concat(command, where, []string{"--kubeconfig", config}))
			if err := root.ExecuteContext(t.Context()); !errors.Is(err, errSome) ||
				strings.Count(b.String(), "kubetenant is not installed on "+s.URL) != 2 {
				t.Errorf("%v %v: %v\n%s", command, where, err, &b)
			}
		}
	}
	several := []string{"list-privileges", "who-can", "grant-privileges", "revoke-privileges"}
	for name, cmd := range leaves(newCommand()) {
		if flag := cmd.LocalFlags().Lookup("cluster"); flag != nil && flag.Value.Type() == "stringSlice" &&
			!slices.Contains(several, name) && name != "gen-kubeconfig" { // there it contains the clusters of the new kubeconfig
			t.Errorf("%s accepts several clusters: add it to the list", name)
		}
	}
}

// TestEveryCommandRefusesAnUnknownTenant checks that a command fails with exit code 1 if a tenant,
// or the namespace of a service account, does not exist.
func TestEveryCommandRefusesAnUnknownTenant(t *testing.T) {
	const (
		noTenant    = "tenant nosuch: there is no such tenant"
		noNamespace = "namespace nosuch: the namespace does not exist"
	)
	takes := map[string]map[string][]string{ // arguments, keyed by the expected error
		"adopt-tenants": {noTenant: {"nosuch"}},
		"audit":         {noTenant: {"--tenant", "nosuch"}},
		"delete-tenant": {noTenant: {"nosuch", "--yes"}},
		"gen-kubeconfig": {
			noTenant:    {"--user", "alice", "--tenant", "nosuch"},
			noNamespace: {"--serviceaccount", "nosuch/robot"},
		},
		"grant-privileges": {
			noTenant:       {"--user", "bob", "--for-namespace", "acme--web", "--create-namespace", "--tenant", "nosuch"},
			noNamespace:    {"--serviceaccount", "nosuch/robot", "--for-namespace", "acme--web"},
			noTenant + ":": {"--user", "bob", "--tenant", "nosuch"},
		},
		"list-privileges": {noTenant: {"--tenant", "nosuch"}, noNamespace: {"--serviceaccount", "nosuch/robot"}},
		"explain":         {noTenant: {"get", "pods", "--as", "alice", "--tenant", "nosuch"}},
		"publish":         {noTenant: {secretFile(t), "--to", "nosuch"}},
		"resume":          {noTenant: {"nosuch"}},
		"retired":         {`retiredtenants.kubetenant.dev "nosuch" not found`: {"nosuch"}},
		"revoke-privileges": {
			noTenant:    {"--user", "bob", "--tenant", "nosuch"},
			noNamespace: {"--serviceaccount", "nosuch/robot", "--for-namespace", "acme--web"},
		},
		"shared-with-me": {noTenant: {"--tenant", "nosuch"}},
		"suspend":        {noTenant: {"nosuch"}},
		"tenants":        {noTenant: {"nosuch"}},
		"usage":          {noTenant: {"nosuch"}},
		"who-can-become": {noNamespace: {"--serviceaccount", "nosuch/robot"}},
		"whoami":         {noTenant: {"--as", "alice", "--as-group", "tenant:nosuch"}},
	}
	without := map[string]string{
		"create-tenant": "makes the tenant",
		"adopt":         "checks the tenant itself, because of --force",
	}
	for name, cmd := range leaves(newCommand()) {
		taken := cmd.LocalFlags().Lookup("tenant") != nil || cmd.LocalFlags().Lookup("serviceaccount") != nil ||
			strings.Contains(cmd.Use, "TENANT")
		if taken && takes[name] == nil && without[name] == "" && worksWithout(name) == "" {
			t.Errorf("%s takes a tenant or a service account: add its arguments", name)
		}
		for want, args := range takes[name] {
			t.Run(name+" "+want, func(t *testing.T) {
				s := newServer(t, func(next http.Handler) http.Handler { return authz.WithRequestState(next, nil) })
				out, err := s.run(t, append([]string{name}, args...)...)
				if err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitFailed {
					t.Errorf("%v; want %q\n%s", err, want, out)
				}
				for request := range s.requests {
					if !strings.HasPrefix(request, http.MethodGet) {
						t.Errorf("the command sent %s", request)
					}
				}
				if strings.HasPrefix(want, noTenant) && !errors.Is(err, tenancy.ErrNoTenant) {
					t.Errorf("the wrong error: %v", err)
				}
			})
		}
	}
}

// TestTenantRowsOfUnreadKinds checks that a cell is <unknown>, and not <none>, if the caller may
// not list its kind.
func TestTenantRowsOfUnreadKinds(t *testing.T) {
	acme := &tenancy.Tenant{Name: "acme", Namespaces: []string{"acme--web"}}
	for name, c := range map[string]struct {
		admins, unread []string
		want           []string // admins, CPU, access
	}{
		"all kinds are read":       {nil, nil, []string{"", "", ""}},
		"bindings are not read":    {nil, []string{"ClusterRoleBindings"}, []string{"<unknown>", "", ""}},
		"an admin is known":        {[]string{"user alice"}, []string{"ClusterRoleBindings"}, []string{"user alice", "", ""}},
		"quotas are not read":      {nil, []string{"TenantQuotas"}, []string{"", "<unknown>", ""}},
		"Tenants are not read":     {nil, []string{"Tenants"}, []string{"", "", "<unknown>"}},
		"another kind is not read": {nil, []string{"AccessGrants"}, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			acme.Admins = c.admins
			cells := tenantRows([]*tenancy.Tenant{acme}, c.unread).Rows[0].Cells
			if got := []string{cells[2], cells[3], cells[6]}; !slices.Equal(got, c.want) {
				t.Errorf("%q; want %q", got, c.want)
			}
		})
	}
}

// TestExitCodes checks that denied requests and missing objects have exit code 1, and other errors
// 2.
func TestExitCodes(t *testing.T) {
	missing := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"not installed": {installation.ErrNotInstalled, exitUnusual},
		"undetermined by a 403": {
			&installation.UndeterminedError{Cause: apierrors.NewForbidden(missing, "x", nil)}, exitUnusual,
		},
		"undetermined by a 404":  {&installation.UndeterminedError{Cause: apierrors.NewNotFound(missing, "x")}, exitUnusual},
		"a 403":                  {apierrors.NewForbidden(missing, "x", nil), exitFailed},
		"an object is missing":   {apierrors.NewNotFound(missing, "x"), exitFailed},
		"a kind is missing":      {apierrors.NewGenericServerResponse(404, "get", missing, "", "", 0, false), exitUnusual},
		"a tenant is missing":    {fmt.Errorf("tenant x: %w", tenancy.ErrNoTenant), exitFailed},
		"a namespace is missing": {fmt.Errorf("namespace x: %w", tenancy.ErrMissing), exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(c.err); got != c.want {
				t.Errorf("%d; want %d", got, c.want)
			}
		})
	}
}

// TestEmptyLists checks that an empty list prints a message for people to standard error, and
// nothing for programs.
func TestEmptyLists(t *testing.T) {
	compiledIn := func(next http.Handler) http.Handler { return authz.WithRequestState(next, nil) }
	for _, args := range [][]string{{"retired"}, {"tenants"}} {
		s := newServer(t, compiledIn)
		out, err := s.run(t, args...)
		if err != nil || out != "No resources found\n" {
			t.Errorf("%v: %q, %v", args, out, err)
		}
		if out, err := s.run(t, append(args, "-o", "name")...); err != nil || out != "" {
			t.Errorf("%v -o name: %q, %v", args, out, err)
		}
	}
}

// TestReleaseNeedsTheConfiguration checks that release fails if the system namespaces are unknown.
func TestReleaseNeedsTheConfiguration(t *testing.T) {
	s := newServer(t, func(next http.Handler) http.Handler { return authz.WithRequestState(next, nil) })
	out, err := s.run(t, "release", "acme--web", "--yes")
	if !errors.Is(err, errNoSettings) || exitCode(err) != exitUnusual || out != "" {
		t.Errorf("%v, exit %d\n%s", err, exitCode(err), out)
	}
	for request := range s.requests {
		if strings.HasPrefix(request, http.MethodPatch) {
			t.Errorf("the command sent %s", request)
		}
	}
}
