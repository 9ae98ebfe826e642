// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestLabelsOfControlledObjects checks that an object with a controller is denied if it has a wrong
// label. If the label were rewritten, the object would not match the selector of its controller,
// and the controller would create objects again and again.
func TestLabelsOfControlledObjects(t *testing.T) {
	p := label.New(owner)
	controller := metav1.OwnerReference{
		APIVersion: "apps/v1",
		Kind:       "ReplicaSet",
		Name:       "x",
		UID:        "u",
		Controller: new(true),
	}
	other := metav1.OwnerReference{
		APIVersion: "v1",
		Kind:       "ConfigMap",
		Name:       "x",
		UID:        "u",
	}
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		label  string
		passes bool
	}{
		"the owner's label":                   {[]metav1.OwnerReference{controller}, "a", true},
		"another label":                       {[]metav1.OwnerReference{controller}, "b", false},
		"no label":                            {[]metav1.OwnerReference{controller}, "", true},
		"another label without a controller":  {nil, "b", true},
		"another label, owned by a ConfigMap": {[]metav1.OwnerReference{other}, "b", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				GenerateName:    "x-",
				Namespace:       "a--web",
				OwnerReferences: c.owners,
				Labels:          map[string]string{"app": "x"},
			}}
			if c.label != "" {
				pod.Labels[tenant.Label] = c.label
			}
			a := admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "a--web", "",
				corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false,
				&user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"})
			err := p.Admit(t.Context(), a, nil)
			if err == nil {
				err = p.Validate(t.Context(), a, nil)
			}
			if (err == nil) != c.passes || c.passes && pod.Labels[tenant.Label] != "a" {
				t.Errorf("%v, %v", pod.Labels, err)
			}
		})
	}
}
