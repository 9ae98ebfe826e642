// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Claim is a template of PersistentVolumeClaims in an object. A controller creates claims from it.
// A Claim MUST NOT be changed.
type Claim struct {
	// Path is the path of the template in the object, in the format of field errors.
	Path string
	// Key identifies the template in the object, in any position of a list.
	Key  string
	Meta *metav1.ObjectMeta
	Spec *corev1.PersistentVolumeClaimSpec
}

// Claims returns the templates of claims in a StatefulSet and in ephemeral volumes.
func (o *Object) Claims() ([]Claim, error) {
	var claims []Claim
	for _, t := range o.Templates {
		for i := range t.Spec.Volumes {
			if ephemeral := t.Spec.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil {
				template := ephemeral.VolumeClaimTemplate
				claims = append(claims, Claim{
					t.Field(fmt.Sprintf("spec.volumes[%d].ephemeral.volumeClaimTemplate", i)),
					t.Field("volume " + t.Spec.Volumes[i].Name),
					&template.ObjectMeta,
					&template.Spec,
				})
			}
		}
	}
	set, ok := o.typed.(*appsv1.StatefulSet)
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()
	u, untyped := o.stored.(runtime.Unstructured)
	if untyped && u.GetObjectKind().GroupVersionKind().GroupKind() == kind {
		set = &appsv1.StatefulSet{}
		ok = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), set); err != nil {
			return nil, fmt.Errorf("%w: %w", errTemplate, err)
		}
	}
	if ok {
		for i := range set.Spec.VolumeClaimTemplates {
			template := &set.Spec.VolumeClaimTemplates[i]
			claims = append(claims, Claim{
				fmt.Sprintf("spec.volumeClaimTemplates[%d]", i), "template " + template.Name, &template.ObjectMeta, &template.Spec,
			})
		}
	}
	return claims, nil
}
