package v1alpha1_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// client is a dynamic client of a cluster that holds some objects;
// dynamic.NewForConfig makes a live one's.
func client(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants): "AccessGrantList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
	}, objects...)
}

// The kinds have Go types and no generated client: the dynamic one writes and reads them.
func ExampleAccessGrant() {
	grant := &v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Name: "prices", Namespace: "globex--shop"},
		Spec: v1alpha1.AccessGrantSpec{
			From: v1alpha1.AccessGrantFrom{Tenant: "acme", Groups: []string{"tenant:acme"}},
			To: []v1alpha1.AccessGrantRule{{
				APIGroups:     []string{""},
				Resources:     []string{"configmaps"},
				ResourceNames: []string{"prices"},
				Verbs:         []string{"get"},
			}},
		},
	}
	if errs := v1alpha1.ValidateAccessGrant(grant); len(errs) > 0 { // the server does too
		fmt.Println(errs.ToAggregate())
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(grant)
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := client().Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)).
		Namespace(grant.Namespace).
		Create(context.Background(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	read, err := v1alpha1.AccessGrantOf(made)
	if err != nil {
		fmt.Println(err)
		return
	}
	// it counts unless the server says that it refuses it
	fmt.Println(read.Spec.From.Tenant, read.Spec.To[0].ResourceNames, read.Accepted())
	// Output:
	// acme [prices] true
}

func ExampleTenantQuota() {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.TenantQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindTenantQuota},
		ObjectMeta: metav1.ObjectMeta{Name: "acme"},
		Spec: v1alpha1.TenantQuotaSpec{
			Tenant: "acme",
			Hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")},
		},
		Status: v1alpha1.TenantQuotaStatus{Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stored, err := client(&unstructured.Unstructured{Object: content}).
		Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
		Get(context.Background(), "acme", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var quota v1alpha1.TenantQuota
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &quota); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s uses %s of %s pods\n", quota.Spec.Tenant, quota.Status.Used.Pods(), quota.Spec.Hard.Pods())
	// Output:
	// acme uses 7 of 100 pods
}
