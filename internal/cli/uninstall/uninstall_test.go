// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
	"github.com/kubetenant/kubetenant/tenant"
)

const crb = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s}, roleRef: " +
	"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [%s]}"

const rb = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s, namespace: %s}, " +
	"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [%s]}"

// installed returns a cluster with all objects of kubetenant. Next to each, it has an object of
// another project.
func installed() string {
	all := []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: acme--web, labels: {kubetenant.dev/tenant: acme, " +
			"pod-security.kubernetes.io/enforce: baseline}, annotations: {kubetenant.dev/prepared: x}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: globex--shop, labels: {kubetenant.dev/tenant: globex}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: kubetenant-system, labels: {kubetenant.dev/tenant: system}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: acme--web, labels: {kubetenant.dev/tenant: " +
			"acme, app: shop}, annotations: {kubetenant.dev/creator: alice}}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: plain, namespace: acme--web}, data: {a: Yg==}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: kubetenant-system, annotations: " +
			"{kubetenant.dev/publish: '*', kubetenant.dev/published: hash, app: shop}}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: acme--web, labels: " +
			"{kubetenant.dev/managed: publication, kubetenant.dev/publication: registry}, annotations: " +
			"{kubetenant.dev/published: hash}}}",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: own, namespace: acme--web, labels: " +
			"{kubetenant.dev/managed: template, kubetenant.dev/tenant: acme}}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-configuration, namespace: kube-system}, data: " +
			"{tenancy.yaml: '{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: {sources: " +
			"[]}}'}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-configuration, namespace: kubetenant-system}, " +
			"data: {tenancy.yaml: '{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: " +
			"{sources: []}}'}}",
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kubetenant-controller, namespace: kube-system}}",
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler, namespace: kube-system}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'kubetenant:tenant-admin'}, " +
			"rules: [{apiGroups: [''], resources: [namespaces], verbs: [create]}]}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view, annotations: " +
			"{kubetenant.dev/creator: x}}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: kubetenant-webhook, namespace: kubetenant-system}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: other, namespace: kubetenant-system}}",
		"{apiVersion: v1, kind: Service, metadata: {name: kubetenant-webhook, namespace: kubetenant-system}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: kubetenant-webhook-tls, namespace: kubetenant-system}}",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: " +
			"kubetenant}, webhooks: [{name: all.validating.kubetenant.dev}]}",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: kubetenant}, " +
			"webhooks: [{name: another.example.com}]}",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: " +
			"managed.kubetenant.dev}}",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: " +
			"kubetenant.dev.example.com}}",
		"{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: kubetenant}}",
		"{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: kubetenant-tenant-acme, labels: " +
			"{kubetenant.dev/managed: fair-use}}}",
		"{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: kubetenant-tenant-foreign}}",
		"{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: " +
			"kubetenant-tenants, labels: {kubetenant.dev/managed: fair-use}}}",
		"{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: " +
			"kubetenant-gold}}",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: {name: acme, finalizers: [kubetenant.dev/tenant]}, " +
			"spec: {id: acme, deletionPolicy: Delete}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: Publication, metadata: {name: registry, finalizers: " +
			"[kubetenant.dev/publication]}, spec: {from: {apiVersion: v1, kind: Secret, namespace: kubetenant-system, name: " +
			"registry}, tenants: {all: true}}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: Publication, metadata: {name: invalid, finalizers: " +
			"[kubetenant.dev/publication]}, spec: {from: [Secret], tenants: acme}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: prices, namespace: acme--web, labels: " +
			"{kubetenant.dev/tenant: acme}}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: RetiredTenant, metadata: {name: umbrella-1}, spec: {id: umbrella, " +
			"uid: '1'}}",
		fmt.Sprintf(crb, "'kubetenant:admins:acme', labels: {kubetenant.dev/managed: tenant, kubetenant.dev/of-tenant: "+
			"acme}, annotations: {kubetenant.dev/scope: 'Callers:acme'}", "{kind: User, name: peter}"),
		fmt.Sprintf(crb, "'kubetenant:tenant-member:acme', labels: {kubetenant.dev/of-tenant: acme}",
			"{kind: Group, name: 'tenant:acme'}"),
		fmt.Sprintf(crb, "mixed", "{kind: Group, name: 'tenant:acme'}, {kind: User, name: ops}"),
		fmt.Sprintf(crb, "ops", "{kind: User, name: ops}"),
		fmt.Sprintf(crb, "kubetenant-controller", "{kind: ServiceAccount, name: kubetenant-controller, namespace: "+
			"kubetenant-system}"),
		fmt.Sprintf(rb, "'kubetenant:admins'", "acme--web, labels: {kubetenant.dev/managed: tenant}",
			"{kind: User, name: peter}"),
		fmt.Sprintf(rb, "own", "acme--web", "{kind: Group, name: 'tenant:acme'}, {kind: Group, name: devs}"),
		fmt.Sprintf(rb, "ended", "kube-system, annotations: {kubetenant.dev/expires: soon}", "{kind: User, name: ops}"),
	}
	for _, kind := range []string{
		"Tenant", "RetiredTenant", "TenantMembers", "TenantQuota", "NamespaceTemplate",
		"Publication", "AccessGrant", "TenantUsage",
	} {
		plural, scope := strings.TrimSuffix(strings.ToLower(kind), "s")+"s", "Cluster"
		if kind == "AccessGrant" {
			scope = "Namespaced"
		}
		all = append(all, fmt.Sprintf("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: "+
			"{name: %[1]s.kubetenant.dev}, spec: {group: kubetenant.dev, scope: %[2]s, names: {plural: %[1]s, kind: %[3]s}}}",
			plural, scope, kind))
	}
	return strings.Join(all, "\n---\n")
}

