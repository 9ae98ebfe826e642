// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Prepare reads the data that is needed to publish an object, and rejects an object that cannot be
// published. It writes nothing. The error may wrap [tenancy.ErrRefused] or [tenancy.ErrMissing].
func (p *Publisher) Prepare(ctx context.Context, o *Object) error {
	kind := o.Content.GroupVersionKind()
	mapping, err := p.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w: the server does not know the kind %s of %s: check apiVersion and kind",
			tenancy.ErrRefused, kind.GroupKind(), kind.GroupVersion())
	case err != nil:
		return err
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return fmt.Errorf("%w: %s is cluster-scoped: only objects in a namespace can be published",
			tenancy.ErrRefused, kind.GroupKind())
	}
	o.mapping = mapping
	if err := p.checkNamespace(ctx, o); err != nil {
		return err
	}
	stored, err := p.stored(ctx, o)
	switch {
	case err != nil:
		return err
	case stored != nil:
		if _, ok := stored.GetAnnotations()[tenant.PublishAnnotation]; ok {
			return errAnnotated(o)
		}
	case o.Stored:
		return fmt.Errorf("%w: %s does not exist", tenancy.ErrMissing, described(o.Content))
	}
	if o.Stored {
		o.Content = stored
	}
	if _, ok := o.Content.GetAnnotations()[tenant.PublishAnnotation]; ok {
		return errAnnotated(o)
	}
	rules, err := p.rules(o)
	if err != nil {
		return err
	}
	if _, err := rules.Content(o.Content, nil); err != nil {
		return fmt.Errorf("%w: %s: %w", tenancy.ErrRefused, described(o.Content), err)
	}
	return o.setPublication(&p.Spec)
}

// errAnnotated returns an error for an object that its own annotation already publishes.
func errAnnotated(o *Object) error {
	return fmt.Errorf("%w: the annotation %s of %s already publishes it: change or remove the annotation",
		tenancy.ErrRefused, tenant.PublishAnnotation, described(o.Content))
}

// rules returns the rules in the server's configuration. If these are unknown, it returns rules
// that allow the object's kind, provided that a configuration may add this kind.
func (p *Publisher) rules(o *Object) (*publication.Rules, error) {
	known := func(r schema.GroupResource) bool { return r == o.mapping.Resource.GroupResource() }
	if p.Rules != nil {
		rules := *p.Rules
		rules.Namespaced = known
		return &rules, nil
	}
	kind := publication.Kind{
		Kind:     o.mapping.GroupVersionKind.GroupKind(),
		Resource: o.mapping.Resource.Resource,
	}
	if err := publication.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", tenancy.ErrRefused, described(o.Content), err)
	}
	return &publication.Rules{Kinds: []publication.Kind{kind}, Namespaced: known}, nil
}

// checkNamespace returns an error if an object is in a tenant's namespace.
func (p *Publisher) checkNamespace(ctx context.Context, o *Object) error {
	name := o.Content.GetNamespace()
	if slices.Contains(p.System, name) {
		return nil
	}
	ns, err := p.Metadata.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %s: %w", name, tenancy.ErrMissing)
	case err != nil:
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	if owner, labeled := ns.Labels[tenant.Label]; labeled && owner != tenant.System().String() {
		return fmt.Errorf("%w: namespace %s belongs to tenant %s: put the object in a namespace of the system tenant",
			tenancy.ErrRefused, name, owner)
	}
	return nil
}

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

func publicationKind() schema.GroupKind {
	return v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindPublication).GroupKind()
}

// setPublication creates the Publication for an object from the given spec.
func (o *Object) setPublication(spec *v1alpha1.PublicationSpec) (err error) {
	kind := o.mapping.GroupVersionKind
	source := publication.Source{Kind: kind, Namespace: o.Content.GetNamespace(), Name: o.Content.GetName()}
	o.publication = &v1alpha1.Publication{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1alpha1.SchemeGroupVersion.String(),
			Kind:       v1alpha1.KindPublication,
		},
		ObjectMeta: metav1.ObjectMeta{Name: publication.NameFor(source)},
		Spec:       *spec.DeepCopy(),
	}
	o.publication.Spec.From = v1alpha1.PublicationSource{
		APIVersion: kind.GroupVersion().String(),
		Kind:       kind.Kind,
		Namespace:  source.Namespace,
		Name:       source.Name,
	}
	o.parsed, err = publication.Parse(o.publication)
	return err
}
