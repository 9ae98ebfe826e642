// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// provisions reports whether a template or a Publication provides an object in a namespace.
func (o *pluginOptions) provisions(
	ctx context.Context, namespace string, resource schema.GroupResource, name string,
) (bool, error) {
	return o.cluster.provisions(ctx, o.rules, namespace, resource, name)
}

// mayBePublished reports whether the configuration allows Publications of objects of a
// resource. It returns false for the kinds that can always be published.
func (o *pluginOptions) mayBePublished(resource schema.GroupResource) bool {
	for i := range o.rules.Kinds {
		if k := &o.rules.Kinds[i]; k.Resource == resource.Resource && k.Kind.Group == resource.Group {
			return true
		}
	}
	return false
}

// mayBeManaged reports whether objects of a resource may be managed by the server.
func (o *pluginOptions) mayBeManaged(resource schema.GroupResource) bool {
	return managed.MayBeManaged(resource) || o.mayBePublished(resource)
}

// publishing returns the settings with which TenantManaged checks Publications, or nil if the
// cluster's objects cannot be read.
func (o *pluginOptions) publishing() *managed.Publishing {
	if o.cluster.tenants == nil || o.cluster.objects == nil {
		return nil
	}
	return &managed.Publishing{
		Owner:    o.owner,
		Read:     o.readPublication,
		Resource: o.rules.Resource,
		IsNamed:  o.naming,
		Object: func(ctx context.Context, of *managed.Source) (*unstructured.Unstructured, error) {
			return o.cluster.objects.PublicationSource(ctx, &publication.Source{
				Kind:      of.Kind,
				Namespace: of.Namespace,
				Name:      of.Name,
			}, of.Resource)
		},
		Content: o.publishedContent,
	}
}

// readPublication decodes a Publication for TenantManaged, and checks that its source may be
// published.
func (o *pluginOptions) readPublication(obj runtime.Object) (*managed.Publication, error) {
	stored, err := decode[v1alpha1.Publication](obj)
	if err != nil {
		return nil, err
	}
	p, err := publication.Parse(stored)
	if err != nil {
		return nil, err
	}
	resource, err := o.rules.Resource(p.From.Kind)
	if err != nil {
		return nil, err
	}
	// Some names exclude an object from publication, even if the object does not exist yet.
	placeholder := &unstructured.Unstructured{}
	placeholder.SetGroupVersionKind(p.From.Kind)
	placeholder.SetName(p.From.Name)
	if _, err := o.rules.Content(placeholder, nil); err != nil {
		return nil, err
	}
	return &managed.Publication{
		Source: managed.Source{
			Kind:      p.From.Kind,
			Resource:  resource,
			Namespace: p.From.Namespace,
			Name:      p.From.Name,
		},
		Replace: p.Replace,
	}, nil
}

// naming is [managed.Publishing.IsNamed].
func (o *pluginOptions) naming(of schema.GroupResource, namespace, name string) (named, replace, known bool) {
	naming, known := o.cluster.tenants.PublicationsFrom(namespace, name)
	for _, p := range naming {
		if resource, err := o.rules.Resource(p.From.Kind); err == nil && resource.GroupResource() == of {
			named = true
			replace = replace || p.Replace
		}
	}
	return named, replace, known
}

// publishedContent is [managed.Publishing.Content].
func (o *pluginOptions) publishedContent(ctx context.Context, u *unstructured.Unstructured) (*managed.Content, error) {
	role, err := o.cluster.objects.PublicationRole(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("spec.from: %w", err)
	}
	content, err := o.rules.Content(u, role)
	if err != nil {
		return nil, err
	}
	out := &managed.Content{Hash: content.Hash}
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
		var decoded rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &decoded); err != nil {
			return nil, errors.Join(errors.New("spec.from: cannot decode the Role"), err)
		}
		out.Rules = decoded.Rules
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}:
		var decoded rbacv1.RoleBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &decoded); err != nil {
			return nil, errors.Join(errors.New("spec.from: cannot decode the RoleBinding"), err)
		}
		out.Ref = &decoded.RoleRef
		out.UnknownRules = role == nil
		if role != nil {
			out.Rules = role.Rules
		}
	}
	return out, nil
}

// isPublished reports whether the configuration allows Publications of objects of a kind. It
// returns false for the kinds that can always be published.
func (g *snapshot) isPublished(kind schema.GroupKind) bool {
	for _, k := range g.config.Admission.Publication.Kinds {
		if k.Group == kind.Group && k.Kind == kind.Kind {
			return true
		}
	}
	return false
}
