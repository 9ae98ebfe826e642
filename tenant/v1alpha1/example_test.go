// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned/fake"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// The fake clientset is for tests. To connect to a cluster, use versioned.NewForConfig.
func ExampleAccessGrant() {
	grants := fake.NewSimpleClientset().KubetenantV1alpha1().AccessGrants("globex--shop")
	grant := &v1alpha1.AccessGrant{
		ObjectMeta: metav1.ObjectMeta{Name: "prices"},
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
	created, err := grants.Create(context.Background(), grant, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(created.Spec.From.Tenant, created.Spec.To[0].ResourceNames)
	// Output:
	// acme [prices]
}

func ExampleTenantQuota() {
	client := fake.NewSimpleClientset(&v1alpha1.TenantQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "acme"},
		Spec: v1alpha1.TenantQuotaSpec{
			Tenant: "acme",
			Hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")},
		},
		Status: v1alpha1.TenantQuotaStatus{Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}},
	})
	quota, err := client.KubetenantV1alpha1().TenantQuotas().Get(context.Background(), "acme", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s uses %s of %s pods\n", quota.Spec.Tenant, quota.Status.Used.Pods(), quota.Spec.Hard.Pods())
	// Output:
	// acme uses 7 of 100 pods
}