// output contains the lines that the command printed.
type output struct{ lines []string }

func (s *output) printf(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *output) contains(text string) bool {
	return slices.ContainsFunc(s.lines, func(line string) bool { return strings.Contains(line, text) })
}

// options returns the options for a command without a terminal.
func options(t *testing.T, s *apiServer) (*uninstall.Options, *output) {
	t.Helper()
	admin, err := uninstall.NewClients(s.config())
	if err != nil {
		t.Fatal(err)
	}
	as := s.config()
	as.Impersonate = rest.ImpersonationConfig{UserName: tenant.ManagerUser}
	manager, err := uninstall.NewClients(as)
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	return &uninstall.Options{
		Admin:             admin,
		Manager:           manager,
		CheckServers:      uninstall.NewServerChecker(s.config()).Check,
		ServiceNamespaces: []string{"kubetenant-system"},
		Yes:               true,
		PollInterval:      time.Millisecond,
		Printf:            out.printf,
	}, out
}

// runToEnd runs the command, changes the servers, and runs it again.
func runToEnd(t *testing.T, s *apiServer) {
	t.Helper()
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	s.change(func() { s.compiledIn = false })
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
}

// TestRemovesEverything checks that no object of kubetenant remains, and that no other object
// changes.
func TestRemovesEverything(t *testing.T) {
	s := newServer(t, installed())
	runToEnd(t, s)
	state := s.state()
	for _, text := range []string{
		"kubetenant.dev/", "tenants.kubetenant.dev", "kubetenant:", "kubetenant-webhook",
		"peter", "devs", "/ended",
	} {
		if strings.Contains(state, text) {
			t.Errorf("%s remains", text)
		}
	}
	for resource, want := range map[string][]string{
		"ClusterRoleBindings":           {"mixed", "ops"},
		"RoleBindings":                  {"acme--web/own"},
		"ConfigMaps":                    {"acme--web/prices"},
		"NetworkPolicies":               {"acme--web/own"},
		"Deployments":                   {"kubetenant-system/other"},
		"MutatingWebhookConfigurations": {"kubetenant"},
		"ValidatingAdmissionPolicies":   {"kubetenant.dev.example.com"},
		"CustomResourceDefinitions":     {"widgets.example.com"},
		"Leases":                        {"kube-system/kube-scheduler"},
		"FlowSchemas":                   {"kubetenant-tenant-foreign"},
		"PriorityLevelConfigurations":   {"kubetenant-gold"},
		"ClusterRoles":                  {"view"},
		"Namespaces": {
			"acme--web",
			"globex--shop",
			"kubetenant-system",
		},
		"Secrets": {"acme--web/plain", "acme--web/registry", "kubetenant-system/registry"},
	} {
		t.Run(resource, func(t *testing.T) {
			if got := s.names("/" + strings.ToLower(resource) + " "); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if !strings.Contains(state, "pod-security.kubernetes.io/enforce: baseline") || !strings.Contains(state, "app: shop") {
		t.Error("labels of other projects were removed")
	}
	for _, write := range s.writes {
		if strings.HasPrefix(write, "DELETE v1/namespaces") || strings.Contains(write, "tenants acme") &&
			strings.HasPrefix(write, "DELETE") || strings.Contains(write, "secrets acme--web/plain") {
			t.Error(write)
		}
	}
}

// TestOrder checks the order of the changes. In another order, some changes would be harmful.
func TestOrder(t *testing.T) {
	s := newServer(t, installed())
	runToEnd(t, s)
	last := -1
	for _, write := range []string{
		"PATCH rbac.authorization.k8s.io/v1/clusterroles /kubetenant:tenant-admin", // an earlier release binds the role again
		"DELETE rbac.authorization.k8s.io/v1/clusterrolebindings /kubetenant:admins:acme",
		"DELETE rbac.authorization.k8s.io/v1/rolebindings acme--web/kubetenant:admins",
		"PATCH kubetenant.dev/v1alpha1/tenants /acme",
		"PATCH kubetenant.dev/v1alpha1/publications /invalid",
		"DELETE admissionregistration.k8s.io/v1/validatingwebhookconfigurations /kubetenant", // the webhooks call the service
		"DELETE admissionregistration.k8s.io/v1/validatingadmissionpolicies /managed.kubetenant.dev",
		"DELETE apps/v1/deployments kubetenant-system/kubetenant-webhook",
		"DELETE apiextensions.k8s.io/v1/customresourcedefinitions /tenants.kubetenant.dev",
		"PATCH v1/configmaps acme--web/prices",
		"PATCH v1/namespaces /acme--web", // the label identifies the owner
		"DELETE v1/configmaps kube-system/kubetenant-configuration",
	} {
		at := slices.Index(s.writes, write)
		if at <= last {
			t.Errorf("%s is write %d, after %d", write, at, last)
		}
		last = at
	}
}

// TestStoppedAfterEachWrite checks that the command can be stopped after any write and run again.
// The result is the same as without the interruption. The servers are changed before or after the
// first run.
func TestStoppedAfterEachWrite(t *testing.T) {
	whole := newServer(t, installed())
	runToEnd(t, whole)
	want, writes := whole.state(), len(whole.writes)
	if writes < 30 {
		t.Fatalf("%d writes; want at least 30", writes)
	}
	for _, changed := range []bool{false, true} { // true: the admin changed the servers too early
		for n := range writes {
			s := newServer(t, installed())
			s.compiledIn = !changed
			ctx, cancel := context.WithCancel(t.Context())
			remaining := n
			s.before = func(string) {
				if remaining--; remaining < 0 {
					cancel()
				}
			}
			o, _ := options(t, s)
			_ = uninstall.Run(ctx, o)
			cancel()
			s.change(func() { s.before = nil }) // a canceled request may still be running
			runToEnd(t, s)
			if got := s.state(); got != want {
				t.Fatalf("stopped after %d writes (servers changed: %t):\n%s\nwant\n%s", n, changed, got, want)
			}
			s.Close()
		}
	}
}

// TestDryRun checks that nothing is written, before and after the servers are changed, and that
// every step is printed.
func TestDryRun(t *testing.T) {
	for _, compiledIn := range []bool{true, false} {
		s := newServer(t, installed())
		s.compiledIn = compiledIn
		o, out := options(t, s)
		o.DryRun, o.Yes, o.Wait = true, false, true
		if err := uninstall.Run(t.Context(), o); err != nil {
			t.Error(err)
		}
		if len(s.writes) > 0 {
			t.Errorf("writes: %q", s.writes)
		}
		for _, text := range []string{
			"Step 1", "Step 6", "delete ClusterRoleBinding kubetenant:admins:acme",
			"delete RoleBinding acme--web/kubetenant:admins", "remove the finalizer of Tenant acme",
			"remove the finalizer of Publication registry", "remove the finalizer of Publication invalid",
			"delete CustomResourceDefinition tenants.kubetenant.dev",
			"remove labels and annotations of 1 configmaps: acme--web/prices",
		} {
			if !out.contains(text) {
				t.Errorf("not printed: %s\n%s", text, strings.Join(out.lines, "\n"))
			}
		}
	}
}

// TestRefuses checks the cases in which the command fails before the first write.
func TestRefuses(t *testing.T) {
	published := func(text string) func(*apiServer) {
		return func(s *apiServer) { s.publish("kube-system", text) }
	}
	ending := func(s *apiServer) {
		s.objects["kubetenant.dev/v1alpha1/tenants /acme"].SetDeletionTimestamp(new(metav1.Now()))
	}
	for name, c := range map[string]struct {
		change  func(*apiServer)
		refused bool // whether the error wraps ErrRefused
		force   bool // whether --force continues
		want    string
	}{
		"caller is not the admin": {
			func(s *apiServer) { s.notAdmin = true }, true, false,
			"only the cluster's admin",
		},
		"certificate source": {published("authentication: {sources: [{name: certs, x509: {clientCAFile: " +
			"ca.crt}}]}"), true, true, `authentication.sources "certs"`},
		"certificates of the cluster": {published("authentication: {sources: []}, authorization: {subject: " +
			"{fromGroups: true}}"), true, true, "fromGroups"},
		"configuration of another release": {published("other: {}"), false, true, "cannot be read"},
		"no configuration": {func(s *apiServer) {
			delete(s.objects,
				"v1/configmaps kube-system/kubetenant-configuration")
		}, false, true, "cannot be read"},
		"Tenant being deleted": {ending, true, true, "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installed())
			c.change(s)
			o, out := options(t, s)
			err := uninstall.Run(t.Context(), o)
			if err == nil || errors.Is(err, uninstall.ErrRefused) != c.refused || !strings.Contains(err.Error(), c.want) ||
				len(s.writes) > 0 {
				t.Errorf("%v; writes %q", err, s.writes)
			}
			o.DryRun = true
			if err := uninstall.Run(t.Context(), o); (err == nil) != c.force || len(s.writes) > 0 {
				t.Errorf("dry run: %v", err)
			}
			o.DryRun, o.Force = false, true
			if err := uninstall.Run(t.Context(), o); (err == nil) != c.force {
				t.Errorf("with --force: %v\n%s", err, strings.Join(out.lines, "\n"))
			}
		})
	}
}

// TestSourcesThatStay checks that the command continues if the only sources are for the system
// tenant and for service accounts.
func TestSourcesThatStay(t *testing.T) {
	s := newServer(t, installed())
	text := `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: {sources: [
  {name: ops, tenants: [system], x509: {clientCAFile: ca.crt}},
  {name: cluster, serviceAccount: {issuer: "https://kubernetes.default.svc", keyFiles: [a]}}]}}`
	s.objects["v1/configmaps kube-system/kubetenant-configuration"].Object["data"] = map[string]any{"tenancy.yaml": text}
	o, _ := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestQuestions checks that a binding that kubetenant did not create is deleted only if the answer
// is yes. Without a terminal, the command fails.
func TestQuestions(t *testing.T) {
	never := func(string) (bool, error) { return false, nil }
	for name, c := range map[string]struct {
		keep bool
		ask  func(string) (bool, error)
		want string // part of the error
	}{
		"no terminal": {false, nil, "use --yes"},
		"no":          {false, never, "the servers must not change"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installed())
			o, _ := options(t, s)
			o.Yes, o.KeepBindings, o.Confirm = false, c.keep, c.ask
			if err := uninstall.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if len(s.writes) > 0 {
				t.Errorf("writes %q", s.writes)
			}
		})
	}
	s := newServer(t, installed())
	s.compiledIn = false
	o, out := options(t, s)
	o.KeepBindings = true
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("/rolebindings acme--web/")) != 2 ||
		!out.contains("acme--web/kubetenant:admins (view to user peter)") {
		t.Errorf("--keep-bindings: %v, %q\n%s", err, s.names("/rolebindings "), strings.Join(out.lines, "\n"))
	}
	// This binding needs no confirmation, because kubetenant created it.
	s = newServer(t, strings.ReplaceAll(installed(), "name: mixed", "name: x, labels: {kubetenant.dev/of-tenant: acme}"))
	o, _ = options(t, s)
	o.Yes = false
	if err := uninstall.Run(t.Context(), o); errors.Is(err, uninstall.ErrRefused) || err == nil ||
		!strings.Contains(err.Error(), "--keep-bindings") {
		t.Errorf("shared names, without a terminal: %v", err)
	}
}

