// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// ChangesObject reports whether a request changes or deletes one named object in a namespace. It
// returns false for subresources.
func ChangesObject(r *authorizer.AttributesRecord) bool {
	operation, writes := operationOf(r)
	return writes && r.Namespace != "" && r.Name != "" && r.Subresource == "" &&
		(operation == admission.Update || operation == admission.Delete)
}

// ManagedBy returns the source of an object that only the server may change, or "" if other callers
// may change it. It reads the labels of the object. It ignores the labels of a kind that the server
// never manages under any configuration.
func ManagedBy(resource schema.GroupResource, object metav1.Object) string {
	source, ok := object.GetLabels()[tenant.ManagedLabel]
	kind := configv1alpha1.PublicationKind{Group: resource.Group, Kind: resource.Resource, Resource: resource.Resource}
	if !ok || !managed.MayBeManaged(resource) && kind.Check() != nil {
		return ""
	}
	if name := object.GetLabels()[tenant.PublicationLabel]; name != "" {
		return "Publication " + name
	}
	return fmt.Sprintf("%s: %s", tenant.ManagedLabel, source)
}

// stored returns the stored object that the request names, or nil if the object is unknown.
func (q *Query) stored() metav1.Object {
	if q.Write != nil && q.Write.Old != nil {
		if old, err := meta.Accessor(q.Write.Old); err == nil {
			return old
		}
	}
	if q.Stored == nil {
		return nil
	}
	return q.Stored
}

// isPublishable reports whether the configuration allows publishing objects of a resource.
func (q *Query) isPublishable(resource schema.GroupResource) bool {
	return slices.ContainsFunc(q.Config.Admission.Publication.Kinds, func(k configv1alpha1.PublicationKind) bool {
		return k.Group == resource.Group && k.Resource == resource.Resource
	})
}

// ManagedRefusal returns why the caller may not change the stored object. It returns "" if the
// caller may change the object, or if the object is unknown. It also returns "" in a terminating
// namespace, in which any caller with the RBAC right to delete the object may delete it.
func (q *Query) ManagedRefusal() string {
	object := q.stored()
	if object == nil || !ChangesObject(&q.Request) || q.User.GetName() == tenant.ManagerUser {
		return ""
	}
	if q.Snapshot != nil {
		if ns := q.Snapshot.Namespaces[q.Request.Namespace]; ns != nil && ns.DeletionTimestamp != nil {
			return ""
		}
	}
	source := ManagedBy(q.resourceVersion("").GroupResource(), object)
	switch {
	case source == "":
		return ""
	case object.GetLabels()[tenant.PublicationLabel] != "":
		return fmt.Sprintf("the object is a copy of the platform's %s, and only the server may change it: change the source "+
			"or the Publication instead", source)
	}
	return fmt.Sprintf("the object belongs to the server (%s), and only the server may change it: change the Tenant, its "+
		"TenantMembers or the NamespaceTemplate instead", source)
}
