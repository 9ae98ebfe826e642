// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package yamlfile_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
)

// TestMarshal checks that Marshal omits creationTimestamp and status, and separates the
// documents.
func TestMarshal(t *testing.T) {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Now()},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	got, err := yamlfile.Marshal(ns, ns)
	one := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\nspec: {}\n"
	if err != nil || got != one+"---\n"+one {
		t.Errorf("%v:\n%s", err, got)
	}
}
