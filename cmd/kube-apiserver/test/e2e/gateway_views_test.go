// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// pageTenancy is the configuration of the gateway that runs the sessions of docs/gateway.md,
// without its section views.
const pageTenancy = certificatesConfig + `gateway:
  clusters:
  - name: local
    root: true
    tenants: ["*", system]
    reader: { kubeConfigFile: kubetenant-gateway-reader.kubeconfig }
    impersonator: { kubeConfigFile: kubetenant-gateway-impersonator.kubeconfig }
`

// viewsOfPage returns the YAML of the views in docs/gateway.md, indented for the configuration's
// section gateway.
func viewsOfPage(t *testing.T, page string) string {
	t.Helper()
	_, section, found := strings.Cut(page, "## Views of cluster-scoped objects\n")
	_, block, opened := strings.Cut(section, "   ```yaml\n")
	block, _, closed := strings.Cut(block, "   ```\n")
	if !found || !opened || !closed {
		t.Fatal("the page has no section of views")
	}
	var out strings.Builder
	for line := range strings.Lines(block) {
		out.WriteString("  " + strings.TrimPrefix(line, "   "))
	}
	return out.String()
}

// objectsAreViewed checks that a tenant can get, list and watch the parts of cluster-scoped objects
// that belong to its namespace, and nothing of another tenant's namespace.
func objectsAreViewed(t *testing.T, s *server) {
	s.mustKubectl(t, "admin", "apply", "-f", "../../../../examples/manifests/trackers-definition.yaml")
	admin := s.dynamic(t, "admin")
	source := admin.Resource(schema.GroupVersionResource{
		Group:    "core.oam.dev",
		Version:  "v1beta1",
		Resource: "resourcetrackers",
	})
	tracker := trackerIn("shop", "acme--web", "globex--shop")
	waittest.Until(t, func() error { // until the server serves the custom resource
		_, err := source.Create(t.Context(), tracker, metav1.CreateOptions{})
		return err
	})
	if _, err := source.Create(t.Context(), trackerIn("theirs", "globex--shop"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	view := viewOf(t, viewConfig(t, s, "acme"), "acme--web")
	waittest.Until(t, func() error { // until the aggregated role takes effect
		list, err := view.List(t.Context(), metav1.ListOptions{})
		if err == nil && namesIn(list) != "shop" {
			err = errors.New(namesIn(list))
		}
		return err
	})
	one, err := view.Get(t.Context(), "shop", metav1.GetOptions{})
	entries, _, _ := unstructured.NestedSlice(one.Object, "spec", "managedResources")
	if err != nil || len(entries) != 1 || strings.Contains(fmt.Sprint(one.Object), "globex") {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := view.Get(t.Context(), "theirs", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("another namespace's object: %v", err)
	}
	foreign := viewOf(t, viewConfig(t, s, "globex"), "acme--web")
	if list, err := foreign.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another tenant: %v, %v", list, err)
	}
	if err := view.Delete(t.Context(), "shop", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a deletion: %v", err)
	}
	only, err := metadata.NewForConfig(viewConfig(t, s, "acme"))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := only.Resource(viewResource).Namespace("acme--web").List(t.Context(),
		metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "shop" {
		t.Errorf("metadata: %v, %v", list, err)
	}
	objectsAreWatched(t, s, source)
}

// objectsAreWatched checks that watches and informers get an event when an object gains or loses
// its last entry in the namespace.
func objectsAreWatched(t *testing.T, s *server, source dynamic.ResourceInterface) {
	client := dynamicClient(t, viewConfig(t, s, "acme"))
	informer := dynamicinformer.NewFilteredDynamicInformer(client, viewResource, "acme--web", 0, cache.Indexers{}, nil)
	go informer.Informer().Run(t.Context().Done())
	awaitKeys := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			if got := strings.Join(informer.Informer().GetStore().ListKeys(), " "); got != want {
				return fmt.Errorf("the informer has %q, want %q", got, want)
			}
			return nil
		})
	}
	awaitKeys("acme--web/shop")
	view := viewOf(t, viewConfig(t, s, "acme"), "acme--web")
	list, err := view.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := view.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for _, step := range []struct {
		namespaces []string
		want       watch.EventType
	}{
		{[]string{"globex--shop"}, watch.Deleted},
		{[]string{"acme--web"}, watch.Added},
		{[]string{"acme--web", "acme--web"}, watch.Modified},
	} {
		now, err := source.Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now.Object["spec"] = trackerIn("shop", step.namespaces...).Object["spec"]
		if _, err := source.Update(t.Context(), now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		e, ok := <-events.ResultChan()
		if !ok || e.Type != step.want || strings.Contains(fmt.Sprint(e.Object), "globex") {
			t.Fatalf("%v: %+v, want %s", step.namespaces, e, step.want)
		}
		if step.want == watch.Deleted {
			awaitKeys("")
		}
	}
	awaitKeys("acme--web/shop")
}

var viewResource = schema.GroupVersionResource{
	Group:    "gateway.kubetenant.dev",
	Version:  "v1alpha1",
	Resource: "resourcetrackers",
}

// viewConfig returns the client configuration that the named caller uses to read views.
func viewConfig(t *testing.T, s *server, name string) *rest.Config {
	t.Helper()
	c := s.config(t, name)
	c.Host = strings.TrimSuffix(c.Host, "/") + "/clusters/local/gateway"
	return c
}

func viewOf(t *testing.T, c *rest.Config, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client := dynamicClient(t, c)
	return client.Resource(viewResource).Namespace(namespace)
}

func namesIn(list *unstructured.UnstructuredList) string {
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return strings.Join(names, " ")
}

// trackerIn returns a ResourceTracker with one entry for each of the given namespaces.
func trackerIn(name string, namespaces ...string) *unstructured.Unstructured {
	entries := []any{}
	for _, namespace := range namespaces {
		entries = append(entries, map[string]any{"kind": "Secret", "namespace": namespace, "name": "of-" + name})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.oam.dev/v1beta1",
		"kind":       "ResourceTracker",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"type": "versioned", "managedResources": entries},
	}}
}
