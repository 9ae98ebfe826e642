// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Clients contains the clients for a cluster.
type Clients struct {
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// existing is a Tenant in the cluster.
type existing struct {
	name, uid, replaces string
	created             time.Time
}

// tenants contains the Tenants and RetiredTenants of a cluster.
type tenants struct {
	existing map[string]existing // keyed by ID
	// retired contains the UIDs of the RetiredTenants for each ID. The value reports whether the
	// deletion was canceled. After a cancellation, the RetiredTenant no longer reserves the ID.
	retired map[string]map[string]bool
}

// readTenants reads the Tenants and RetiredTenants. It does not decode them strictly, so that it
// also reads objects that another release wrote.
func readTenants(ctx context.Context, client dynamic.Interface) (*tenants, error) {
	all := &tenants{existing: map[string]existing{}, retired: map[string]map[string]bool{}}
	err := each(ctx, client, v1alpha1.ResourceTenants, func(u *unstructured.Unstructured) {
		replaces, _, _ := unstructured.NestedString(u.Object, "spec", "replaces")
		all.existing[text(u, "id")] = existing{
			name:     u.GetName(),
			uid:      string(u.GetUID()),
			replaces: replaces,
			created:  u.GetCreationTimestamp().Time,
		}
	})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the cluster has no Tenants, so restore the CustomResourceDefinitions first: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return all, each(ctx, client, v1alpha1.ResourceRetiredTenants, func(u *unstructured.Unstructured) {
		id := text(u, "id")
		if all.retired[id] == nil {
			all.retired[id] = map[string]bool{}
		}
		all.retired[id][text(u, "uid")] = text(u, "takenBack") != ""
	})
}

func text(u *unstructured.Unstructured, field string) string {
	s, _, _ := unstructured.NestedString(u.Object, "spec", field)
	return s
}

func each(ctx context.Context, client dynamic.Interface, name string, f func(*unstructured.Unstructured)) error {
	resource := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(name))
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return resource.List(ctx, o)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if u, ok := object.(*unstructured.Unstructured); ok {
			f(u)
		}
		return nil
	})
}

// isReserved reports whether a RetiredTenant reserves the ID.
func (t *tenants) isReserved(id string) bool {
	for _, takenBack := range t.retired[id] {
		if !takenBack {
			return true
		}
	}
	return false
}

// knows reports whether a Tenant or a RetiredTenant with the given ID has the given UID.
func (t *tenants) knows(id, uid string) bool {
	_, retired := t.retired[id][uid]
	return retired || t.existing[id].uid == uid
}

// successors adds a finding for each Tenant whose predecessor (spec.replaces) has no
// RetiredTenant.
func (c *check) successors() {
	for _, id := range slices.Sorted(maps.Keys(c.tenants.existing)) {
		existing := c.tenants.existing[id]
		if existing.replaces == "" || c.tenants.knows(id, existing.replaces) {
			continue
		}
		c.find(
			"Tenant "+existing.name,
			fmt.Sprintf("replaces the Tenant with the UID %s, but no RetiredTenant has this UID: "+
				"credentials of the former tenant are valid", existing.replaces),
			reserve(id, existing.replaces),
		)
	}
}

// reserve returns the instruction to create a RetiredTenant.
func reserve(id, uid string) string {
	name := id
	if parsed, err := tenant.Parse(id); err == nil {
		name = parsed.ObjectName()
	}
	return fmt.Sprintf("create the RetiredTenant %s-%s with spec.id %s, spec.uid %[2]s and the time of the deletion in "+
		"spec.retiredAt", name, uid, id)
}

// namespaces adds findings for namespaces whose tenant has no Tenant object.
func (c *check) namespaces(ctx context.Context) error {
	first, number := map[string]string{}, map[string]int{}
	options := metav1.ListOptions{LabelSelector: tenant.Label}
	err := eachObject(ctx, c.client, namespaces(), "", options, func(m *metav1.PartialObjectMetadata) {
		id := m.Labels[tenant.Label]
		if _, ok := c.tenants.existing[id]; ok || id == tenant.System().String() {
			return
		}
		if number[id]++; first[id] == "" || m.Name < first[id] {
			first[id] = m.Name
		}
	})
	for _, id := range slices.Sorted(maps.Keys(first)) {
		reason := fmt.Sprintf("%d namespaces, such as %s, have the label of this tenant, which has no Tenant: ",
			number[id], first[id])
		if c.tenants.isReserved(id) {
			c.warn("tenant "+id, reason+"the tenant was deleted",
				"if its deletionPolicy was not Orphan, delete the namespaces: kubectl get namespaces -l "+tenant.Label+"="+id)
			continue
		}
		c.warn("tenant "+id, reason+"its name is not reserved, and no suspension applies to it",
			"apply its Tenant, or kubectl tenant adopt-tenants")
	}
	return err
}

func namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

// eachObject calls f with the metadata of each object of a resource, one page at a time.
func eachObject(
	ctx context.Context, client metadata.Interface, of schema.GroupVersionResource, namespace string,
	options metav1.ListOptions, f func(*metav1.PartialObjectMetadata),
) error {
	var lister metadata.ResourceInterface = client.Resource(of)
	if namespace != "" {
		lister = client.Resource(of).Namespace(namespace)
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return lister.List(ctx, o)
	})
	return pages.EachListItem(ctx, options, func(object runtime.Object) error {
		if m, ok := object.(*metav1.PartialObjectMetadata); ok {
			f(m)
		}
		return nil
	})
}

// key identifies an object.
type key struct {
	resource        schema.GroupResource
	namespace, name string
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.namespace, other.namespace), cmp.Compare(k.name, other.name))
}
