// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// uninstallFixture contains two Tenants and their namespaces. The admin of Tenant initech is User
// peter.
const uninstallFixture = `
apiVersion: v1
kind: Namespace
metadata: { name: acme--web, labels: { kubetenant.dev/tenant: acme } }
---
apiVersion: v1
kind: Namespace
metadata: { name: initech--reports, labels: { kubetenant.dev/tenant: initech } }
---
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: acme }
spec: { id: acme }
---
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: initech }
spec:
  id: initech
  admins: [ { kind: User, name: peter } ]
  bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: devs } ] } ]
  deletionPolicy: Delete
---
apiVersion: v1
kind: ConfigMap
metadata: { name: prices, namespace: initech--reports }
`

// uninstallBindings contains role bindings that would allow more without kubetenant. They are
// like the bindings that an earlier release, create-tenant and an operator create. The test
// stores them through upstream's server, because kubetenant protects objects with its own
// names.
const uninstallBindings = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: kubetenant:admins:acme
  labels: { kubetenant.dev/managed: tenant, kubetenant.dev/of-tenant: acme }
  annotations: { kubetenant.dev/scope: "Callers:acme" }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: peter } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: "kubetenant:admin:acme", labels: { kubetenant.dev/of-tenant: acme } }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: operators-own }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view }
