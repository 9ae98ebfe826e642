package uninstall_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/uninstall"
)

// with is the installed cluster with more objects.
func with(objects ...string) string {
	return installed() + "\n---\n" + strings.Join(objects, "\n---\n")
}

// TestSystemNamespaces: a system namespace with a tenant's label is no tenant's. The control plane keeps its bindings.
func TestSystemNamespaces(t *testing.T) {
	controller := fmt.Sprintf(crb, "'system:controller:job', labels: {kubernetes.io/bootstrapping: rbac-defaults}",
		"{kind: ServiceAccount, name: job-controller, namespace: kube-system}")
	prometheus := fmt.Sprintf(crb, "prometheus", "{kind: ServiceAccount, name: prometheus, namespace: monitoring}")
	s := newServer(t, with(
		"{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {kubetenant.dev/tenant: acme}}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {kubetenant.dev/tenant: acme}}}",
		controller, prometheus, fmt.Sprintf(rb, "dns", "kube-system", "{kind: ServiceAccount, name: dns}"),
		fmt.Sprintf(rb, "theirs", "kube-system", "{kind: Group, name: 'tenant:acme'}")))
	s.publish("kube-system", "authorization: {systemNamespaces: [kube-system, monitoring]}")
	s.publish("kubetenant-system", "authorization: {systemNamespaces: [kube-system, monitoring]}")
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	for key, want := range map[string]bool{"clusterrolebindings /system:controller:job": true,
		"rolebindings kube-system/dns": true, "rolebindings kube-system/theirs": false} {
		if got := s.objects["rbac.authorization.k8s.io/v1/"+key] != nil; got != want {
			t.Errorf("%s stays: %t, want %t", key, got, want)
		}
	}
	if !out.has("namespace kube-system has the label of tenant acme") {
		t.Errorf("no warning\n%s", strings.Join(out.lines, "\n"))
	}
	// A configuration in a tenant's namespace is a tenant's. It must not make a namespace of it the system's.
	if s.objects["rbac.authorization.k8s.io/v1/clusterrolebindings /prometheus"] != nil {
		t.Error("the configuration in a namespace with a tenant's label is believed")
	}
}

// TestPublishedSystemNamespaces: those of the configuration are the system's, whatever their labels.
func TestPublishedSystemNamespaces(t *testing.T) {
	s := newServer(t, with(
		"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {kubetenant.dev/tenant: acme}}}",
		fmt.Sprintf(crb, "prometheus", "{kind: ServiceAccount, name: prometheus, namespace: monitoring}")))
	s.publish("kube-system", "authorization: {systemNamespaces: [monitoring]}")
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("clusterrolebindings /prometheus")) != 1 {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
}

// TestUpstreamBindings: a binding of upstream's is never changed. If tenants' callers have rights by it, the command
// ends before the servers change.
func TestUpstreamBindings(t *testing.T) {
	for name, c := range map[string]struct{ metadata, subjects string }{
		"a tenant's group": {"", "{kind: Group, name: 'system:masters'}, {kind: Group, name: 'tenant:acme'}"},
		"a scope":          {", annotations: {kubetenant.dev/scope: 'Callers:acme'}", "{kind: Group, name: 'system:masters'}"},
	} {
		s := newServer(t, with(fmt.Sprintf(crb, "cluster-admin, labels: {kubernetes.io/bootstrapping: rbac-defaults}"+c.metadata,
			c.subjects)))
		o, out := options(t, s)
		err := uninstall.Run(t.Context(), o)
		if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "cluster-admin") || out.has("Step 3") ||
			len(s.writes) > 0 {
			t.Errorf("%s: %v, writes %q", name, err, s.writes)
		}
		o.Force = true
		if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("clusterrolebindings /cluster-admin")) != 1 ||
			!strings.Contains(s.state(), "system:masters") {
			t.Errorf("%s: with --force: %v\n%s", name, err, strings.Join(out.lines, "\n"))
		}
	}
}

// TestForeignDefinitions: definitions of another project are not deleted with all their objects, also not with --force.
func TestForeignDefinitions(t *testing.T) {
	for _, compiledIn := range []bool{true, false} {
		s := newServer(t, installed())
		s.compiledIn = compiledIn
		u := s.objects["apiextensions.k8s.io/v1/customresourcedefinitions /tenants.kubetenant.dev"]
		u.Object["spec"] = map[string]any{"group": "kubetenant.dev", "scope": "Namespaced",
			"names": map[string]any{"plural": "tenants", "kind": "Tenant"}}
		for _, force := range []bool{false, true} {
			o, out := options(t, s)
			o.Force = force
			err := uninstall.Run(t.Context(), o)
			if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "tenants.kubetenant.dev") ||
				len(s.writes) > 0 {
				t.Errorf("--force=%t: %v, writes %q\n%s", force, err, s.writes, strings.Join(out.lines, "\n"))
			}
		}
	}
}
