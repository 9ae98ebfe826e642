// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func templateResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates)
}

func membersResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)
}

// InputsSynced reports whether the NamespaceTemplates, TenantMembers and Publications have been
// read once. It ignores kinds that the server is known not to define.
func (s *Store) InputsSynced() bool {
	_, known := s.Publications()
	return known && s.isReady(templateResource(), s.templates.registration) &&
		s.isReady(membersResource(), s.members.registration)
}

// Template returns the NamespaceTemplate with the given name, or nil if it does not exist or is
// invalid. The second result is false if the templates have not been read. Callers MUST NOT change
// the template.
func (s *Store) Template(name string) (t *template.Template, known bool) {
	if !s.isReady(templateResource(), s.templates.registration) {
		return nil, false
	}
	return s.templates.get(name), true
}

// Members returns the TenantMembers of a tenant. It returns nil if they do not exist, do not
// decode, are being deleted or have another spec.id. If an earlier tenant had the same ID, it
// returns nil unless the TenantMembers record the UID of the current Tenant. The second result is
// false if the TenantMembers or the Tenants have not been read. Callers MUST NOT change the
// members.
func (s *Store) Members(id tenant.ID) (m *v1alpha1.TenantMembers, known bool) {
	if !s.isReady(membersResource(), s.members.registration) || !s.HasSynced() {
		return nil, false
	}
	m = s.members.get(id.ObjectName())
	if m == nil || m.Spec.ID != id.String() || m.DeletionTimestamp != nil {
		return nil, true
	}
	if lineage := s.Lineage(id); len(lineage.Retired) > 0 {
		if uid := m.Annotations[tenant.TenantUIDAnnotation]; uid == "" || uid != lineage.UID {
			return nil, true
		}
	}
	return m, true
}

// OnInputChange sets f, which replaces an earlier function. The store calls f for a tenant if its
// TenantMembers or a NamespaceTemplate that its Tenant names are created, changed or deleted.
// Calls for one kind do not overlap. If f is nil, no function is called.
func (s *Store) OnInputChange(f func(tenant.ID)) {
	if f == nil {
		s.templates.onChange(nil)
		s.members.onChange(nil)
		return
	}
	s.templates.onChange(func(name string) {
		for _, id := range s.tenantsWithTemplate(name) {
			f(id)
		}
	})
	s.members.onChange(func(name string) {
		if id := s.TenantOf(name); !id.IsZero() {
			f(id)
		}
	})
}

// tenantsWithTemplate returns the tenants whose Tenant names the given template.
func (s *Store) tenantsWithTemplate(template string) (ids []tenant.ID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, state := range s.states {
		if slices.Contains(state.namespaces.Templates, template) {
			ids = append(ids, id)
		}
	}
	return ids
}

// holdTimeout is the maximum duration of the read of a Tenant in [Store.HoldsNamespaces].
const holdTimeout = 2 * time.Second

// HoldsNamespaces reports whether Pods in a tenant's new namespace wait until the namespace is
// prepared. They wait if a template that the Tenant names or a Publication that selects the
// tenant has spec.hold. They also wait if a template is missing or invalid, or if the templates
// or Publications have not been read. HoldsNamespaces reads the Tenant from the server, because a
// Tenant is often created right before its namespaces. Pods also wait if this read fails.
func (s *Store) HoldsNamespaces(ctx context.Context, id tenant.ID) bool {
	if defined, known := s.defined(resource().GroupResource()); known && !defined {
		return s.publicationHolds(id, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	of, err := s.tenants.Get(ctx, cache.ObjectName{Name: id.ObjectName()})
	if apierrors.IsNotFound(err) {
		return s.publicationHolds(id, nil)
	}
	return err != nil || s.publicationHolds(id, of) ||
		slices.ContainsFunc(of.Spec.Namespaces.Templates, func(name string) bool {
			t, known := s.Template(name)
			return !known || t == nil || t.Hold
		})
}

// errTemplates reports that the objects that the templates define are not known.
var errTemplates = errors.New("the NamespaceTemplates of the Tenant have not been read yet")

// Provisions reports whether a template that the tenant's Tenant names, or a Publication, defines
// the object with the given name in a namespace. It fails if the templates or the Publications
// have not been read, or if the Tenant does not decode. It ignores missing templates. rules
// specifies the kinds that may be published.
func (s *Store) Provisions(
	rules *publication.Rules, id tenant.ID, namespace string, of schema.GroupResource, name string,
) (bool, error) {
	state := s.state(id)
	switch published, known := s.PublicationsOf(id); {
	case !known:
		return false, errPublications
	case slices.ContainsFunc(published, func(p *publication.Publication) bool {
		resource, err := rules.Resource(p.From.Kind)
		return err == nil && !p.Deleting && resource.GroupResource() == of && p.From.Name == name &&
			p.SelectsNamespace(namespace, state.namespaceLabels())
	}):
		return true, nil
	case state == nil:
		return false, nil
	}
	if state.invalid {
		return false, errTemplates
	}
	for _, one := range state.namespaces.Templates {
		switch t, known := s.Template(one); {
		case !known:
			return false, errTemplates
		case t != nil && t.Contains(id, namespace, of, name):
			return true, nil
		}
	}
	return false, nil
}

// FairUse returns spec.fairUse of the tenant's Tenant, or the zero value if there is no Tenant.
func (s *Store) FairUse(id tenant.ID) v1alpha1.FairUse {
	if state := s.state(id); state != nil {
		return state.fairUse
	}
	return v1alpha1.FairUse{}
}

// MemberRoles returns spec.memberRoles of the tenant's Tenant, which are the ClusterRoles that the
// tenant may bind. Callers MUST NOT change them.
func (s *Store) MemberRoles(id tenant.ID) []string {
	if state := s.state(id); state != nil {
		return state.memberRoles
	}
	return nil
}
