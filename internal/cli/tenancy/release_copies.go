// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var publications = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications)

// readPublications reads the sources of all Publications into published. If the
// CustomResourceDefinition is not installed, published is empty. It includes the sources of
// invalid Publications, because their copies remain.
func (r *Release) readPublications(ctx context.Context) error {
	r.published = map[string]publication.Source{}
	list, err := r.Objects.Resource(publications).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return refusal(err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		from, _, _ := unstructured.NestedMap(u.Object, "spec", "from")
		field := func(name string) string {
			text, _ := from[name].(string)
			return text
		}
		r.published[u.GetName()] = publication.Source{
			Kind:      schema.FromAPIVersionAndKind(field("apiVersion"), field("kind")),
			Namespace: field("namespace"),
			Name:      field("name"),
		}
	}
	return nil
}

// isPublished reports whether a Publication refers to an object.
func (r *Release) isPublished(o *unstructured.Unstructured) bool {
	for _, from := range r.published {
		if from.Kind.GroupKind() == o.GroupVersionKind().GroupKind() && from.Namespace == o.GetNamespace() &&
			from.Name == o.GetName() {
			return true
		}
	}
	return false
}

// isCopy reports whether an object is a copy that an existing Publication created. The labels
// alone do not prove this, so isCopy also compares the kind and the name with the source.
func (r *Release) isCopy(o *unstructured.Unstructured) bool {
	from, exists := r.published[o.GetLabels()[tenant.PublicationLabel]]
	_, managed := o.GetLabels()[tenant.ManagedLabel]
	return exists && managed && from.Kind.GroupKind() == o.GroupVersionKind().GroupKind() && from.Name == o.GetName()
}