subjects:
- { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" }
- { kind: ServiceAccount, name: default, namespace: acme--web }
- { apiGroup: rbac.authorization.k8s.io, kind: User, name: "ops" }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: scoped, annotations: { kubetenant.dev/scope: Tenanted } }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: mary } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: expiring, annotations: { kubetenant.dev/expires: "2020-01-01T00:00:00Z" } }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: mary } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: ended, namespace: acme--web, annotations: { kubetenant.dev/expires: "2020-01-01T00:00:00Z" } }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: own, namespace: acme--web }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { name: foreign, namespace: acme--web }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }
subjects:
- { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:initech" }
- { kind: ServiceAccount, name: default, namespace: acme--web }
`

// TestUninstall runs the commands of docs/tasks/uninstall.md without changes. It checks that
// callers of tenants then have only the rights of the remaining RoleBindings on upstream's server.
// Upstream's server runs on the same etcd, both during and after the use of kubetenant.
func TestUninstall(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": certificatesConfig}, "--tenant=acme,initech,umbrella")
	s.apply(t, uninstallFixture)
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "namespace", "initech--reports", "-o",
			`jsonpath={.metadata.annotations.kubetenant\.dev/prepared}`)
		if err != nil || out == "" {
			return fmt.Errorf("initech--reports is not prepared: %s", out)
		}
		return nil
	})
	upstream, stop := s.second(t, "vanilla-kube-apiserver")
	t.Run("one server without kubetenant", func(t *testing.T) {
		checkDenied(t, upstream, callersOfTenants(), "") // no tenant's admin has cluster-wide rights
	})
	s.apply(t, uninstallBindings, "--server", upstream.Host)
	p := &uninstallPage{newShell(t, t.TempDir(), s.Kubeconfig("admin")), s}
	t.Run("refusals", func(t *testing.T) { uninstallRefuses(t, p) })
	t.Run("dry run", func(t *testing.T) { uninstallDryRun(t, p) })
	removeSources(t, s)
	before, after := p.commands(t)
	for _, command := range before {
		p.run(t, command)
	}
	checkDenied(t, upstream, callersOfTenants(), "")
	stop()
	s.restart(t, "--tenancy=false")
	for _, command := range after {
		p.run(t, command)
	}
	upstream, _ = s.second(t, "vanilla-kube-apiserver")
	t.Run("upstream's server", func(t *testing.T) {
		checkDenied(t, upstream, callersOfTenants(), "acme--web")
		nothingRemains(t, p)
	})
	if out, err := p.try(t, "kubectl tenant uninstall --yes"); err != nil || !strings.Contains(out,
		"kubetenant has left nothing in this cluster") {
		t.Errorf("once more: %v\n%s", err, out)
	}
}

// callersOfTenants returns callers that must not gain any right. They are admins of tenants,
// service accounts, and users of tenant umbrella, one of which has the name of another tenant's
// admin.
func callersOfTenants() []rest.ImpersonationConfig {
	as := func(name string, groups ...string) rest.ImpersonationConfig {
		return rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
	}
	return []rest.ImpersonationConfig{
		as("peter", "tenant:initech"), as("peter", "tenant:umbrella"), as("mary", "devs",
			"tenant:umbrella"), as("admin", "tenant:acme"),
		as("system:serviceaccount:acme--web:default", "system:serviceaccounts", "system:serviceaccounts:acme--web"),
		as("system:serviceaccount:initech--reports:default", "system:serviceaccounts",
			"system:serviceaccounts:initech--reports"),
	}
}

// checkDenied checks with SelfSubjectAccessReviews of the given server that the callers have no
// cluster-wide rights. If kept is not empty, it also checks namespaces. In the namespace kept,
// callers of acme must have only the rights of its remaining RoleBindings.
func checkDenied(t *testing.T, server *rest.Config, callers []rest.ImpersonationConfig, kept string) {
	t.Helper()
	namespaces := []string{""}
	if kept != "" {
		namespaces = append(namespaces, kept, "initech--reports", "kube-system", "default", "nowhere")
	}
	sent := 0
	for _, caller := range callers {
		c := rest.CopyConfig(server)
		c.QPS, c.Impersonate = -1, caller
		reviews := client(t, c).AuthorizationV1().SelfSubjectAccessReviews()
		for _, namespace := range namespaces {
			for _, what := range []string{
				"get pods", "list secrets", "create pods", "delete namespaces", "create namespaces",
				"list namespaces", "create rolebindings.rbac.authorization.k8s.io",
				"get nodes", "impersonate users", "create tenantmembers.kubetenant.dev", "update tenants.kubetenant.dev", "* *",
			} {
				verb, resource, _ := strings.Cut(what, " ")
				resource, group, _ := strings.Cut(resource, ".")
				sent++
				review, err := reviews.Create(t.Context(),
					&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: namespace,
							Verb:      verb,
							Group:     group,
							Resource:  resource,
						},
					}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				var allowed []string
				hasBindings := namespace != "" && namespace == kept
				switch {
				case hasBindings && slices.Contains(caller.Groups, "tenant:acme"): // RoleBinding own
					allowed = []string{"get pods", "list namespaces"}
				case hasBindings && caller.UserName == "system:serviceaccount:acme--web:default": // RoleBinding foreign
					allowed = []string{"get pods", "list namespaces", "list secrets", "create pods"}
				}
				if review.Status.Allowed != slices.Contains(allowed, what) {
					t.Errorf("%s of %v in namespace %q: %s is allowed: %t: %s", caller.UserName, caller.Groups, namespace, what,
						review.Status.Allowed, review.Status.Reason)
				}
			}
		}
	}
	if sent == 0 {
		t.Error("no review was sent")
	}
}

// uninstallPage runs the commands of docs/tasks/uninstall.md in a directory.
type uninstallPage struct {
	*shell
	s *server
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// commands returns the commands of the page, separated into those before and after step 5, which
// changes the servers.
func (p *uninstallPage) commands(t *testing.T) (before, after []string) {
	t.Helper()
	text := readFile(t, "../../../../docs/tasks/uninstall.md")
	first, second, found := strings.Cut(text, "## Step 5: change the servers")
	blocks := func(text string) (all []string) {
		for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
			all = append(all, strings.Split(strings.TrimSpace(block[1]), "\n")...)
		}
		return all
	}
	before, after = blocks(first), blocks(second)
	if !found || !slices.ContainsFunc(before, isUninstall) || !slices.ContainsFunc(after, isUninstall) {
		t.Fatalf("the page has the commands %q and %q", before, after)
	}
	return before, after
}

func isUninstall(command string) bool {
	return strings.HasPrefix(command, "kubectl tenant uninstall --yes")
}

func (p *uninstallPage) try(t *testing.T, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return p.shell.try(ctx, command)
}

func (p *uninstallPage) run(t *testing.T, command string) {
	t.Helper()
	out, err := p.try(t, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if isUninstall(command) {
		t.Logf("%s\n%s", command, out)
	}
}

// uninstallRefuses checks that "kubectl tenant uninstall" fails for a caller of a tenant, and
// while the servers accept credentials of tenants. In both cases, it must not delete any
// ClusterRoleBinding.
func uninstallRefuses(t *testing.T, p *uninstallPage) {
	before := p.s.mustKubectl(t, "admin", "get", "clusterrolebindings", "-o", "name")
	for _, c := range []struct{ command, want string }{
		{
			"kubectl tenant uninstall --yes --force --kubeconfig " + p.s.Kubeconfig("acme"),
			"only the cluster's admin can remove kubetenant",
		},
		// This is the last command of the page.
		{"kubectl tenant uninstall --yes", "the servers accept credentials of tenants"},
	} {
		out, err := p.try(t, c.command)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.command, err, out)
		}
	}
	if after, err := p.s.kubectl(t, "admin", "get", "clusterrolebindings", "-o", "name"); err != nil || after != before {
		t.Errorf("bindings have changed: %v\n%s\n%s", err, before, after)
	}
}

// uninstallDryRun checks that a dry run prints every step and changes nothing.
func uninstallDryRun(t *testing.T, p *uninstallPage) {
	versions := func() string {
		out := p.s.mustKubectl(t, "admin", "get",
			"clusterrolebindings,clusterroles,rolebindings,namespaces,configmaps,serviceaccounts,secrets,tenants,crds", "-A",
			"-o",
			`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		return out
	}
	before := versions()
	out, err := p.try(t, "kubectl tenant uninstall --dry-run")
	if err != nil || strings.Count(out, "(dry run)") != 6 || !strings.Contains(out, "kubetenant:admins:acme") ||
		!strings.Contains(out, "initech--reports/prices") {
		t.Errorf("%v\n%s", err, out)
	}
	if after := versions(); after != before {
		t.Errorf("a dry run has changed objects:\n%s\n%s", before, after)
	}
}

