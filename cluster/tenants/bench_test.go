// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// BenchmarkBoundary measures authorization decisions, without and with Tenant objects. The
// callers belong to 10,000 tenants and send requests to their own namespaces.
func BenchmarkBoundary(b *testing.B) {
	const count = 10_000
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	var objects []runtime.Object
	var asked []*authorizer.AttributesRecord
	for i := range count {
		id := fmt.Sprintf("t%d", i)
		if err := indexer.Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: id + "--web", Labels: map[string]string{tenant.Label: id}},
		}); err != nil {
			b.Fatal(err)
		}
		objects = append(objects, object(id, id, nil))
		asked = append(asked, &authorizer.AttributesRecord{
			User: &user.DefaultInfo{
				Name:   "alice",
				Groups: []string{tenant.GroupPrefix + id, user.AllAuthenticated},
				Extra:  map[string][]string{tenant.ExtraKey: {id}},
			},
			Verb:            "get",
			Resource:        "pods",
			Name:            "p",
			APIVersion:      "v1",
			Namespace:       id + "--web",
			ResourceRequest: true,
		})
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		resource: "TenantList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):       "PublicationList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):     "RetiredTenantList",
		definitions: "CustomResourceDefinitionList",
	}, objects...)
	store, err := tenants.New(client, func(schema.GroupResource) (bool, bool) { return true, true })
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go store.Run(ctx)
	for !store.HasSynced() {
		time.Sleep(10 * time.Millisecond)
	}
	owners := authz.NewOwners(corelisters.NewNamespaceLister(indexer).Get, nil)
	for _, c := range []struct {
		name   string
		access func(tenant.ID) authz.Access
	}{{"without Tenants", nil}, {"with Tenants", store.Access}} {
		boundary := authz.New(authz.Options{
			Subjects: &authz.Subjects{Names: &tenant.SystemNames{}, Owners: owners},
			Owners:   owners,
			Access:   c.access,
		}, nil, nil)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, _, _ = boundary.Authorize(ctx, asked[i*7919%count])
			}
		})
	}
	b.Run("only Access", func(b *testing.B) {
		var ids []tenant.ID
		for i := range count {
			id, err := tenant.Parse(fmt.Sprintf("t%d", i))
			if err != nil {
				b.Fatal(err)
			}
			ids = append(ids, id)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			store.Access(ids[i*7919%count])
		}
	})
}
