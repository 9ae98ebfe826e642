// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// missingFor is how long a project must be missing before its RoleBindings or its namespace are
	// deleted.
	missingFor = 24 * time.Hour
	// missingText is the text for missingFor in messages.
	missingText = "24 hours"
	// missingReads is the minimum number of successive complete reads in which a project must be
	// missing before its RoleBindings or its namespace are deleted.
	missingReads = 10
	// missingWatched is the minimum time between the first and the last of these reads. The same
	// process must make all of these reads.
	missingWatched = time.Hour
	// maxWrites is the maximum number of successful changes for one tenant before the changes for
	// the next tenant are made.
	maxWrites = 100
	// maxCreations is the maximum number of namespaces that one plan creates, so that one tenant does
	// not delay other tenants.
	maxCreations = 100
)

// Settings specify how the cluster is synchronized with a Keystone. All fields except
// GroupsPrefix, CreateTenants and DeleteNamespaces are required.
type Settings struct {
	// TenantOf returns the tenant to which the domain with the given ID and name maps. It fails
	// if the domain does not map to a tenant.
	TenantOf func(id, name string) (tenant.ID, error)
	// GroupsPrefix is the prefix of the groups that the source asserts.
	GroupsPrefix string
	// Roles maps the names of Keystone roles to the names of the ClusterRoles to bind.
	Roles map[string]string
	// Interval is the time between two reads.
	Interval time.Duration
	// CreateTenants specifies whether a Tenant is created for each enabled domain that has none.
	CreateTenants bool
	// DeleteNamespaces specifies whether the namespaces of projects that are missing for 24 hours are
	// deleted.
	DeleteNamespaces bool
}

// State is the part of the cluster's state on which plans depend. [Plans] does not change it.
type State struct {
	// Tenants are the IDs of all Tenants.
	Tenants []tenant.ID
	// Tenant returns a tenant's Tenant, or nil if the tenant has no Tenant. The second result is
	// false if this is not known or the Tenant does not decode.
	Tenant func(tenant.ID) (t *v1alpha1.Tenant, known bool)
	// Namespaces has all namespaces of the cluster.
	Namespaces []*corev1.Namespace
	// OwnerOf returns the tenant that owns a namespace.
	OwnerOf func(*corev1.Namespace) tenant.ID
}

// Action is the type of a change.
type Action string

// The types of changes.
const (
	CreateTenant    Action = "create Tenant"
	UpdateTenant    Action = "update Tenant"
	CreateNamespace Action = "create namespace"
	UpdateNamespace Action = "update namespace"
	DeleteNamespace Action = "delete namespace"
)

// Change is one write to the cluster.
type Change struct {
	Action Action
	// Name is the name of the object.
	Name string
	// Why describes the cause of the change, for the log.
	Why string
	// To is the new content of [tenant.KeystoneAnnotation]. It is nil if the change creates a Tenant
	// or deletes a namespace.
	To *tenants.Keystone
	// namespace is the Namespace before the change. It is nil if the change creates the namespace
	// or writes a Tenant.
	namespace *corev1.Namespace
}

// Plan contains the changes that must be made for one tenant.
type Plan struct {
	Tenant tenant.ID
	// Object is the Tenant before the changes. It is nil if the plan creates the Tenant.
	Object  *v1alpha1.Tenant
	Changes []Change
	// Condition is the condition [v1alpha1.ConditionKeystone] that the Tenant should have after all
	// changes have succeeded. It is empty if the Tenant should not have the condition.
	Condition metav1.Condition
	// More reports whether another plan with more changes must follow.
	More bool
	// missing has the IDs of the projects that are missing in Keystone, and the result of
	// [rolesKey] if many roles of the tenant are missing.
	missing []string
}

// planner makes the plans for the result of one read.
type planner struct {
	*directory
	state     *State
	now       metav1.Time
	confirmed func(key string) bool
	exists    map[string]bool // the names of all namespaces
	owned     map[tenant.ID][]*corev1.Namespace
}

// Plans returns the plans for all tenants that have or had a Keystone domain, sorted by tenant.
// confirmed reports whether a project or the roles of a tenant were missing in enough successive
// reads. Its parameter is the ID of the project or the result of [rolesKey].
func Plans(
	s *Settings, c *keystone.Contents, state *State, confirmed func(key string) bool, now time.Time,
) (plans []Plan) {
	p := &planner{
		directory: newDirectory(s, c),
		state:     state,
		now:       metav1.NewTime(now.UTC().Truncate(time.Second)),
		confirmed: confirmed,
		exists:    make(map[string]bool, len(state.Namespaces)),
		owned:     map[tenant.ID][]*corev1.Namespace{},
	}
	for _, ns := range state.Namespaces {
		p.exists[ns.Name] = true
		if id := state.OwnerOf(ns); !id.IsZero() && !id.IsSystem() {
			p.owned[id] = append(p.owned[id], ns)
		}
	}
	all := map[tenant.ID]bool{}
	for _, id := range state.Tenants {
		all[id] = true
	}
	for id := range p.domains {
		all[id] = true
	}
	for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b tenant.ID) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if plan := p.plan(id); plan != nil {
			plans = append(plans, *plan)
		}
	}
	return plans
}

// rolesKey returns the key that identifies the missing roles of a tenant.
func rolesKey(id tenant.ID) string { return "roles of " + id.String() }

// plan returns the plan for a tenant, or nil if there is nothing to change or report.
func (p *planner) plan(id tenant.ID) *Plan {
	t, known := p.state.Tenant(id)
	domains := p.domains[id]
	switch {
	case !known || t != nil && t.DeletionTimestamp != nil:
		return nil
	case t == nil:
		return p.planTenant(id, domains)
	}
	recorded, err := tenants.KeystoneOf(t)
	if len(domains) == 0 && recorded == nil && err == nil { // the tenant does not use Keystone
		if meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionKeystone) == nil {
			return nil
		}
		return &Plan{Tenant: id, Object: t}
	}
	tp := &tenantPlan{
		planner:  p,
		plan:     &Plan{Tenant: id, Object: t},
		recorded: recorded,
	}
	tp.build(domains, err)
	tp.plan.Condition.Type = v1alpha1.ConditionKeystone
	tp.plan.Condition.ObservedGeneration = t.Generation
	tp.plan.Condition.Message = tenants.ConditionMessage(tp.plan.Condition.Message)
	return tp.plan
}

// planTenant returns a plan that creates the Tenant for a domain. It returns nil if the settings
// do not allow this or if there is not exactly one usable domain.
func (p *planner) planTenant(id tenant.ID, domains []keystone.Domain) *Plan {
	if !p.settings.CreateTenants || len(domains) != 1 || !domains[0].Enabled || !tenants.IsKeystoneID(domains[0].ID) {
		return nil
	}
	return &Plan{
		Tenant: id,
		More:   true, // a later plan handles the projects, after the Tenant exists
		Changes: []Change{{
			Action: CreateTenant,
			Name:   id.ObjectName(),
			Why:    "the domain " + domains[0].ID + " maps to it",
		}},
	}
}
