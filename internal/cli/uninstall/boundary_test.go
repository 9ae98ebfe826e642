// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
)

// installedWith returns the installed cluster with additional objects.
func installedWith(objects ...string) string {
	return installed() + "\n---\n" + strings.Join(objects, "\n---\n")
}

// TestSystemNamespaces checks that a system namespace with a tenant's label is not treated as a
// namespace of that tenant. The bindings of the control plane remain.
func TestSystemNamespaces(t *testing.T) {
	controller := fmt.Sprintf(crb, "'system:controller:job', labels: {kubernetes.io/bootstrapping: rbac-defaults}",
		"{kind: ServiceAccount, name: job-controller, namespace: kube-system}")
	prometheus := fmt.Sprintf(crb, "prometheus", "{kind: ServiceAccount, name: prometheus, namespace: monitoring}")
	s := newServer(t, installedWith(
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
	for key, want := range map[string]bool{
		"clusterrolebindings /system:controller:job": true,
		"rolebindings kube-system/dns":               true,
		"rolebindings kube-system/theirs":            false,
	} {
		t.Run(key, func(t *testing.T) {
			if got := s.objects["rbac.authorization.k8s.io/v1/"+key] != nil; got != want {
				t.Errorf("%s remains: %t, want %t", key, got, want)
			}
		})
	}
	if !out.contains("namespace kube-system has the label of tenant acme") {
		t.Errorf("no warning\n%s", strings.Join(out.lines, "\n"))
	}
	// The tenant may have written a configuration in its own namespace. The command must not read
	// system namespaces from it.
	if s.objects["rbac.authorization.k8s.io/v1/clusterrolebindings /prometheus"] != nil {
		t.Error("the configuration in a namespace with a tenant's label was used")
	}
}

// TestPublishedSystemNamespaces checks that the system namespaces in the published configuration
// belong to the system tenant, even if they have a tenant's label.
func TestPublishedSystemNamespaces(t *testing.T) {
	s := newServer(t, installedWith(
		"{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {kubetenant.dev/tenant: acme}}}",
		fmt.Sprintf(crb, "prometheus", "{kind: ServiceAccount, name: prometheus, namespace: monitoring}")))
	s.publish("kube-system", "authorization: {systemNamespaces: [kube-system, monitoring]}")
	o, out := options(t, s)
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("clusterrolebindings /prometheus")) != 1 {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
}

// TestUpstreamBindings checks that a binding that kube-apiserver created is never changed. If it
// grants rights to tenants' callers, the command fails before the servers are changed.
func TestUpstreamBindings(t *testing.T) {
	for name, c := range map[string]struct{ metadata, subjects string }{
		"group of a tenant": {"", "{kind: Group, name: 'system:masters'}, {kind: Group, name: 'tenant:acme'}"},
		"scope annotation": {
			", annotations: {kubetenant.dev/scope: 'Callers:acme'}",
			"{kind: Group, name: 'system:masters'}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installedWith(fmt.Sprintf(crb,
				"cluster-admin, labels: {kubernetes.io/bootstrapping: rbac-defaults}"+c.metadata, c.subjects)))
			o, out := options(t, s)
			err := uninstall.Run(t.Context(), o)
			if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "cluster-admin") ||
				out.contains("Step 3") ||
				len(s.writes) > 0 {
				t.Errorf("%v, writes %q", err, s.writes)
			}
			o.Force = true
			if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("clusterrolebindings /cluster-admin")) != 1 ||
				!strings.Contains(s.state(), "system:masters") {
				t.Errorf("with --force: %v\n%s", err, strings.Join(out.lines, "\n"))
			}
		})
	}
}

