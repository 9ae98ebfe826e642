// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// copyFiles copies a configuration, the tokens and the revocations into the folder of a server.
func copyFiles(t *testing.T, dir, config string) {
	t.Helper()
	for from, to := range map[string]string{
		config:         "upgrade.yaml",
		"tokens.csv":   "upgrade-tokens.csv",
		"revoked.yaml": "upgrade-revoked.yaml",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// kubectl runs kubectl as the administrator.
func (p *controlPlane) kubectl(t *testing.T, address string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{
		"--kubeconfig", p.Kubeconfig("admin"), "--server", "https://" + address, "--cache-dir", t.TempDir(),
	}, args...)
	out, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBETENANT_BIN"), "kubectl"), args...).
		CombinedOutput()
	return string(out), err
}

func resource(group, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
}

func tenantResource(name string) schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(name)
}

// prepare applies testdata/objects.yaml and deletes the Tenant umbrella. It waits until the
// Tenant no longer exists, and until the copies from a NamespaceTemplate and a Publication
// exist. It then calls pinDenials.
func (p *controlPlane) prepare(t *testing.T, address string, all []*request) {
	t.Helper()
	waittest.Within(t, waitLimit, func() error { // admission must first observe the referenced objects
		if out, err := p.kubectl(t, address, "apply", "-f", "testdata/objects.yaml"); err != nil {
			return errors.New(out)
		}
		return nil
	})
	c := admin(t, p.Server, address)
	client := dynamicClient(t, c)
	if err := client.Resource(tenantResource(v1alpha1.ResourceTenants)).Delete(t.Context(), "umbrella",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, waitLimit, func() error {
		_, err := client.Resource(tenantResource(v1alpha1.ResourceTenants)).Get(t.Context(), "umbrella", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Tenant umbrella exists: %w", err)
		}
		for _, copied := range []string{"from-template", "notice"} {
			_, err := client.Resource(resource("", "configmaps")).Namespace("acme--web").Get(t.Context(), copied,
				metav1.GetOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	pinDenials(t, c, all)
}

// pinDenials sends each request that must be denied, and makes the status code of the response
// the only expected code. The code is 401 or 403, depending on the deployment mode.
func pinDenials(t *testing.T, c *rest.Config, all []*request) {
	t.Helper()
	denials := []int{http.StatusUnauthorized, http.StatusForbidden}
	for _, r := range all {
		if slices.Contains(denials, r.want[0]) {
			r.want = denials
		}
	}
	awaitAnswers(t, c, all)
	for _, r := range all {
		if !slices.Equal(r.want, denials) {
			continue
		}
		code, body, err := answer(t.Context(), sender(t, c, r.token, true), c.Host, r)
		if err != nil || !slices.Contains(denials, code) {
			t.Fatalf("%s: %d %s: %v", r.name, code, body, err)
		}
		r.want = []int{code}
	}
}

// awaitAnswers waits until each request gets one of its expected status codes.
func awaitAnswers(t *testing.T, c *rest.Config, all []*request) {
	t.Helper()
	for _, r := range all {
		client := sender(t, c, r.token, true)
		waittest.Within(t, waitLimit, func() error {
			code, body, err := answer(t.Context(), client, c.Host, r)
			if err == nil && !slices.Contains(r.want, code) {
				err = fmt.Errorf("%s: %d %s; want %v", r.name, code, body, r.want)
			}
			return err
		})
	}
}

// snapshot returns the content of each object. The keys consist of resource, namespace and name.
// Status and changing metadata are removed.
func snapshot(t *testing.T, client dynamic.Interface) map[string]map[string]any {
	t.Helper()
	kinds := []schema.GroupVersionResource{
		resource("", "namespaces"), resource("", "configmaps"), resource("", "serviceaccounts"),
		resource("rbac.authorization.k8s.io", "roles"), resource("rbac.authorization.k8s.io", "rolebindings"),
		resource("rbac.authorization.k8s.io", "clusterroles"),
		resource("rbac.authorization.k8s.io", "clusterrolebindings"),
	}
	for _, name := range v1alpha1.ResourceNames() {
		if name != v1alpha1.ResourceTenantUsages { // the servers update them every minute
			kinds = append(kinds, tenantResource(name))
		}
	}
	all := map[string]map[string]any{}
	for _, kind := range kinds {
		list, err := client.Resource(kind).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%v: %v", kind, err)
		}
		if len(list.Items) == 0 {
			t.Errorf("no %s are stored", kind.Resource)
		}
		for i := range list.Items {
			o := &list.Items[i]
			// The servers write the first two when they start. Upstream's controllers create the
			// other two without the tenant label, and a server adds the label when it starts.
			if slices.Contains([]string{"kubetenant-configuration", "kubetenant-swept", "kube-root-ca.crt", "default"},
				o.GetName()) {
				continue
			}
			delete(o.Object, "status")
			for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			all[strings.Join([]string{kind.Resource, o.GetNamespace(), o.GetName()}, "/")] = o.Object
		}
	}
	return all
}

// compare checks that every object of before still exists with the same content. The servers may
// add rules to their own ClusterRoles.
func compare(t *testing.T, phase string, before, after map[string]map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if strings.HasPrefix(name, "clusterroles//kubetenant:") && after[name] != nil {
			removeAdded(t, before[name], after[name])
		}
		if difference := cmp.Diff(before[name], after[name]); difference != "" {
			t.Errorf("%s: %s (-before +after):\n%s", phase, name, difference)
		}
	}
}

// removeAdded removes the rules of a ClusterRole that it did not have before.
func removeAdded(t *testing.T, before, after map[string]any) {
	t.Helper()
	known, _, err := unstructured.NestedSlice(before, "rules")
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := unstructured.NestedSlice(after, "rules")
	if err != nil {
		t.Fatal(err)
	}
	rules = slices.DeleteFunc(rules, func(rule any) bool {
		return !slices.ContainsFunc(known, func(k any) bool { return cmp.Equal(k, rule) })
	})
	if err := unstructured.SetNestedSlice(after, rules, "rules"); err != nil {
		t.Fatal(err)
	}
}
