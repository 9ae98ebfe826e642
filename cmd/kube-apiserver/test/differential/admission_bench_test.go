// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // registers the internal version

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// benchmarkPod returns a Pod of about 2.4 KB of JSON.
func benchmarkPod() *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-5d8c7b9f6d-",
			Namespace:    "acme--web",
			Labels: map[string]string{
				"app.kubernetes.io/name":     "web",
				"app.kubernetes.io/instance": "web-production",
				"pod-template-hash":          "5d8c7b9f6d",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1",
				Kind:       "ReplicaSet",
				Name:       "web-5d8c7b9f6d",
				UID:        "uid",
				Controller: new(bool),
			}},
		},
	}
	*pod.OwnerReferences[0].Controller = true
	for i := range 2 {
		c := corev1.Container{
			Name:  fmt.Sprintf("container-%d", i),
			Image: "registry.example.com/team/service:v1.2.3",
			Args:  []string{"--listen=:8080", "--log-level=info"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			},
		}
		for j := range 6 {
			c.Env = append(c.Env,
				corev1.EnvVar{Name: fmt.Sprintf("SOME_ENVIRONMENT_VARIABLE_%d", j), Value: "some value of an ordinary length"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// BenchmarkAdmission measures all plugins for the creation of a Pod and for an update of a
// ConfigMap. No client is configured, so no plugin uses the network. For comparison, it measures
// upstream's conversion of the Pod, which is the minimum cost of any webhook or policy.
func BenchmarkAdmission(b *testing.B) {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, owner := range map[string]string{"acme--web": "acme", "kube-system": "system"} {
		if err := namespaces.Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}},
		}); err != nil {
			b.Fatal(err)
		}
	}
	owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name:        "web-5d8c7b9f6d",
		Namespace:   "acme--web",
		UID:         "uid",
		Annotations: map[string]string{tenant.OnBehalfOfAnnotation: `{"user":"alice","tenant":"acme"}`},
	}}
	stack, err := kubetenant.New(b.Context(), &configv1alpha1.Settings{}, kubetenant.Config{Cluster: (&lookup.Parts{
		Owners:      authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil),
		Controllers: lookuptest.Controller{Owner: owner},
	}).Cluster()})
	if err != nil {
		b.Fatal(err)
	}
	o := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	internal := func(obj runtime.Object) runtime.Object {
		out, err := legacyscheme.Scheme.ConvertToVersion(obj, schema.GroupVersion{Version: runtime.APIVersionInternal})
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	alice := &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{"dev", "tenant:acme", user.AllAuthenticated},
		Extra:  map[string][]string{tenant.ExtraKey: {"acme"}},
	}
	controller := &user.DefaultInfo{
		Name:  "system:serviceaccount:kube-system:replicaset-controller",
		Extra: map[string][]string{tenant.ExtraKey: {"system"}},
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	pod := internal(benchmarkPod())
	annotated := benchmarkPod()
	annotated.Annotations = map[string]string{
		tenant.WorkloadUserAnnotation: `{"user":"alice","groups":["dev","tenant:acme","system:authenticated"]}`,
	}
	createdPod := internal(annotated)
	for name, c := range map[string]struct {
		pod runtime.Object
		by  user.Info
	}{"by a tenant": {pod, alice}, "by a controller": {createdPod, controller}} {
		b.Run("create a pod, "+name, func(b *testing.B) {
			m, err := apimeta.Accessor(c.pod)
			if err != nil {
				b.Fatal(err)
			}
			annotations, labels := m.GetAnnotations(), m.GetLabels()
			b.ReportAllocs()
			for b.Loop() {
				m.SetAnnotations(annotations)
				m.SetLabels(labels)
				admit(b, stack,
					admission.NewAttributesRecord(c.pod, nil, kind, "acme--web", "", pods, "", admission.Create, nil, false, c.by), o)
			}
		})
	}
	oldObject := internal(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "c",
			Namespace:   "kube-system",
			Annotations: map[string]string{tenant.CreatorAnnotation: "x"},
		},
	})
	newObject := oldObject.DeepCopyObject()
	b.Run("update a ConfigMap in kube-system", func(b *testing.B) {
		a := admission.NewAttributesRecord(
			newObject,
			oldObject,
			corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			"kube-system",
			"c",
			// No plugin changes the ConfigMap, so all iterations use the same object.
			corev1.SchemeGroupVersion.WithResource("configmaps"),
			"",
			admission.Update,
			nil,
			false,
			controller,
		)
		b.ReportAllocs()
		for b.Loop() {
			admit(b, stack, a, o)
		}
	})
	b.Run("upstream's conversion of the pod", func(b *testing.B) {
		b.ReportAllocs()
		a := admission.NewAttributesRecord(pod, nil, kind, "acme--web", "", pods, "", admission.Create, nil, false, alice)
		for b.Loop() {
			if _, err := admission.NewVersionedAttributes(a, kind, o); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func admit(b *testing.B, stack *kubetenant.Stack, a admission.Attributes, o admission.ObjectInterfaces) {
	if err := stack.Admission.(admission.MutationInterface).Admit(b.Context(), a, o); err != nil {
		b.Fatal(err)
	}
	if err := stack.Admission.(admission.ValidationInterface).Validate(b.Context(), a, o); err != nil {
		b.Fatal(err)
	}
}
