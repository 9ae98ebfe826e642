// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned"
	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned/fake"
	"github.com/kubetenant/kubetenant/tenant/client/informers/externalversions"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// suspendAll suspends the tenants whose Tenant objects have the label of a customer.
func suspendAll(ctx context.Context, clients versioned.Interface, customer string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	lister := factory.Kubetenant().V1alpha1().Tenants().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := ctx.Err(); err != nil {
		return err // the context ended before the cache was filled
	}
	tenants, err := lister.List(labels.SelectorFromSet(labels.Set{"example.com/customer": customer}))
	if err != nil {
		return err
	}
	patch := []byte(`{"spec":{"suspension":"Closed"}}`)
	for _, t := range tenants {
		_, err := clients.KubetenantV1alpha1().Tenants().Patch(ctx, t.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return err
		}
	}
	return nil
}

// This example uses the generated clients, informers and listers.
func Example() {
	customer := func(id, name string) *v1alpha1.Tenant {
		meta := metav1.ObjectMeta{Name: id, Labels: map[string]string{"example.com/customer": name}}
		return &v1alpha1.Tenant{ObjectMeta: meta, Spec: v1alpha1.TenantSpec{ID: id}}
	}
	ctx := context.Background()
	clients := fake.NewSimpleClientset(customer("acme", "blue"), customer("globex", "green"))
	if err := suspendAll(ctx, clients, "blue"); err != nil {
		fmt.Println(err)
		return
	}
	tenants, err := clients.KubetenantV1alpha1().Tenants().List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range tenants.Items {
		fmt.Printf("%s %q\n", tenants.Items[i].Name, tenants.Items[i].Spec.Suspension)
	}
	// Output:
	// acme "Closed"
	// globex ""
}