// TestClusterRoleBindings checks which ClusterRoleBindings are deleted, and which subjects remain.
func TestClusterRoleBindings(t *testing.T) {
	for name, c := range map[string]struct{ metadata, subjects, left string }{
		"group of a tenant":                     {"", "{kind: Group, name: 'tenant:globex'}", ""},
		"group of an unknown tenant":            {"", "{kind: Group, name: 'tenant:gone'}", ""},
		"user named like the group of a tenant": {"", "{kind: User, name: 'tenant:globex'}", "tenant:globex"},
		"service account of a tenant": {"", "{kind: ServiceAccount, name: default, namespace: acme--web}, {kind: User, " +
			"name: 'system:serviceaccount:acme--web:x'}, {kind: Group, name: 'system:serviceaccounts:acme--web'}", ""},
		"service account of the system tenant": {
			"", "{kind: ServiceAccount, name: default, namespace: kube-system}", "default",
		},
		"scope annotation": {", annotations: {kubetenant.dev/scope: ''}", "{kind: User, name: ops}", ""},
		"scope annotation from grant-privileges": {
			", labels: {kubetenant.dev/made-by: kubectl-tenant}, annotations: {kubetenant.dev/scope: system}",
			"{kind: User, name: ops}", "",
		},
		"expiration": {
			", annotations: {kubetenant.dev/expires: '2099-01-01T00:00:00Z'}",
			"{kind: User, name: ops}", "",
		},
		"two subjects":            {"", "{kind: Group, name: 'tenant:acme'}, {kind: User, name: ops}", "ops"},
		"user":                    {"", "{kind: User, name: peter}", "peter"},
		"all authenticated users": {"", "{kind: Group, name: 'system:authenticated'}", "system:authenticated"},
		"managed binding with another subject": {
			", labels: {kubetenant.dev/of-tenant: acme}",
			"{kind: Group, name: 'tenant:acme'}, {kind: User, name: ops}", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installed()+"\n---\n"+fmt.Sprintf(crb, "tried"+c.metadata, c.subjects))
			o, out := options(t, s)
			if err := uninstall.Run(t.Context(), o); err != nil {
				t.Errorf("%v", err)
			}
			if strings.Contains(c.metadata, "made-by") && out.contains("annotation kubetenant.dev/scope: tried") {
				t.Error("the binding is not reported as created by kubetenant")
			}
			left := ""
			if u := s.objects["rbac.authorization.k8s.io/v1/clusterrolebindings /tried"]; u != nil {
				all, _, _ := unstructured.NestedSlice(u.Object, "subjects")
				for _, subject := range all {
					left += subject.(map[string]any)["name"].(string)
				}
				if plain := strings.Contains("peter ops system:authenticated", left); plain != out.contains("    tried (") {
					t.Errorf("warning: %t", !plain)
				}
			}
			if left != c.left {
				t.Errorf("%q remains, want %q", left, c.left)
			}
		})
	}
}

