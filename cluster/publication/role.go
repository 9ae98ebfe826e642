// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// RoleOf reads the Role or ClusterRole that a RoleBinding references. It returns nil if u is not a
// RoleBinding, or if the role does not exist.
func RoleOf(ctx context.Context, roles rbacclient.RbacV1Interface, u *unstructured.Unstructured) (*Role, error) {
	if u.GroupVersionKind().GroupKind() != rbacv1.SchemeGroupVersion.WithKind("RoleBinding").GroupKind() {
		return nil, nil
	}
	var b rbacv1.RoleBinding
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b); err != nil {
		return nil, err
	}
	var out Role
	var err error
	switch b.RoleRef.Kind {
	case "ClusterRole":
		var role *rbacv1.ClusterRole
		if role, err = roles.ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{}); err == nil {
			out = Role{Rules: role.Rules, Aggregated: role.AggregationRule != nil}
		}
	case "Role":
		var role *rbacv1.Role
		if role, err = roles.Roles(u.GetNamespace()).Get(ctx, b.RoleRef.Name, metav1.GetOptions{}); err == nil {
			out = Role{Rules: role.Rules}
		}
	default:
		return nil, fmt.Errorf("roleRef.kind: must be ClusterRole or Role")
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the %s %s: %w", b.RoleRef.Kind, b.RoleRef.Name, err)
	}
	return &out, nil
}
