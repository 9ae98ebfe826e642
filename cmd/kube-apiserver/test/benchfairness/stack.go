// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/apiserver"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// mode is one of the two kinds of server that are compared.
type mode struct {
	name string
	// wrap returns the dispatcher that the filter uses instead of upstream's.
	wrap func(flowcontrol.Interface) flowcontrol.Interface
	// wrapHandler adds the outermost filter.
	wrapHandler func(http.Handler) http.Handler
}

// newModes returns upstream's dispatcher without and with the wrapper of the compiled-in server.
// Both modes have the outermost filter of the compiled-in server, so that they differ only in the
// wrapper. The tenants have no limits.
func newModes(ctx context.Context) (upstream, compiledIn mode, err error) {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, id := range []string{quietTenant, noisyTenant} {
		if err := namespaces.Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(id), Labels: map[string]string{tenant.Label: id}},
		}); err != nil {
			return mode{}, mode{}, err
		}
	}
	store, err := newTenants(ctx)
	if err != nil {
		return mode{}, mode{}, err
	}
	fair, err := stack.New(ctx, &configv1alpha1.Settings{}, stack.Server{Cluster: (&lookup.Parts{
		Owners:  authz.NewOwners(corelisters.NewNamespaceLister(namespaces).Get, nil),
		Tenants: store,
	}).Cluster()})
	if err != nil {
		return mode{}, mode{}, err
	}
	upstream = mode{
		name:        "upstream",
		wrap:        func(next flowcontrol.Interface) flowcontrol.Interface { return next },
		wrapHandler: fair.WithRequestState,
	}
	compiledIn = mode{
		name:        "compiled in",
		wrap:        func(next flowcontrol.Interface) flowcontrol.Interface { return apiserver.FlowByTenant(next, fair) },
		wrapHandler: fair.WithRequestState,
	}
	return upstream, compiledIn, nil
}

// newTenants returns a store with the Tenant objects of both tenants. Each Tenant specifies the
// priority level.
func newTenants(ctx context.Context) (*tenants.Store, error) {
	lists := map[schema.GroupVersionResource]string{}
	for resource, list := range map[string]string{
		v1alpha1.ResourceTenants:            "TenantList",
		v1alpha1.ResourceNamespaceTemplates: "NamespaceTemplateList",
		v1alpha1.ResourceTenantMembers:      "TenantMembersList",
		v1alpha1.ResourcePublications:       "PublicationList",
		v1alpha1.ResourceRetiredTenants:     "RetiredTenantList",
	} {
		lists[v1alpha1.SchemeGroupVersion.WithResource(resource)] = list
	}
	var all []runtime.Object
	for _, id := range []string{quietTenant, noisyTenant} {
		t := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": id, "uid": id},
			"spec":     map[string]any{"id": id, "fairUse": map[string]any{"level": levelName}},
		}}
		t.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Tenant"))
		all = append(all, t)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, all...)
	store, err := tenants.New(client, func(schema.GroupResource) (is, known bool) { return true, true })
	if err != nil {
		return nil, err
	}
	go store.Run(ctx)
	return store, wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, startLimit, true,
		func(context.Context) (bool, error) { return store.HasSynced(), nil })
}
