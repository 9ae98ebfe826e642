// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fewNamespaces is the number of selected namespaces in the second measurement.
const fewNamespaces = 999

// publications measures the time until one object is copied to all namespaces, and the time until
// two objects are copied to 999 namespaces. It also measures the number of writes that the server
// makes without changes.
func (b *bench) publications(ctx context.Context) error {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	for _, source := range []struct {
		of   schema.GroupVersionResource
		text string
	}{
		{configMaps, `{ apiVersion: v1, kind: ConfigMap, metadata: { name: settings }, data: { a: "${tenant}" } }`},
		{secrets, `{ apiVersion: v1, kind: Secret, metadata: { name: registry }, stringData: { a: b } }`},
		{
			bindings,
			`{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: support },
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:discovery },
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: support } ] }`,
		},
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(source.text), &u.Object); err != nil {
			return err
		}
		if _, err := b.dynamic.Resource(source.of).Namespace("default").Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	all := b.tenants * perTenant
	if err := b.publishing(ctx, "one object", all, map[string]map[string]any{
		"settings": {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"},
	}, map[string]any{"all": true}); err != nil {
		return err
	}
	var ids []any
	for t := range fewNamespaces / perTenant {
		ids = append(ids, fmt.Sprintf("t%d", t))
	}
	if err := b.publishing(ctx, "a Secret and a RoleBinding", fewNamespaces, map[string]map[string]any{
		"registry": {"apiVersion": "v1", "kind": "Secret", "name": "registry"},
		"support":  {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "name": "support"},
	}, map[string]any{"ids": ids}); err != nil {
		return err
	}
	before, err := b.settled(ctx)
	if err != nil {
		return err
	}
	time.Sleep(quiet)
	after, err := b.written(ctx)
	fmt.Printf("nothing changes for %s: %.0f writes\n", quiet, after-before)
	return err
}

// settled waits until the server's controllers have written nothing for ten seconds. It returns the
// number of writes until then.
func (b *bench) settled(ctx context.Context) (float64, error) {
	began := time.Now()
	for before := -1.0; ; {
		now, err := b.written(ctx)
		switch {
		case err != nil:
			return 0, err
		case now == before:
			fmt.Printf("no write since %s\n", time.Since(began).Round(time.Second))
			return now, nil
		}
		before = now
		time.Sleep(10 * time.Second)
	}
}

// publishing creates Publications of objects in the namespace default. It prints how long it took
// until the copies were in all selected namespaces.
func (b *bench) publishing(
	ctx context.Context, what string, namespaces int, sources map[string]map[string]any, tenants map[string]any,
) error {
	client := b.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications))
	wrote, err := b.written(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for name, from := range sources {
		from["namespace"] = "default"
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion,
			"kind":       v1alpha1.KindPublication,
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"from": from, "tenants": tenants},
		}}
		if _, err := client.Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for name := range sources {
		for {
			u, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			current, _, _ := unstructured.NestedInt64(u.Object, "status", "current")
			if int(current) >= namespaces {
				break
			}
			time.Sleep(time.Second)
		}
	}
	fmt.Printf("%s published into %d namespaces with the label %s, ", what, namespaces, tenant.Label)
	return b.tellWrites(ctx, began, wrote)
}
