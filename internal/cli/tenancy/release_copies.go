package tenancy

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var publications = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications)

// readPublications reads which objects are published. It finds none if the kind is not installed.
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
		stored, err := typed.Decode[v1alpha1.Publication](&list.Items[i])
		if err != nil {
			continue // the server ignores it
		}
		if p, err := publication.Parse(stored); err == nil {
			r.published[p.Name] = p.From
		}
	}
	return nil
}

// isCopy reports whether an object is the copy of an existing Publication. Labels alone do not show
// that.
func (r *Release) isCopy(o *unstructured.Unstructured) bool {
	from, exists := r.published[o.GetLabels()[tenant.PublicationLabel]]
	_, managed := o.GetLabels()[tenant.ManagedLabel]
	return exists && managed && from.Kind.GroupKind() == o.GroupVersionKind().GroupKind() && from.Name == o.GetName()
}