// TestForeignDefinitions checks that a CustomResourceDefinition of another project, and the
// objects of its kind, are not deleted, even with Force.
func TestForeignDefinitions(t *testing.T) {
	for _, compiledIn := range []bool{true, false} {
		s := newServer(t, installed())
		s.compiledIn = compiledIn
		u := s.objects["apiextensions.k8s.io/v1/customresourcedefinitions /tenants.kubetenant.dev"]
		u.Object["spec"] = map[string]any{
			"group": "kubetenant.dev",
			"scope": "Namespaced",
			"names": map[string]any{"plural": "tenants", "kind": "Tenant"},
		}
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

// foreignFinalizer is a finalizer that a tenant's caller may set on an object.
const foreignFinalizer = "[acme.example.com/hold]"

// TestForeignFinalizers checks that a finalizer that a tenant's caller set on an object of
// kubetenant does not block the command. Objects of other kinds retain their finalizers.
func TestForeignFinalizers(t *testing.T) {
	s := newServer(t, installedWith(
		"{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: held, namespace: acme--web, finalizers: "+
			foreignFinalizer+"}}",
		"{apiVersion: kubetenant.dev/v1alpha1, kind: TenantMembers, metadata: {name: acme, finalizers: "+
			foreignFinalizer+"}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: acme--web, finalizers: "+foreignFinalizer+"}}"))
	o, out := options(t, s)
	// The objects remain, because a server may still run.
	if err := uninstall.Run(t.Context(), o); err != nil || out.contains("held") {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	s.compiledIn = false
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("accessgrants.kubetenant.dev")) > 0 {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	u := s.objects["v1/configmaps acme--web/held"]
	if u == nil || len(u.GetFinalizers()) != 1 {
		t.Error("an object of another kind lost its finalizer")
	}
}

// TestBlockingObjects checks that the error names the objects that block the deletion of their
// CustomResourceDefinitions.
func TestBlockingObjects(t *testing.T) {
	s := newServer(t, installedWith("{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: stays, "+
		"namespace: acme--web}}"))
	s.compiledIn = false
	s.undeletable = "accessgrants.kubetenant.dev"
	o, _ := options(t, s)
	err := uninstall.Run(t.Context(), o)
	if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "acme--web/stays") {
		t.Error(err)
	}
}

// TestOwnersAfterTheWait checks that a namespace that gets a tenant during the wait is treated as
// a tenant's namespace afterward.
func TestOwnersAfterTheWait(t *testing.T) {
	s := newServer(t, installedWith(fmt.Sprintf(crb, "late", "{kind: ServiceAccount, name: default, namespace: late}")))
	o, out := options(t, s)
	o.Wait = true
	o.CheckServers = func(context.Context) (*uninstall.Servers, error) {
		if out.contains("Step 5") {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.compiledIn = false
			s.put(object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: late, labels: {kubetenant.dev/tenant: acme}}}"))
			return &uninstall.Servers{Without: []string{"a"}}, nil
		}
		return &uninstall.Servers{Mode: installation.CompiledIn, With: []string{"a"}}, nil
	}
	if err := uninstall.Run(t.Context(), o); err != nil || len(s.names("clusterrolebindings /late")) > 0 {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
}

// TestTenantsServiceNamespace checks that the command neither reads nor deletes objects of the
// service in a namespace that a tenant owns.
func TestTenantsServiceNamespace(t *testing.T) {
	s := newServer(t, installedWith(
		"{apiVersion: v1, kind: Namespace, metadata: {name: kubetenant-system, labels: {kubetenant.dev/tenant: acme}}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: forged, namespace: kubetenant-system, labels: "+
			"{app.kubernetes.io/name: kubetenant-webhook}}}"))
	s.compiledIn = false
	o, out := options(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := uninstall.Run(ctx, o); err != nil || len(s.names("/deployments kubetenant-system/kubetenant-webhook")) == 0 {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
}

// TestPodsThatStay checks that the wait for the Pods of the service times out. The error names the
// Pods.
func TestPodsThatStay(t *testing.T) {
	s := newServer(
		t,
		installedWith("{apiVersion: v1, kind: Pod, metadata: {name: stuck, namespace: kubetenant-system, labels: "+
			"{app.kubernetes.io/name: kubetenant-webhook}}}"),
	)
	s.compiledIn = false
	o, _ := options(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := uninstall.Run(ctx, o)
	if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "kubetenant-system/stuck") {
		t.Error(err)
	}
}

// object parses an object in YAML.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
