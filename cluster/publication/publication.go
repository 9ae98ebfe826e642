// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package publication parses Publications. It determines which objects may be published, which
// tenants and namespaces a Publication selects, and the content of the copies.
package publication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Publication is the parsed form of a [v1alpha1.Publication]. Callers MUST NOT change it. The zero
// value selects no namespace.
type Publication struct {
	Name       string
	UID        types.UID
	Generation int64
	// Created is the time of creation of the Publication.
	Created time.Time
	// Deleting reports whether the Publication is being deleted.
	Deleting bool
	// Retained reports whether the Publication has [tenant.PublicationFinalizer].
	Retained bool
	// Automatic reports whether the server created the Publication from [tenant.PublishAnnotation].
	Automatic bool
	// From identifies the object to copy.
	From Source
	// Replace specifies whether a copy replaces an existing object with its kind and name.
	Replace bool
	// Hold specifies whether Pods in a new namespace wait until the namespace has its copy.
	Hold bool
	// Checked is the hash of the source's content for which admission checked the rights of the
	// Publication's author. It is empty if no rights were checked.
	Checked string
	// Prune allows the copies to be deleted if the source does not exist.
	Prune bool

	all        bool
	ids        tenant.Set
	tenants    labels.Selector // nil if spec.tenants.selector is not set
	namespaces labels.Selector
}

// SourceAnnotation is the value of [tenant.ManagedLabel] on a Publication that the server created
// from [tenant.PublishAnnotation].
const SourceAnnotation = "annotation"

// Source identifies the object to copy.
type Source struct {
	Kind            schema.GroupVersionKind
	Namespace, Name string
}

// Parse validates and converts a Publication. It does not check whether objects of the source's
// kind may be published, see [Rules.Resource]. An error contains the path of the invalid field.
func Parse(stored *v1alpha1.Publication) (*Publication, error) {
	spec := &stored.Spec
	version, err := schema.ParseGroupVersion(spec.From.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("spec.from.apiVersion: %w", err)
	}
	p := &Publication{
		Name:       stored.Name,
		UID:        stored.UID,
		Generation: stored.Generation,
		Created:    stored.CreationTimestamp.Time,
		Deleting:   stored.DeletionTimestamp != nil,
		Retained:   slices.Contains(stored.Finalizers, tenant.PublicationFinalizer),
		Automatic:  stored.Labels[tenant.ManagedLabel] == SourceAnnotation,
		From:       Source{version.WithKind(spec.From.Kind), spec.From.Namespace, spec.From.Name},
		Replace:    spec.OnConflict == v1alpha1.PublicationReplace,
		Hold:       spec.Hold,
		Checked:    stored.Annotations[tenant.PublishedAnnotation],
		Prune:      stored.Annotations[tenant.PruneAnnotation] == "true",
	}
	if len(stored.Name) > validation.LabelValueMaxLength {
		return nil, fmt.Errorf("metadata.name: must have at most %d characters", validation.LabelValueMaxLength)
	}
	for field, value := range map[string]string{
		"apiVersion": spec.From.APIVersion,
		"kind":       spec.From.Kind,
		"namespace":  spec.From.Namespace,
		"name":       spec.From.Name,
	} {
		if value == "" {
			return nil, fmt.Errorf("spec.from.%s must be set", field)
		}
	}
	switch spec.OnConflict {
	case "", v1alpha1.PublicationReport, v1alpha1.PublicationReplace:
	default:
		return nil, errors.New("spec.onConflict: must be Report or Replace")
	}
	if err := p.parseTenants(&spec.Tenants); err != nil {
		return nil, err
	}
	p.namespaces = labels.Everything()
	if spec.NamespaceSelector != nil {
		if p.namespaces, err = metav1.LabelSelectorAsSelector(spec.NamespaceSelector); err != nil {
			return nil, fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	return p, nil
}

func (p *Publication) parseTenants(of *v1alpha1.PublicationTenants) (err error) {
	set := 0
	if of.All {
		p.all = true
		set++
	}
	if len(of.IDs) > 0 {
		if p.ids, err = tenant.ParseSet(of.IDs); err != nil {
			return fmt.Errorf("spec.tenants.ids: %w", err)
		}
		if slices.Contains(of.IDs, tenant.AnyName) {
			return fmt.Errorf("spec.tenants.ids: use spec.tenants.all instead of %q", tenant.AnyName)
		}
		set++
	}
	if of.Selector != nil {
		if p.tenants, err = metav1.LabelSelectorAsSelector(of.Selector); err != nil {
			return fmt.Errorf("spec.tenants.selector: %w", err)
		}
		set++
	}
	if set != 1 {
		return errors.New("spec.tenants: must set exactly one of all, ids and selector")
	}
	return nil
}

// Selects reports whether the Publication selects the namespaces of a tenant. tenantLabels are the
// labels of the tenant's Tenant. exists specifies whether the tenant has a Tenant. The system
// tenant and the zero ID are never selected.
func (p *Publication) Selects(id tenant.ID, tenantLabels map[string]string, exists bool) bool {
	switch {
	case id.IsZero() || id.IsSystem():
		return false
	case p.tenants != nil:
		return exists && p.tenants.Matches(labels.Set(tenantLabels))
	}
	return p.all || p.ids.Has(id)
}

// SelectsNamespace reports whether the Publication selects a namespace of a selected tenant.
// namespaceLabels are the labels that the tenant's Tenant specifies for its namespaces.
func (p *Publication) SelectsNamespace(name string, namespaceLabels map[string]string) bool {
	if p.namespaces == nil {
		return false
	}
	all := labels.Set{corev1.LabelMetadataName: name}
	for key, value := range namespaceLabels {
		if key != corev1.LabelMetadataName {
			all[key] = value
		}
	}
	return p.namespaces.Matches(all)
}

// String returns the kind, the namespace and the name of the source.
func (s Source) String() string {
	return strings.Join([]string{s.Kind.Kind, s.Namespace + "/" + s.Name}, " ")
}
