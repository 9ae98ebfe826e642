// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package keystonesync previews the changes that a cluster's leader (the server that holds the
// Lease kubetenant-controller) would make after it reads Keystone. The package changes nothing.
package keystonesync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/projects"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// Cluster is the cluster to compare with Keystone. All fields except SystemNamespaces are
// required.
type Cluster struct {
	Kube    kube.Interface
	Dynamic dynamic.Interface
	// SystemNamespaces contains the namespaces that the system tenant owns, even if their labels
	// name another tenant.
	SystemNamespaces []string
}

// Report contains the changes that the leader would make.
type Report struct {
	// Plans contains the plan for each tenant, sorted by tenant.
	Plans []projects.Plan
	// Skipped contains the names of Tenants that cannot be decoded. The leader ignores them.
	Skipped []string
	// WithoutTenant contains the IDs of tenants that have an enabled Keystone domain but no
	// Tenant object. The leader changes nothing for them.
	WithoutTenant []string
}

// Read reads Keystone once. If this fails, the error contains the remedy.
func Read(ctx context.Context, reader projects.Reader) (*keystone.Contents, error) {
	contents, err := reader.Read(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("read Keystone: %w: the leader would change nothing: %s", err, projects.Remedy(err))
	}
	return contents, nil
}

// Preview returns the changes that the leader would make if Keystone has the given contents. The
// leader removes an object only after its counterpart is missing in several successive reads of
// Keystone. Preview assumes that these reads have taken place.
func Preview(
	ctx context.Context, c *Cluster, settings *projects.Settings, contents *keystone.Contents, now time.Time,
) (*Report, error) {
	found, err := c.tenants(ctx)
	if err != nil {
		return nil, err
	}
	namespaces, err := c.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	owners := authz.NewOwners(nil, nil) // owners makes no lookups
	owners.Reserve(c.SystemNamespaces)
	state := &projects.State{
		Tenants:    found.ids,
		Tenant:     found.tenant,
		Namespaces: namespaces,
		OwnerOf:    owners.OwnerOf,
	}
	report := &Report{
		Plans:   projects.Plans(settings, contents, state, func(string) bool { return true }, now),
		Skipped: slices.Sorted(maps.Keys(found.invalid)),
	}
	planned := map[tenant.ID]bool{}
	for i := range report.Plans {
		planned[report.Plans[i].Tenant] = true
	}
	for _, domain := range contents.Domains {
		id, err := settings.TenantOf(domain.ID, domain.Name)
		if err != nil || id.IsZero() || id.IsSystem() || !domain.Enabled || planned[id] {
			continue
		}
		if t, ok := found.tenant(id); ok && t == nil {
			report.WithoutTenant = append(report.WithoutTenant, id.String())
		}
	}
	slices.Sort(report.WithoutTenant)
	report.WithoutTenant = slices.Compact(report.WithoutTenant)
	return report, nil
}

// knownTenants contains the Tenants in a cluster, keyed by object name.
type knownTenants struct {
	ids     []tenant.ID
	valid   map[string]*v1alpha1.Tenant
	invalid map[string]bool
}

// tenant returns the Tenant object for an ID, or nil if the server recognizes none. As
// [projects.State] requires, ok is false if the object cannot be decoded.
func (k *knownTenants) tenant(id tenant.ID) (t *v1alpha1.Tenant, ok bool) {
	name := id.ObjectName()
	if k.invalid[name] {
		return nil, false
	}
	t = k.valid[name]
	if t == nil {
		return nil, true
	}
	if owner, _ := tenants.AccessOf(t); owner != id {
		return nil, true // the server ignores this Tenant
	}
	return t, true
}

func (c *Cluster) tenants(ctx context.Context) (*knownTenants, error) {
	found := &knownTenants{valid: map[string]*v1alpha1.Tenant{}, invalid: map[string]bool{}}
	client := typed.NewClient[v1alpha1.Tenant](c.Dynamic,
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants))
	err := client.ForEach(ctx, metav1.ListOptions{Limit: pageSize}, func(t *v1alpha1.Tenant) {
		if id, _ := tenants.AccessOf(t); !id.IsZero() {
			found.ids = append(found.ids, id)
			found.valid[t.Name] = t
		}
	}, func(invalid *typed.Invalid) { found.invalid[invalid.Name] = true })
	return found, listError(v1alpha1.ResourceTenants+"."+tenant.Domain, err)
}

func (c *Cluster) namespaces(ctx context.Context) (all []*corev1.Namespace, err error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.Kube.CoreV1().Namespaces().List(ctx, o)
	})
	pages.PageSize = pageSize
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if ns, ok := o.(*corev1.Namespace); ok {
			all = append(all, ns)
		}
		return nil
	})
	return all, listError("namespaces", err)
}

// listError adds context to an error from a list request. A 403 error describes the missing
// right.
func listError(resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not list all %s: you need the verb list on %[1]s in the whole cluster: %w", resource, err)
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

// Names returns the names in a list as text. After the first five names, it returns only the
// number of the remaining names.
func Names(all []string) string {
	const shown = 5
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}
