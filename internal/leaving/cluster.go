// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// FindingsInCluster returns the findings about the objects of a live cluster. It lists the
// objects in pages, and writes nothing. unchecked contains an error for each kind that could not
// be listed completely. Findings about such a kind may be missing.
func FindingsInCluster(
	ctx context.Context, k kube.Interface, systemNamespaces []string,
) (found []Finding, unchecked []error) {
	all := newCollection(systemNamespaces)
	for _, kind := range []struct {
		name string
		list pager.ListPageFunc
	}{
		{"ClusterRoleBindings", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return k.RbacV1().ClusterRoleBindings().List(ctx, o)
		}},
		{"RoleBindings", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return k.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, o)
		}},
		{"Namespaces", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = tenant.Label
			return k.CoreV1().Namespaces().List(ctx, o)
		}},
	} {
		err := pager.New(kind.list).EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			all.add(object)
			return nil
		})
		if err != nil {
			// The cause is not wrapped, so that apierrors.IsForbidden is false for this error.
			unchecked = append(unchecked, fmt.Errorf("%s could not be checked: %s", kind.name, err.Error()))
		}
	}
	return all.findings(), unchecked
}