// TestRoleBindings checks which subjects are removed from RoleBindings, because callers of several
// tenants share their names.
func TestRoleBindings(t *testing.T) {
	for name, c := range map[string]struct{ namespace, subjects, left string }{
		"user":  {"acme--web", "{kind: User, name: peter}", ""},
		"group": {"acme--web", "{kind: Group, name: devs}", ""},
		"name with the tenant's prefix": {"acme--web", "{kind: User, name: 'acme:peter'}, {kind: Group, name: " +
			"'acme:devs'}", "acme:peter acme:devs"},
		"name with another tenant's prefix":       {"acme--web", "{kind: User, name: 'globex:peter'}", ""},
		"group of the tenant":                     {"acme--web", "{kind: Group, name: 'tenant:acme'}", "tenant:acme"},
		"group of another tenant":                 {"acme--web", "{kind: Group, name: 'tenant:globex'}", ""},
		"group of a deleted tenant":               {"umbrella--x, labels: {}", "{kind: Group, name: 'tenant:umbrella'}", ""},
		"group of a tenant in a system namespace": {"kube-system", "{kind: Group, name: 'tenant:acme'}", ""},
		"all authenticated users": {"acme--web", "{kind: Group, name: 'system:authenticated'}, {kind: Group, " +
			"name: 'system:serviceaccounts'}", ""},
		"all authenticated users in a system namespace": {
			"kube-system", "{kind: Group, name: 'system:authenticated'}",
			"system:authenticated",
		},
		"service account of the tenant": {"acme--web", "{kind: ServiceAccount, name: a}, {kind: Group, name: " +
			"'system:serviceaccounts:acme--web'}", "a system:serviceaccounts:acme--web"},
		"service account of another tenant":    {"acme--web", "{kind: ServiceAccount, name: a, namespace: globex--shop}", ""},
		"service account of the system tenant": {"acme--web", "{kind: ServiceAccount, name: a, namespace: kube-system}", "a"},
		"service account of a tenant in a system namespace": {
			"kube-system", "{kind: User, name: 'system:serviceaccount:acme--web:a'}", "",
		},
		"component": {
			"acme--web", "{kind: User, name: 'system:kube-scheduler'}",
			"system:kube-scheduler",
		},
		"user in a system namespace": {"kube-system", "{kind: User, name: peter}", "peter"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installed()+"\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: umbrella--x, labels: "+
				"{kubetenant.dev/tenant: umbrella}}}\n---\n"+fmt.Sprintf(rb, "tried", c.namespace, c.subjects))
			o, _ := options(t, s)
			if err := uninstall.Run(t.Context(), o); err != nil {
				t.Errorf("%v", err)
			}
			var left []string
			namespace, _, _ := strings.Cut(c.namespace, ",")
			if u := s.objects["rbac.authorization.k8s.io/v1/rolebindings "+namespace+"/tried"]; u != nil {
				all, _, _ := unstructured.NestedSlice(u.Object, "subjects")
				for _, subject := range all {
					left = append(left, subject.(map[string]any)["name"].(string))
				}
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("%q remains, want %q", got, c.left)
			}
		})
	}
}

