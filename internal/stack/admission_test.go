// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestReinvocation checks that plugins can run twice for one write, as a server does after a
// webhook changed the object. The second run must not change or reject anything because of the
// first run.
func TestReinvocation(t *testing.T) {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := namespaces.Add(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "acme--web", Labels: map[string]string{tenant.Label: "acme"}},
	}); err != nil {
		t.Fatal(err)
	}
	settings := &configv1alpha1.Settings{}
	settings.Admission.Placement.Defaults = &configv1alpha1.PlacementDefaults{
		NodeSelector: map[string]string{"pool": "acme"},
		Tolerations:  []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}},
	}
	settings.Admission.Attribution.WorkloadUser.Scheduling = &configv1alpha1.WorkloadScheduling{Queue: "root.{tenant}"}
	settings.Admission.Binding.Kinds = []configv1alpha1.BindingKind{
		{Group: "example.com", Kind: "Application", KubeVela: true},
	}
	stack, err := stack.New(t.Context(), settings,
		stack.Server{Cluster: lookuptest.OwnedBy(authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil))})
	if err != nil {
		t.Fatal(err)
	}
	of := func(name, id string) user.Info {
		return &user.DefaultInfo{Name: name, Groups: []string{"dev"}, Extra: map[string][]string{tenant.ExtraKey: {id}}}
	}
	callers := map[string]user.Info{
		"a tenant":          of("alice", "acme"),
		"the system tenant": of("root", "system"),
		"a controller":      of("system:kube-controller-manager", "system"),
	}
	application := func(annotations map[string]any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Application",
			"metadata":   map[string]any{"name": "x", "namespace": "acme--web", "annotations": annotations},
			"spec":       map[string]any{},
		}}
	}
	take := map[string]any{tenant.TakeIdentityAnnotation: "true"}
	was := application(map[string]any{
		tenant.IdentityAnnotation: `{"user":"alice","tenant":"acme"}`,
	}).(*unstructured.Unstructured)
	was.SetLabels(map[string]string{tenant.Label: "acme"})
	takes := was.DeepCopy()
	takes.SetAnnotations(map[string]string{
		tenant.IdentityAnnotation:     `{"user":"alice","tenant":"acme"}`,
		tenant.TakeIdentityAnnotation: "true",
	})
	application1 := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Application"}
	for name, c := range map[string]struct {
		kind    schema.GroupVersionKind
		is, was runtime.Object
	}{
		"a pod": {corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, nil},
		"a Deployment": {
			appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, nil,
		},
		"an application":                         {application1, application(map[string]any{}), nil},
		"an application that takes the identity": {application1, application(take), nil},
		"an update that takes the identity":      {application1, takes, was},
		"an update without changes":              {application1, was.DeepCopy(), was},
		"a Namespace": {
			corev1.SchemeGroupVersion.WithKind("Namespace"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--new", Labels: map[string]string{tenant.Label: "acme"}}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for by, u := range callers {
				t.Run(by, func(t *testing.T) { admitAgain(t, stack, c.kind, c.is.DeepCopyObject(), c.was, u) })
			}
		})
	}
}

func admitAgain(
	t *testing.T,
	stack *stack.Stack,
	kind schema.GroupVersionKind,
	newObj, oldObj runtime.Object,
	u user.Info,
) {
	t.Helper()
	resource := map[string]string{
		"Pod":         "pods",
		"Deployment":  "deployments",
		"Application": "applications",
		"Namespace":   "namespaces",
	}[kind.Kind]
	operation, namespace := admission.Create, "acme--web"
	if oldObj != nil {
		operation = admission.Update
	}
	if kind.Kind == "Namespace" {
		namespace = ""
	}
	a := admission.NewAttributesRecord(
		newObj,
		oldObj,
		kind,
		namespace,
		"x",
		kind.GroupVersion().WithResource(resource),
		"",
		operation,
		nil,
		false,
		u,
	)
	var first runtime.Object
	for range 2 {
		first = newObj.DeepCopyObject()
		for _, p := range stack.Admission {
			if m, ok := p.Interface.(admission.MutationInterface); ok && p.Handles(operation) {
				if err := m.Admit(t.Context(), a, nil); err != nil {
					t.Errorf("%s: %v", p.Name, err)
					return
				}
			}
		}
	}
	if !equalJSON(t, first, newObj) {
		t.Error("the second run changed the object")
	}
	for _, p := range stack.Admission {
		if v, ok := p.Interface.(admission.ValidationInterface); ok && p.Handles(operation) {
			if err := v.Validate(t.Context(), a, nil); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}

func equalJSON(t *testing.T, a, b runtime.Object) bool {
	t.Helper()
	one, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(one, other)
}

// TestWriteUsesOneSnapshot checks that a write is mutated and validated with the same snapshot,
// even if the configuration changes in between.
func TestWriteUsesOneSnapshot(t *testing.T) {
	dir := t.TempDir()
	tenancy := func(level string) map[string]string {
		return map[string]string{
			"tenancy.yaml": "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
				"admission: { namespace: { podSecurity: " + level + " } }\n",
		}
	}
	replace(t, dir, tenancy("baseline"))
	registry := metrics.NewKubeRegistry()
	stack, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: registry.Register})
	if err != nil {
		t.Fatal(err)
	}
	plugin, ok := stack.Admission[1].Interface.(admission.MutationInterface)
	validation, both := stack.Admission[1].Interface.(admission.ValidationInterface)
	if !ok || !both {
		t.Fatalf("%s does not both mutate and validate", stack.Admission[1].Name)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--new"}}
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"a"}}}
	attributes := admission.NewAttributesRecord(ns, nil, corev1.SchemeGroupVersion.WithKind("Namespace"), "", ns.Name,
		corev1.SchemeGroupVersion.WithResource("namespaces"), "", admission.Create, &metav1.CreateOptions{}, false, alice)
	asked := false
	handler := stack.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = true
		if err := plugin.Admit(r.Context(), attributes, nil); err != nil {
			t.Fatal(err)
		}
		replace(t, dir, tenancy("restricted"))
		eventually(t, "the new configuration takes effect", func() bool { return reloads(t, registry, "success") == 1 })
		if err := validation.Validate(r.Context(), attributes, nil); err != nil {
			t.Errorf("the validation did not use the snapshot of the mutation: %v", err)
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces", http.NoBody))
	if err := validation.Validate(t.Context(), attributes, nil); !asked || err == nil {
		t.Error("a later write does not use the new configuration")
	}
}
