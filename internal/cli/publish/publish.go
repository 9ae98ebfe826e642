// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package publish writes an object of the system tenant with its Publication. The server copies
// the object to tenants' namespaces, and the package predicts the action in each namespace.
package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fieldManager is the field manager of applied objects.
const fieldManager = "kubectl-tenant"

var publications = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications)

// Publisher publishes objects.
type Publisher struct {
	// Objects and Metadata are clients for the cluster.
	Objects  dynamic.Interface
	Metadata metadata.Interface
	// Mapper maps kinds to the resources of the cluster.
	Mapper meta.RESTMapper
	// Rules are the rules in the server's configuration. If nil, the rules are unknown. In this
	// case, only the server can determine whether a kind that a configuration must add can be
	// published.
	Rules *publication.Rules
	// System contains the namespaces that always belong to the system tenant, even if their labels
	// name another tenant.
	System []string
	// Writing specifies how objects are written.
	tenancy.Writing
	// Spec is the spec of each Publication, except spec.from.
	Spec v1alpha1.PublicationSpec
}

// Object is an object to publish.
type Object struct {
	// Content is the object. It MUST have a name and a namespace.
	Content *unstructured.Unstructured
	// Stored specifies that the object is already in the cluster, so that only the Publication is
	// written.
	Stored bool

	mapping     *meta.RESTMapping
	applied     *unstructured.Unstructured // the result of the server-side apply
	publication *v1alpha1.Publication
	parsed      *publication.Publication
}

// Publication returns the Publication of the object, or nil before [Publisher.Prepare].
func (o *Object) Publication() runtime.Object {
	if o.publication == nil {
		return nil
	}
	return o.publication
}

// Try validates the writes of [Publisher.Publish] with a server-side dry run.
func (p *Publisher) Try(ctx context.Context, o *Object) error {
	trial := *p
	trial.Writing = tenancy.Writing{DryRun: []string{metav1.DryRunAll}}
	return trial.Publish(ctx, o)
}

// Publish writes an object and its Publication. [Publisher.Prepare] must be called first. The error
// wraps [tenancy.ErrRefused] if the server rejects a write.
func (p *Publisher) Publish(ctx context.Context, o *Object) error {
	if !o.Stored {
		if err := p.apply(ctx, o); err != nil {
			return err
		}
	}
	return p.write(ctx, o)
}

// apply writes the object itself with a server-side apply.
func (p *Publisher) apply(ctx context.Context, o *Object) error {
	objects := p.Objects.Resource(o.mapping.Resource).Namespace(o.Content.GetNamespace())
	stored, err := objects.Get(ctx, o.Content.GetName(), metav1.GetOptions{})
	verb := output.Configured
	switch {
	case apierrors.IsNotFound(err):
		verb = output.Created
	case err != nil:
		return p.refused(o, err)
	}
	applied, err := objects.Apply(ctx, o.Content.GetName(), o.Content,
		metav1.ApplyOptions{FieldManager: fieldManager, DryRun: p.DryRun})
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %s has fields that another program manages: %s: change the object with that program, and "+
			"publish it as KIND/NAME", tenancy.ErrRefused, described(o.Content), oneLine(err))
	case err != nil:
		return p.refused(o, err)
	}
	o.applied = applied
	if verb == output.Configured && sameContent(stored, applied) {
		verb = output.Unchanged
	}
	p.Changes.Print(o.mapping.GroupVersionKind.GroupKind(), o.Content.GetName(), verb)
	return nil
}

// sameContent reports whether two versions of an object have the same content. It ignores the
// managed fields and the resource version.
func sameContent(a, b *unstructured.Unstructured) bool {
	bare := func(u *unstructured.Unstructured) map[string]any {
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		return u.Object
	}
	return equality.Semantic.DeepEqual(bare(a), bare(b))
}

// write creates the Publication, or replaces the spec of the existing Publication.
func (p *Publisher) write(ctx context.Context, o *Object) error {
	client := p.Objects.Resource(publications)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.publication)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	u := &unstructured.Unstructured{Object: content}
	verb := output.Created
	_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: fieldManager, DryRun: p.DryRun})
	if apierrors.IsAlreadyExists(err) {
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			stored, err := client.Get(ctx, u.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			same := equality.Semantic.DeepEqual(stored.Object["spec"], u.Object["spec"])
			if verb = output.Unchanged; same && !isUnchecked(stored) {
				return nil
			}
			verb = output.Configured
			if same {
				verb, err = p.confirm(ctx, o, stored)
				return err
			}
			stored.Object["spec"] = u.Object["spec"]
			_, err = client.Update(ctx, stored, metav1.UpdateOptions{FieldManager: fieldManager, DryRun: p.DryRun})
			return err
		})
	}
	if err != nil {
		return p.refused(o, err)
	}
	p.Changes.Print(publicationKind(), u.GetName(), verb)
	return nil
}

// refused adds advice to the error from a write. The result wraps [tenancy.ErrRefused] if the
// server rejected the write.
func (p *Publisher) refused(o *Object, err error) error {
	status := apierrors.APIStatus(nil)
	switch {
	case apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Name == "":
		return fmt.Errorf("%w: the CustomResourceDefinition %s is not installed: see docs/install.md",
			tenancy.ErrRefused, publications.GroupResource())
	case errors.Is(err, tenancy.ErrRefused):
		return err
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return fmt.Errorf("%w: publish %s: %s", tenancy.ErrRefused, described(o.Content), oneLine(err))
	}
	return fmt.Errorf("publish %s: %w", described(o.Content), err)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// described returns the kind, the namespace and the name of an object as text.
func described(u *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
}

// stored returns the stored version of an object, or nil if the object does not exist.
func (p *Publisher) stored(ctx context.Context, o *Object) (*unstructured.Unstructured, error) {
	u, err := p.Objects.Resource(o.mapping.Resource).Namespace(o.Content.GetNamespace()).
		Get(ctx, o.Content.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: you may not publish an object that you may not read: %s",
			tenancy.ErrRefused, oneLine(err))
	}
	return u, err
}

// decodedTenant returns a Tenant's ID, and the labels that the Tenant specifies for its
// namespaces. It returns the zero ID if the Tenant or its ID is invalid.
func decodedTenant(u *unstructured.Unstructured) (tenant.ID, map[string]v1alpha1.LabelValue) {
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return tenant.ID{}, nil
	}
	id, err := tenant.Parse(t.Spec.ID)
	if err != nil {
		return tenant.ID{}, nil
	}
	return id, t.Spec.Namespaces.Labels
}