// TestRecreatedBindings checks that a binding that a controller creates again is deleted again. If
// the controller always creates it again, the command fails.
func TestRecreatedBindings(t *testing.T) {
	for _, times := range []int{3, 1 << 20} {
		s := newServer(t, installed())
		again := times
		s.before = func(request string) {
			if strings.HasPrefix(request, "DELETE") && strings.Contains(request, "kubetenant:admins:acme") && again > 0 {
				again--
				_, key, _ := strings.Cut(request, " ")
				copied := s.objects[key].DeepCopy() // with another name, because this object exists until it is deleted
				copied.SetName(fmt.Sprintf("kubetenant:admins:acme%d", again))
				copied.SetUID("")
				s.put(copied)
			}
		}
		o, _ := options(t, s)
		err := uninstall.Run(t.Context(), o)
		if times == 3 && (err != nil || len(s.names("kubetenant:admins:")) > 0) || times > 3 && (!errors.Is(err,
			uninstall.ErrRefused) || !strings.Contains(err.Error(), "created again")) {
			t.Errorf("%d times: %v, %q", times, err, s.names("kubetenant:admins:"))
		}
		role := s.objects["rbac.authorization.k8s.io/v1/clusterroles /kubetenant:tenant-admin"]
		if rules, _, _ := unstructured.NestedSlice(role.Object, "rules"); len(rules) > 0 {
			t.Error("the role still has rules")
		}
	}
}

