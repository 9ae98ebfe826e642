// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
)

// TestFinalizersOfUnreadableObjects checks that the finalizers of an object that cannot be read
// may be removed while the object is being deleted. The plugin changes nothing in the object and
// denies all other updates.
func TestFinalizersOfUnreadableObjects(t *testing.T) {
	broken := func(template string, finalizers ...string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}}
		u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		u.SetFinalizers(finalizers)
		u.SetDeletionTimestamp(new(metav1.NewTime(time.Unix(1, 0))))
		return u
	}
	for name, c := range map[string]struct {
		is, was *unstructured.Unstructured
		passes  bool
	}{
		"a finalizer is removed":                             {broken("x"), broken("x", "example.com/x"), true},
		"the template is changed":                            {broken("y"), broken("x"), false},
		"a finalizer is removed and the template is changed": {broken("y"), broken("x", "example.com/x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
			a := admission.NewAttributesRecord(c.is, c.was, kind, "a--web", "x",
				appsv1.SchemeGroupVersion.WithResource("deployments"), "", admission.Update, nil, false, alice)
			before := c.is.DeepCopy()
			if err := (&fakeCluster{}).admit(t, a); (err == nil) != c.passes {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(before, c.is); diff != "" {
				t.Errorf("%s", diff)
			}
		})
	}
}