// removeSources removes all sources from the configuration, and waits until the server has
// published the new configuration.
func removeSources(t *testing.T, s *server) {
	t.Helper()
	s.write(t, "tenancy.yaml", "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"+
		"authentication: { sources: [] }\n")
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "get", "configmap", "-n", "kube-system", configv1alpha1.PublishedName, "-o", "yaml")
		if err != nil || strings.Contains(out, "x509") {
			return fmt.Errorf("the source is still there: %w", err)
		}
		return nil
	})
}

// nothingRemains checks that no object, label or annotation of kubetenant remains, and that other
// objects were not deleted.
func nothingRemains(t *testing.T, p *uninstallPage) {
	for _, resources := range []string{
		"clusterroles,clusterrolebindings,crds,validatingadmissionpolicies,flowschemas",
		"namespaces,configmaps,rolebindings,secrets,leases,serviceaccounts -A",
	} {
		out := p.s.mustKubectl(t, "admin", append([]string{"get", "-o", "yaml"}, strings.Fields(resources)...)...)
		for line := range strings.Lines(out) {
			// Names of field managers, and the annotation with the last applied configuration,
			// may contain "kubetenant".
			if strings.Contains(line, "kubetenant") && !strings.Contains(line, "manager: ") && !strings.Contains(line,
				`{"apiVersion"`) {
				t.Errorf("%s: %s", resources, line)
			}
		}
	}
	for _, object := range []string{
		"namespace/acme--web", "namespace/initech--reports",
		"configmap/prices -n initech--reports", "clusterrolebinding/operators-own",
		"rolebinding/own -n acme--web", "rolebinding/foreign -n acme--web",
	} {
		if out, err := p.s.kubectl(t, "admin", append([]string{"get"}, strings.Fields(object)...)...); err != nil {
			t.Errorf("%s: %s", object, out)
		}
	}
	if out, err := p.s.kubectl(t, "umbrella", "auth", "can-i", "--list"); err != nil || strings.Contains(out,
		"namespaces") {
		t.Errorf("umbrella: %v\n%s", err, out)
	}
}