// TestForbidden checks that a failed change ends the command before the servers are changed. If
// some objects cannot be read, the labels that identify the owners remain.
func TestForbidden(t *testing.T) {
	s := newServer(t, installed())
	s.refuse = func(method, path string) bool {
		return method == http.MethodDelete && strings.HasSuffix(path, "kubetenant:tenant-member:acme")
	}
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); !errors.Is(err, uninstall.ErrFailed) || out.contains("Step 3") ||
		!out.contains("  delete ClusterRoleBinding kubetenant:tenant-member:acme: created by kubetenant: Forbidden") {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	s = newServer(t, installed())
	s.compiledIn = false
	s.refuse = func(method, path string) bool {
		return method == http.MethodGet && strings.HasSuffix(path, "networkpolicies")
	}
	o, out = options(t, s)
	if err := uninstall.Run(t.Context(), o); !errors.Is(err, uninstall.ErrUnread) ||
		!out.contains("could not be read: list networkpolicies") || len(s.names("kubetenant-configuration")) != 2 ||
		!strings.Contains(s.state(), "kubetenant.dev/tenant: globex") {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	for _, resource := range []string{"clusterrolebindings", "rolebindings", "namespaces", "tenants"} {
		s = newServer(t, installed())
		s.refuse = func(method, path string) bool {
			return method == http.MethodGet && strings.HasSuffix(path, "/"+resource)
		}
		o, _ = options(t, s)
		if err := uninstall.Run(t.Context(), o); !errors.Is(err, uninstall.ErrUnread) || apierrors.IsForbidden(err) ||
			slices.ContainsFunc(s.writes, func(w string) bool { return strings.Contains(w, "finalizers") }) {
			t.Errorf("%s cannot be read: %v", resource, err)
		}
	}
}

// TestServersChange checks that the command waits while a server runs kubetenant, and warns if
// only some servers do. It then repeats the first steps.
func TestServersChange(t *testing.T) {
	s := newServer(t, installed())
	o, out := options(t, s)
	looks := 0
	o.Wait = true
	o.CheckServers = func(context.Context) (*uninstall.Servers, error) {
		switch looks++; {
		case looks < 3:
			return &uninstall.Servers{Mode: installation.Webhook, With: []string{"a", "b"}}, nil
		case looks == 3:
			return &uninstall.Servers{Mode: installation.Webhook, With: []string{"b"}, Without: []string{"a"}}, nil
		case looks == 4:
			return nil, errors.New("it restarts")
		case looks == 6:
			return &uninstall.Servers{Leader: "c"}, nil
		}
		if s.compiledIn = false; looks == 7 { // a controller wrote objects again before it stopped
			var u unstructured.Unstructured
			if err := yaml.Unmarshal(fmt.Appendf(nil, crb, "'kubetenant:admins:globex', labels: {kubetenant.dev/managed: "+
				"tenant}", "{kind: User, name: peter}"), &u.Object); err != nil {
				t.Error(err)
			}
			s.put(&u)
			s.objects["kubetenant.dev/v1alpha1/tenants /acme"].SetFinalizers([]string{"kubetenant.dev/tenant"})
		}
		return &uninstall.Servers{Without: []string{"a", "b"}}, nil
	}
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	if looks != 9 || len(s.names("kubetenant:admins:")) > 0 || len(s.names("tenants.kubetenant.dev")) > 0 {
		t.Errorf("%d checks, %q remain", looks, s.names("kubetenant"))
	}
	for _, text := range []string{
		"--authorization-config", "Do not delete the service",
		"danger: only some servers run kubetenant: tenants are not isolated at a: change b",
		"it restarts", "the server c, which holds the Lease",
	} {
		if !out.contains(text) {
			t.Errorf("not printed: %s\n%s", text, strings.Join(out.lines, "\n"))
		}
	}
}

// TestShadow checks that the objects of the service are not deleted while kube-apiserver may still
// call the service, except with Force. In mode Shadow, the service denies no requests, so no
// response shows whether it is called.
func TestShadow(t *testing.T) {
	for mode, hidden := range map[string]bool{"Shadow": true, "Enforce": false, "": true} {
		t.Run(mode, func(t *testing.T) {
			s := newServer(t, installed())
			s.compiledIn = false
			u := s.objects["v1/configmaps kubetenant-system/kubetenant-configuration"]
			delete(s.objects, "v1/configmaps kubetenant-system/kubetenant-configuration")
			if mode != "" {
				u.SetNamespace("kubetenant-system")
				u.Object["data"] = map[string]any{"tenancy.yaml": "{apiVersion: kubetenant.dev/v1alpha1, kind: " +
					"TenancyConfiguration, authentication: {sources: []}, authorization: {mode: " + mode + "}}"}
				s.put(u)
			}
			o, out := options(t, s)
			err := uninstall.Run(t.Context(), o)
			if deployed := len(s.names("/deployments kubetenant-system/kubetenant-webhook")) == 1; deployed != hidden ||
				errors.Is(err, uninstall.ErrRefused) != (mode == "Shadow") {
				t.Errorf("%v, the service exists: %t\n%s", err, deployed, strings.Join(out.lines, "\n"))
			}
			o.Force = true
			if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("/deployments "+
				"kubetenant-system/kubetenant-webhook")) > 0 {
				t.Errorf("with --force: %v", err)
			}
		})
	}
}

