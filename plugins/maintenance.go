// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/tenant"
)

// IsMaintenance reports whether an update changes only finalizers and fields that the server itself
// writes. These fields are managedFields, resourceVersion, the deletion fields and [tenant.Label].
func IsMaintenance(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update {
		return false
	}
	oldObj, oldErr := withoutMaintenanceFields(a.GetOldObject())
	newObj, err := withoutMaintenanceFields(a.GetObject())
	return oldErr == nil && err == nil && equality.Semantic.DeepEqual(oldObj, newObj)
}

func withoutMaintenanceFields(obj runtime.Object) (runtime.Object, error) {
	if obj == nil {
		return nil, ErrObject
	}
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	m.SetFinalizers(nil)
	labels := maps.Clone(m.GetLabels())
	delete(labels, tenant.Label)
	if len(labels) == 0 {
		labels = nil // an unstructured object distinguishes a missing map from an empty map
	}
	m.SetLabels(labels)
	m.SetManagedFields(nil)
	m.SetResourceVersion("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	return obj, nil
}
