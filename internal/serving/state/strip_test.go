// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestStripKeepsLimits checks that stripUnused retains the annotations with the scope and the
// expiry of bindings, and the annotation that holds Pods in a namespace.
func TestStripKeepsLimits(t *testing.T) {
	of := metav1.ObjectMeta{
		Name: "b",
		Annotations: map[string]string{
			tenant.ExpiresAnnotation: "2020-01-01T00:00:00Z",
			tenant.ScopeAnnotation:   "acme",
			"example.com/long":       "x",
		},
	}
	for key, obj := range map[string]metav1.Object{
		tenant.ExpiresAnnotation: &rbacv1.RoleBinding{ObjectMeta: *of.DeepCopy()},
		tenant.ScopeAnnotation:   &rbacv1.ClusterRoleBinding{ObjectMeta: *of.DeepCopy()},
	} {
		t.Run(key, func(t *testing.T) {
			kept, err := stripUnused(obj)
			if err != nil || kept.(metav1.Object).GetAnnotations()[key] != of.Annotations[key] {
				t.Errorf("%T: %v, %v; want %s kept", obj, kept, err, key)
			}
		})
	}
	ends := &rbacv1.ClusterRoleBinding{ObjectMeta: *of.DeepCopy()}
	if kept, err := stripUnused(ends); err != nil ||
		kept.(metav1.Object).GetAnnotations()[tenant.ExpiresAnnotation] == "" {
		t.Errorf("ClusterRoleBinding: %v, %v; want the expiry", kept, err)
	}
	if kept, err := stripUnused(&rbacv1.RoleBinding{ObjectMeta: *of.DeepCopy()}); err != nil ||
		len(kept.(metav1.Object).GetAnnotations()) != 1 {
		t.Errorf("RoleBinding: %v, %v; want no other annotation", kept, err)
	}
	held := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "n",
			Annotations: map[string]string{tenant.HeldAnnotation: "true", "example.com/long": "x"},
		},
	}
	if kept, err := stripUnused(held); err != nil || len(kept.(metav1.Object).GetAnnotations()) != 1 ||
		kept.(metav1.Object).GetAnnotations()[tenant.HeldAnnotation] != "true" {
		t.Errorf("Namespace: %v, %v; want only the annotation that holds Pods", kept, err)
	}
}