// TestNothingInstalled checks that a cluster without kubetenant is not changed, even if bindings
// name similar groups.
func TestNothingInstalled(t *testing.T) {
	s := newServer(t, fmt.Sprintf(crb, "theirs", "{kind: Group, name: 'tenant:x'}"))
	s.compiledIn = false
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.writes) > 0 ||
		!out.contains("kubetenant has left nothing in this cluster") {
		t.Errorf("%v, %q\n%s", err, s.writes, strings.Join(out.lines, "\n"))
	}
}

// TestCheckServers checks that each server of the cluster is checked. A renewed Lease shows that a
// server runs that cannot be reached.
func TestCheckServers(t *testing.T) {
	other := newServer(t, installed())
	host, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	slice := "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: kubernetes, namespace: default, " +
		"labels: {kubernetes.io/service-name: kubernetes}}, addressType: IPv4, ports: [{port: " + port +
		"}], endpoints: [{addresses: [" + host + "]}]}"
	s := newServer(t, installed()+"\n---\n"+slice)
	s.compiledIn = false
	checker := uninstall.NewServerChecker(s.config())
	servers, err := checker.Check(t.Context())
	// The check of the other server fails, because that server has no TLS.
	if err != nil || servers.Running() || len(servers.Without) != 1 || len(servers.Unreachable) != 1 {
		t.Errorf("%+v, %v", servers, err)
	}
	lease := func(renewed time.Time) {
		at := renewed.UTC().Format("2006-01-02T15:04:05.000000Z")
		u := s.objects["coordination.k8s.io/v1/leases kube-system/kubetenant-controller"]
		u.Object["spec"] = map[string]any{"holderIdentity": "hidden", "renewTime": at}
	}
	now := time.Now()
	for _, c := range []struct {
		name    string
		renewed time.Time
		want    bool
	}{
		{"an old lease", now.Add(-time.Hour), false},
		{"an old lease without a change", now.Add(-time.Hour), false},
		{"an old lease with a change", now.Add(-time.Hour + time.Second), true},
		{"an old lease without another change", now.Add(-time.Hour + time.Second), false},
		{"a recent lease", now, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease(c.renewed)
			if servers, err := checker.Check(t.Context()); err != nil || servers.Running() != c.want {
				t.Errorf("%+v, %v", servers, err)
			}
		})
	}
	s.compiledIn = true
	if servers, err := checker.Check(t.Context()); err != nil || servers.Mode != installation.CompiledIn ||
		len(servers.With) != 1 {
		t.Errorf("%+v, %v", servers, err)
	}
	s.Close()
	if servers, err := checker.Check(t.Context()); err == nil {
		t.Errorf("%+v", servers)
	}
}

