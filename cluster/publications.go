// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// sourceTimeout is the maximum duration of each read in [admissionObjects.PublicationSource] and
// [admissionObjects.PublicationRole].
const sourceTimeout = 2 * time.Second

// PublicationSource implements [lookup.Objects].
func (o *admissionObjects) PublicationSource(
	ctx context.Context, from *publication.Source, resource schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	u, err := o.cluster.Dynamic.Resource(resource).Namespace(from.Namespace).Get(ctx, from.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}

// PublicationRole implements [lookup.Objects].
func (o *admissionObjects) PublicationRole(
	ctx context.Context, u *unstructured.Unstructured,
) (*publication.Role, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	return publication.RoleOf(ctx, o.cluster.Typed.RbacV1(), u)
}

// SelectedLabel implements [lookup.Objects].
func (o *admissionObjects) SelectedLabel(key string) string { return o.selectors.Reason(key) }

// DefaultPriority implements [lookup.Objects].
func (o *admissionObjects) DefaultPriority(name string) bool { return o.defaultPriority(name) }
