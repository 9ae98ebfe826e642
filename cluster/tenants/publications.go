// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func publicationResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications)
}

// errPublications reports that the Publications are not known.
var errPublications = errors.New("the Publications have not been read yet")

// Publications returns all valid Publications, oldest first. The second result is false if the
// Publications have not been read. Callers MUST NOT change the Publications.
func (s *Store) Publications() (all []*publication.Publication, known bool) {
	if !s.isReady(publicationResource(), s.publications.registration) {
		return nil, false
	}
	all = s.publications.all()
	slices.SortFunc(all, func(a, b *publication.Publication) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, true
}

// Publication returns the Publication with the given name, or nil if it does not exist or is
// invalid. Callers MUST NOT change it.
func (s *Store) Publication(name string) *publication.Publication { return s.publications.get(name) }

// InvalidPublication returns the metadata of a Publication that does not decode or is invalid,
// and the reason. It returns nil if the Publication is valid or does not exist. The reason does
// not contain the values of fields that do not decode. Callers MUST NOT change the metadata.
func (s *Store) InvalidPublication(name string) (of metav1.Object, why error) {
	wrong := s.publications.getInvalid(name)
	return wrong.object, wrong.err
}

// InvalidPublications returns the names of the Publications that do not decode or are invalid.
func (s *Store) InvalidPublications() []string {
	s.publications.mu.RLock()
	defer s.publications.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.publications.invalid))
}

// Selects reports whether a Publication selects the namespaces of a tenant. See
// [publication.Publication.Selects].
func (s *Store) Selects(p *publication.Publication, id tenant.ID) bool {
	state := s.state(id)
	return p.Selects(id, state.tenantLabels(), state != nil)
}

// PublicationsOf returns the Publications that select a tenant, oldest first. The second result is
// false if the Publications have not been read. Callers MUST NOT change the Publications.
func (s *Store) PublicationsOf(id tenant.ID) (selecting []*publication.Publication, known bool) {
	all, known := s.Publications()
	for _, p := range all {
		if s.Selects(p, id) {
			selecting = append(selecting, p)
		}
	}
	return selecting, known
}

// OnPublication sets the function that is called with the name of each Publication that is created,
// changed or deleted. If nil, no function is called.
func (s *Store) OnPublication(f func(name string)) { s.publications.onChange(f) }

// publicationHolds reports whether Pods in a tenant's new namespaces wait because of a
// Publication with spec.hold. It returns true if the Publications have not been read. t is nil if
// the tenant has no Tenant.
func (s *Store) publicationHolds(id tenant.ID, t *v1alpha1.Tenant) bool {
	all, known := s.Publications()
	return !known || slices.ContainsFunc(all, func(p *publication.Publication) bool {
		if t == nil {
			return p.Hold && !p.Deleting && p.Selects(id, nil, false)
		}
		return p.Hold && !p.Deleting && p.Selects(id, t.Labels, true)
	})
}

// tenantLabels returns the labels of a Tenant. l may be nil.
func (l *tenantState) tenantLabels() map[string]string {
	if l == nil {
		return nil
	}
	return l.labels
}

// namespaceLabels returns the labels that a Tenant specifies for its namespaces. l may be nil.
func (l *tenantState) namespaceLabels() map[string]string {
	if l == nil {
		return nil
	}
	return Labels(l.namespaces.Labels)
}