// TestControllersWriteLater checks that the command finds objects that controllers write later.
// One controller creates a binding after a check. Another adds a finalizer before it stops.
func TestControllersWriteLater(t *testing.T) {
	s := newServer(t, installed())
	lists := 0
	s.refuse = func(method, path string) bool {
		if lists == 1 { // after the check that found no bindings
			lists++
			copied := s.objects["rbac.authorization.k8s.io/v1/clusterrolebindings /ops"].DeepCopy()
			copied.SetName("kubetenant:admins:globex")
			s.put(copied)
		}
		if method == http.MethodGet && strings.HasSuffix(path, "/clusterrolebindings") &&
			s.objects["rbac.authorization.k8s.io/v1/clusterrolebindings /kubetenant:admins:acme"] == nil {
			lists++
		}
		return false
	}
	o, _ := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil || lists < 3 || len(s.names("kubetenant:admins:")) > 0 {
		t.Errorf("%v, %d lists, %q", err, lists, s.names("kubetenant:admins:"))
	}
	s = newServer(t, installed())
	s.compiledIn = false
	s.before = func(request string) {
		if request == "DELETE apps/v1/deployments kubetenant-system/kubetenant-webhook" {
			s.objects["kubetenant.dev/v1alpha1/tenants /acme"].SetFinalizers([]string{tenant.Finalizer})
		}
	}
	o, _ = options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("tenants.kubetenant.dev")) > 0 {
		t.Errorf("%v, %q", err, s.names("kubetenant"))
	}
}
