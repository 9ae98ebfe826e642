// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/test/waittest"
)

var accessGrants = schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "accessgrants"}

// grantOf returns an AccessGrant of globex for acme's callers.
func grantOf(name string, verbs []any, resources ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubetenant.dev/v1alpha1",
		"kind":       "AccessGrant",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"from": map[string]any{"tenant": "acme", "groups": []any{"tenant:acme"}},
			"to":   []any{map[string]any{"apiGroups": []any{""}, "resources": resources, "verbs": verbs}},
		},
	}}
}

// grantsFixture contains a server and the clients that the tests of AccessGrants use.
type grantsFixture struct {
	s             *server
	acme          *kubernetes.Clientset
	globex, admin dynamic.Interface
}

func (w *grantsFixture) grants() dynamic.ResourceInterface {
	return w.globex.Resource(accessGrants).Namespace("globex--shop")
}

// tryRead reports whether acme may list ConfigMaps of globex. It returns any error except 403.
// A grant that ends during the request can cause another error.
func (w *grantsFixture) tryRead(t *testing.T) (bool, error) {
	_, err := w.acme.CoreV1().ConfigMaps("globex--shop").List(t.Context(), metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil, err
}

// mayRead reports whether acme may list ConfigMaps of globex. Any error except 403 fails the test.
func (w *grantsFixture) mayRead(t *testing.T) bool {
	t.Helper()
	allowed, err := w.tryRead(t)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

func (w *grantsFixture) awaitReads(t *testing.T, want bool) {
	t.Helper()
	waittest.Until(t, func() error {
		allowed, err := w.tryRead(t)
		if err == nil && allowed != want {
			err = fmt.Errorf("reads: %t", allowed)
		}
		return err
	})
}

const grantRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: granter, labels: { rbac.authorization.k8s.io/aggregate-to-admin: "true" } }
rules: [ { apiGroups: [kubetenant.dev], resources: [accessgrants, accessgrants/status], verbs: ["*"] } ]
`

// TestGrants checks that an AccessGrant applies to no request that is sent after the grant was
// deleted or narrowed, or has expired. It also checks that a grant cannot exceed the rights of
// its grantor.
func TestGrants(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	// A later tenant may then own a namespace of the same name.
	s.write(t, "tenancy.yaml", s.read(t, "tenancy.yaml")+"admission: { namespace: { namespacePrefix: None } }\n")
	// Wait for the reload of the configuration, because it interrupts requests that a grant allows.
	waittest.Until(t, func() error { return newVersions(t, s, "tenancy.yaml", "success", 1) })
	s.prepare(t)
	s.apply(t, grantRights)
	w := &grantsFixture{
		s:      s,
		acme:   s.client(t, "acme"),
		globex: s.dynamic(t, "globex"),
		admin:  s.dynamic(t, "admin"),
	}
	if w.mayRead(t) {
		t.Fatal("acme reads without a grant")
	}
	create := func(t *testing.T, g *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		t.Helper()
		var created *unstructured.Unstructured
		var err error
		waittest.Until(t, func() error { // the role and the custom resource take effect after a delay
			created, err = w.grants().Create(t.Context(), g, metav1.CreateOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !isAdmission(err) {
				return err
			}
			return nil
		})
		return created, err
	}
	t.Run("announced grants", func(t *testing.T) { testAnnounced(t, w, create) })
	t.Run("deleted grant", func(t *testing.T) {
		for range 5 {
			if _, err := create(t, grantOf("read", []any{"get", "list"}, "configmaps")); err != nil {
				t.Fatal(err)
			}
			w.awaitReads(t, true)
			if err := w.grants().Delete(t.Context(), "read", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if w.mayRead(t) {
				t.Fatal("the next request after the removal was allowed")
			}
		}
	})
	t.Run("narrowed grant", func(t *testing.T) {
		created, err := create(t, grantOf("narrow", []any{"get", "list"}, "configmaps"))
		if err != nil {
			t.Fatal(err)
		}
		w.awaitReads(t, true)
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // the server also writes the status
			fresh, err := w.grants().Get(t.Context(), created.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			fresh.Object["spec"] = grantOf("", []any{"get"}, "configmaps").Object["spec"]
			_, err = w.grants().Update(t.Context(), fresh, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if w.mayRead(t) {
			t.Error("the next request after the change was allowed")
		}
		_ = w.grants().Delete(t.Context(), "narrow", metav1.DeleteOptions{})
	})
	t.Run("expired grant", func(t *testing.T) {
		g := grantOf("short", []any{"get", "list"}, "configmaps")
		expires := time.Now().Add(8 * time.Second).UTC().Truncate(time.Second) // long enough for a busy server
		_ = unstructured.SetNestedField(g.Object, expires.Format(time.RFC3339), "spec", "expires")
		if _, err := create(t, g); err != nil {
			t.Fatal(err)
		}
		w.awaitReads(t, true)
		time.Sleep(time.Until(expires)) // the server runs on the same machine, so it has the same clock
		if w.mayRead(t) {
			t.Error("allowed after the grant expired")
		}
		waittest.Until(t, func() error {
			got, err := w.grants().Get(t.Context(), "short", metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
			if len(conditions) != 1 || conditions[0].(map[string]any)["status"] != "True" {
				return fmt.Errorf("status %v", got.Object["status"])
			}
			return nil
		})
		_ = w.grants().Delete(t.Context(), "short", metav1.DeleteOptions{})
	})
	t.Run("grant that exceeds the grantor's rights", func(t *testing.T) {
		for _, g := range []*unstructured.Unstructured{
			grantOf("x", []any{"create"}, "nodes"),
			grantOf("x", []any{"escalate"}, "configmaps"),
			grantOf("x", []any{"create"}, "bindings"),
		} {
			if _, err := create(t, g); !isAdmission(err) {
				t.Errorf("%v: %v", g.Object["spec"], err)
			}
		}
	})
	t.Run("invalid grants", func(t *testing.T) { invalidGrantsAreRejected(t, w) })
	t.Run("grantor that has lost its rights", func(t *testing.T) { grantEndsWithGrantorsRight(t, w, create) })
	t.Run("another owner", func(t *testing.T) { grantsEndWithTheNamespace(t, w, create) })
}

func isAdmission(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), " cannot ")
}

// invalidGrantsAreRejected checks that the server rejects invalid AccessGrants, even from the
// admin.
func invalidGrantsAreRejected(t *testing.T, w *grantsFixture) {
	admin := w.admin.Resource(accessGrants).Namespace("globex--shop")
	for name, change := range map[string][]any{
		"wildcard verb": {
			[]any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"*"}}}, "spec", "to",
		},
		"impersonation": {
			[]any{map[string]any{"apiGroups": []any{""}, "resources": []any{"users"}, "verbs": []any{"Impersonate"}}},
			"spec",
			"to",
		},
		"subresource of namespaces": {
			[]any{map[string]any{"apiGroups": []any{""}, "resources": []any{"namespaces/status"}, "verbs": []any{"get"}}},
			"spec",
			"to",
		},
		"no users or groups": {map[string]any{"tenant": "acme"}, "spec", "from"},
		"system tenant":      {map[string]any{"tenant": "SYSTEM", "users": []any{"x"}}, "spec", "from"},
		"invalid tenant ID":  {map[string]any{"tenant": "a b", "users": []any{"x"}}, "spec", "from"},
	} {
		g := grantOf("bad", []any{"get"}, "configmaps")
		path := []string{}
		for _, p := range change[1:] {
			path = append(path, p.(string))
		}
		if err := unstructured.SetNestedField(g.Object, change[0], path...); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Create(t.Context(), g, metav1.CreateOptions{}); err == nil {
			t.Errorf("%s was admitted", name)
		}
	}
}

// grantEndsWithGrantorsRight checks that a grant no longer applies after its grantor has lost the
// granted rights. The test changes the grant, because the server otherwise checks the rights only
// periodically.
func grantEndsWithGrantorsRight(
	t *testing.T,
	w *grantsFixture,
	create func(*testing.T, *unstructured.Unstructured) (*unstructured.Unstructured, error),
) {
	if _, err := create(t, grantOf("lost", []any{"get", "list"}, "configmaps")); err != nil {
		t.Fatal(err)
	}
	w.awaitReads(t, true)
	w.s.mustKubectl(t, "admin", "delete", "clusterrolebinding", "tenant-admin")
	w.s.mustKubectl(t, "admin", "annotate", "-n", "globex--shop", "accessgrants/lost", "look=again")
	w.awaitReads(t, false)
	if out, err := w.s.kubectl(t, "admin", "get", "-n", "globex--shop", "accessgrants/lost"); err != nil ||
		!strings.Contains(out, "False") || !strings.Contains(out, "LAST USED") {
		t.Errorf("get = %v %s", err, out)
	}
	w.s.mustKubectl(t, "admin", "apply", "-f", "../../../../examples/manifests/tenants.yaml")
	if err := w.admin.Resource(accessGrants).Namespace("globex--shop").Delete(t.Context(),
		"lost", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// grantsEndWithTheNamespace checks that grants and role bindings of a deleted namespace do not
// apply to a new namespace of the same name.
func grantsEndWithTheNamespace(
	t *testing.T,
	w *grantsFixture,
	create func(*testing.T, *unstructured.Unstructured) (*unstructured.Unstructured, error),
) {
	if _, err := create(t, grantOf("old", []any{"get", "list"}, "configmaps")); err != nil {
		t.Fatal(err)
	}
	w.s.mustKubectl(t, "globex", "create", "rolebinding", "old", "-n", "globex--shop",
		"--clusterrole=view", "--user=stranger")
	w.awaitReads(t, true)
	w.s.mustKubectl(t, "admin", "delete", "ns", "globex--shop")
	admin := w.s.client(t, "admin")
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "globex--shop", Labels: map[string]string{"kubetenant.dev/tenant": "initech"}},
	}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if w.mayRead(t) {
		t.Error("a grant of the former owner still applies")
	}
	if out, err := w.s.kubectl(t, "globex", "get", "configmaps", "-n", "globex--shop"); err == nil {
		t.Errorf("the former owner reads: %s", out)
	}
	if out, err := w.s.kubectl(t, "admin", "auth", "can-i", "get", "pods", "-n", "globex--shop", "--as=stranger",
		"--as-group=tenant:initech"); err == nil {
		t.Errorf("a binding of the former owner still applies: %s", out)
	}
}

// testAnnounced checks that a tenant's callers can list and watch the grants that are announced
// to their tenant. Requests with other selectors or paths must not return any grant in another
// tenant's namespace.
func testAnnounced(
	t *testing.T,
	w *grantsFixture,
	create func(*testing.T, *unstructured.Unstructured) (*unstructured.Unstructured, error),
) {
	c := w.s.dynamic(t, "acme")
	toAcme := accessgrant.AnnouncedSelector(tenanttest.ID(t, "acme")).String()
	for name, change := range map[string]func(spec map[string]any){
		"announced":     func(spec map[string]any) { spec["announce"] = true },
		"announced-too": func(spec map[string]any) { spec["announce"] = true },
		"not-announced": func(spec map[string]any) { spec["announce"] = false },
		"unset":         func(map[string]any) {},
		"to-another": func(spec map[string]any) {
			spec["announce"], spec["from"] = true, map[string]any{"tenant": "initech", "users": []any{"peter"}}
		},
	} {
		g := grantOf(name, []any{"get"}, "configmaps")
		change(g.Object["spec"].(map[string]any))
		if _, err := create(t, g); err != nil {
			t.Fatal(name, err)
		}
	}
	waittest.Until(t, func() error { // the server writes status.announcedTo after a delay
		list, err := c.Resource(accessGrants).List(t.Context(), metav1.ListOptions{FieldSelector: toAcme})
		if err == nil && len(list.Items) < 2 {
			err = fmt.Errorf("%d grants are announced", len(list.Items))
		}
		return err
	})
	list, err := c.Resource(accessGrants).List(t.Context(), metav1.ListOptions{FieldSelector: toAcme, Limit: 1})
	if err != nil || list.GetContinue() != "" || list.GetRemainingItemCount() != nil {
		t.Fatalf("%v, continue %q", err, list.GetContinue())
	}
	var names []string
	for _, g := range list.Items {
		names = append(names, g.GetNamespace()+"/"+g.GetName())
	}
	if slices.Sort(names); !slices.Equal(names, []string{"globex--shop/announced", "globex--shop/announced-too"}) {
		t.Errorf("announced to acme: %v", names)
	}
	watched, err := c.Resource(accessGrants).Watch(t.Context(),
		metav1.ListOptions{FieldSelector: toAcme, ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for _, step := range []struct {
		name, announce string
		want           watch.EventType
	}{{"unset", "true", watch.Added}, {"announced", "false", watch.Deleted}, {"not-announced", "true", watch.Added}} {
		if _, err := w.grants().Patch(t.Context(), step.name, types.MergePatchType,
			[]byte(`{"spec":{"announce":`+step.announce+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		e := <-watched.ResultChan()
		for e.Type == watch.Modified { // changes of the status
			e = <-watched.ResultChan()
		}
		if u, ok := e.Object.(*unstructured.Unstructured); !ok || e.Type != step.want || u.GetName() != step.name {
			t.Errorf("announce: %s of %s: %v %v", step.announce, step.name, e.Type, e.Object)
		}
	}
	base := "/apis/kubetenant.dev/v1alpha1/"
	for _, path := range []string{
		"accessgrants?fieldSelector=spec.announce%3Dtrue", "accessgrants?fieldSelector=spec.from.tenant%3Dacme",
		"accessgrants?fieldSelector=spec.from.tenant%3Dinitech,spec.announce%3Dtrue",
		"accessgrants?fieldselector=" + url.QueryEscape(toAcme),
		"accessgrants?fieldSelector=spec.announce%3Dtrue&fieldSelector=" + url.QueryEscape(toAcme),
		"watch/accessgrants?timeoutSeconds=1&fieldSelector=" + url.QueryEscape(toAcme),
		"namespaces/globex--shop/accessgrants?fieldSelector=" + url.QueryEscape(toAcme),
		"accessgrants?fieldSelector=" + url.QueryEscape(toAcme) + "&labelSelector=a&labelSelector=b",
	} {
		if body, err := w.acme.RESTClient().Get().RequestURI(base + path).DoRaw(t.Context()); err == nil &&
			bytes.Contains(body, []byte("globex--shop")) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if err := w.grants().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}
