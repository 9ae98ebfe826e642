package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
)

// sourceTimeout bounds the reads of a source in [Cluster.PublicationSource].
const sourceTimeout = 2 * time.Second

// PublicationSource reads the object that a Publication copies from the server. It returns nil if the
// object does not exist.
func (c *Cluster) PublicationSource(
	ctx context.Context, from *publication.Source, resource schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	u, err := c.Dynamic.Resource(resource).Namespace(from.Namespace).Get(ctx, from.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}

// PublicationRole is [publication.RoleOf] with the roles of the server.
func (c *Cluster) PublicationRole(ctx context.Context, u *unstructured.Unstructured) (*publication.Role, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	return publication.RoleOf(ctx, c.Typed.RbacV1(), u)
}
