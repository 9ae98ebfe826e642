// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/plugins/request"
	"github.com/kubetenant/kubetenant/tenant"
)

// newRequestedStack returns a stack for a cluster in which acme owns the namespace acme--web.
func newRequestedStack(t *testing.T) *stack.Stack {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := namespaces.Add(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "acme--web", Labels: map[string]string{tenant.Label: "acme"}},
	}); err != nil {
		t.Fatal(err)
	}
	settings := &configv1alpha1.Settings{}
	settings.Admission.Binding.Kinds = []configv1alpha1.BindingKind{{Group: "example.com", Kind: "Application"}}
	stack, err := stack.New(t.Context(), settings,
		stack.Server{Cluster: lookuptest.OwnedBy(authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// admitWrite runs a write through the plugins of a stack and of a cluster, as a server does, and
// returns the rejection. cluster changes the object as other plugins of the cluster would, and
// webhook changes it as a webhook would. After webhook, all plugins run again.
func admitWrite(
	ctx context.Context, of []stack.Plugin, a admission.Attributes, cluster, webhook func(runtime.Object),
) error {
	for range 2 {
		for i, p := range of {
			m, mutates := p.Interface.(admission.MutationInterface)
			if mutates && p.Handles(a.GetOperation()) {
				if err := m.Admit(ctx, a, nil); err != nil {
					return err
				}
			}
			if i == 0 {
				cluster(a.GetObject())
			}
		}
		webhook(a.GetObject())
		a.GetReinvocationContext().SetIsReinvoke()
	}
	for _, p := range of {
		if v, validates := p.Interface.(admission.ValidationInterface); validates && p.Handles(a.GetOperation()) {
			if err := v.Validate(ctx, a, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// inRequest calls do with the context of a request that has passed the filters of the stack.
func inRequest(stack *stack.Stack, method string, do func(context.Context)) {
	stack.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { do(r.Context()) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/", nil))
}

// TestPluginsCheckRequestedObject checks that the plugins check the object that the client sent,
// and not later changes by the cluster, for each kind of write.
func TestPluginsCheckRequestedObject(t *testing.T) {
	stack := newRequestedStack(t)
	if first := stack.Admission[0]; first.Name != request.Name || !first.First {
		t.Fatalf("the first plugin is %s", first.Name)
	}
	for _, p := range stack.Admission[1:] {
		if p.First {
			t.Errorf("%s is first too", p.Name)
		}
	}
	const key = "billing.example.com/cost-centre"
	pool := func(o runtime.Object) { o.(*corev1.Pod).Spec.NodeSelector = map[string]string{"pool": "x"} }
	scheduler := func(o runtime.Object) { o.(*corev1.Pod).Spec.SchedulerName = "other" }
	label := func(o runtime.Object) { o.(*corev1.Namespace).Labels[key] = "42" }
	nothing := func(runtime.Object) {}
	pod := func(change func(runtime.Object)) runtime.Object {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "acme--web"}}
		change(pod)
		return pod
	}
	namespace := func(change func(runtime.Object)) runtime.Object {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "acme--new",
			Labels: map[string]string{
				tenant.Label:                         "acme",
				"pod-security.kubernetes.io/enforce": "baseline",
			},
		}}
		change(ns)
		return ns
	}
	for name, c := range map[string]struct {
		is, was          runtime.Object
		cluster, webhook func(runtime.Object)
		refused          string
	}{
		"pod changed by the cluster":             {pod(nothing), nil, pool, scheduler, ""},
		"pod changed by the client":              {pod(pool), nil, nothing, nothing, "spec.nodeSelector[pool]"},
		"pod changed by both":                    {pod(pool), nil, pool, scheduler, "spec.nodeSelector[pool]"},
		"pod update changed by the cluster":      {pod(nothing), pod(nothing), pool, scheduler, ""},
		"pod update changed by the client":       {pod(scheduler), pod(nothing), pool, nothing, "spec.schedulerName"},
		"namespace changed by the cluster":       {namespace(nothing), nil, label, nothing, ""},
		"namespace changed by a webhook":         {namespace(nothing), nil, nothing, label, ""},
		"namespace changed by the client":        {namespace(label), nil, nothing, nothing, key},
		"namespace changed by both":              {namespace(label), nil, label, nothing, key},
		"namespace update changed by a webhook":  {namespace(nothing), namespace(nothing), nothing, label, ""},
		"namespace update changed by the client": {namespace(label), namespace(nothing), nothing, nothing, key},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch} {
				var err error
				inRequest(stack, method, func(ctx context.Context) {
					err = admitWrite(ctx, stack.Admission, writeBy(c.is.DeepCopyObject(), c.was), c.cluster, c.webhook)
				})
				if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%s by %s: %v, want %q", name, method, err, c.refused)
				}
			}
			// Without the first plugin, the plugins attribute the cluster's changes to the client.
			var err error
			inRequest(stack, http.MethodPost, func(ctx context.Context) {
				err = admitWrite(ctx, stack.Admission[1:], writeBy(c.is.DeepCopyObject(), c.was), c.cluster, c.webhook)
			})
			if err == nil {
				t.Errorf("%s: admitted although the requested object is not recorded", name)
			}
			if err = admitWrite(t.Context(), stack.Admission, writeBy(c.is.DeepCopyObject(), c.was),
				c.cluster, c.webhook); err == nil {
				t.Errorf("%s: admitted without the filters of the stack", name)
			}
		})
	}
}

func writeBy(newObj, oldObj runtime.Object) admission.Attributes {
	caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	kind, resource, namespace, name := "Pod", "pods", "acme--web", "x"
	if _, isNamespace := newObj.(*corev1.Namespace); isNamespace {
		kind, resource, namespace, name = "Namespace", "namespaces", "acme--new", "acme--new"
	}
	op, gv := admission.Create, corev1.SchemeGroupVersion
	if oldObj != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(
		newObj,
		oldObj,
		gv.WithKind(kind),
		namespace,
		name,
		gv.WithResource(resource),
		"",
		op,
		nil,
		false,
		caller,
	)
}

// TestWebhookDoesNotChangeIdentity checks that the recorded identity of an object changes if the
// client changes the object, but not if only a webhook changes it.
func TestWebhookDoesNotChangeIdentity(t *testing.T) {
	stack := newRequestedStack(t)
	const bobs = `{"user":"bob","tenant":"acme"}`
	application := func(size string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Application",
			"metadata": map[string]any{
				"name":        "x",
				"namespace":   "acme--web",
				"labels":      map[string]any{tenant.Label: "acme"},
				"annotations": map[string]any{tenant.IdentityAnnotation: bobs},
			},
			"spec": map[string]any{"size": size},
		}}
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Application"}
	caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	for sent, kept := range map[string]bool{"1": true, "2": false} {
		t.Run(sent, func(t *testing.T) {
			obj := application(sent)
			a := admission.NewAttributesRecord(obj, application("1"), kind, "acme--web", "x",
				kind.GroupVersion().WithResource("applications"), "", admission.Update, nil, false, caller)
			var err error
			inRequest(stack, http.MethodPut, func(ctx context.Context) {
				err = admitWrite(ctx, stack.Admission, a, func(runtime.Object) {}, func(o runtime.Object) {
					_ = unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, "x", "spec", "injected")
				})
			})
			if got := obj.GetAnnotations()[tenant.IdentityAnnotation]; err != nil || (got == bobs) != kept {
				t.Errorf("size %s: %v, identity %s", sent, err, got)
			}
		})
	}
}
