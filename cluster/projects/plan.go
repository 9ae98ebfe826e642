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
	// missingFor is the time after which the RoleBindings of a missing project are deleted.
	missingFor = 24 * time.Hour
	// missingText is missingFor in messages.
	missingText = "24 hours"
	// missingReads is the number of successive complete reads that must lack the project before that.
	missingReads = 10
	// missingWatched is the time in which one process must have made these reads.
	missingWatched = time.Hour
	// maxWrites is the number of successful changes of one tenant after which the other tenants follow.
	maxWrites = 100
	// maxCreations is the number of namespaces that one plan creates for a tenant at most, so that one
	// tenant does not delay the others.
	maxCreations = 100
)

// Settings specify how the cluster follows a Keystone. All fields except GroupsPrefix, CreateTenants and
// DeleteNamespaces are required.
type Settings struct {
	// TenantOf returns the tenant of a domain. It fails if the domain maps to none.
	TenantOf func(id, name string) (tenant.ID, error)
	// GroupsPrefix is the prefix of the groups of the source.
	GroupsPrefix string
	// Roles are the ClusterRoles of Keystone roles, by the name of the Keystone role.
	Roles map[string]string
	// Interval is the time between two reads.
	Interval time.Duration
	// CreateTenants creates the Tenant of each enabled domain if it does not exist.
	CreateTenants bool
	// DeleteNamespaces deletes the namespaces of projects that are missing for 24 hours.
	DeleteNamespaces bool
}

// State is the part of the cluster that a plan depends on. Plans do not change it.
type State struct {
	// Tenants are the IDs of all Tenants.
	Tenants []tenant.ID
	// Tenant returns the Tenant of a tenant, or nil if there is none. The second result is false if the
	// Tenant cannot be decoded, or if it is not known whether there is one.
	Tenant func(tenant.ID) (t *v1alpha1.Tenant, known bool)
	// Namespaces are all namespaces of the cluster, and OwnerOf returns their tenants.
	Namespaces []*corev1.Namespace
	OwnerOf    func(*corev1.Namespace) tenant.ID
}

// Action is the kind of a change.
type Action string

// The actions.
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
	// Why states the cause in Keystone.
	Why string
	// To is the new content of the annotation. It is nil if the object is deleted.
	To *tenants.Keystone
	// namespace is the namespace as it was read. It is nil if it is created.
	namespace *corev1.Namespace
}

// Plan has the changes of one tenant.
type Plan struct {
	Tenant tenant.ID
	// Object is the Tenant as it was read. It is nil if it is created.
	Object  *v1alpha1.Tenant
	Changes []Change
	// Condition is [v1alpha1.ConditionKeystone] after the changes, if all of them succeed. It is empty if
	// the Tenant should not have the condition.
	Condition metav1.Condition
	// More reports whether a further plan has more changes.
	More bool
	// missing are the keys of the projects and roles that Keystone no longer has.
	missing []string
}

// planner makes the plans of one read.
type planner struct {
	*directory
	state     *State
	now       metav1.Time
	confirmed func(key string) bool
	exists    map[string]bool // the names of all namespaces
	owned     map[tenant.ID][]*corev1.Namespace
}

// Plans returns the plans of all tenants that have or had a domain, sorted by tenant. confirmed reports
// whether enough successive reads lacked a project or the roles of a tenant. Its key is the ID of the
// project or the result of [rolesOf].
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

// rolesOf returns the key under which the missing roles of a tenant are counted.
func rolesOf(id tenant.ID) string { return "roles of " + id.String() }

// plan returns the plan of a tenant, or nil if there is nothing to change or to report.
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
	if len(domains) == 0 && recorded == nil && err == nil { // the tenant has nothing to do with Keystone
		if meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionKeystone) == nil {
			return nil
		}
		return &Plan{Tenant: id, Object: t}
	}
	of := &tenantPlan{
		planner:  p,
		plan:     &Plan{Tenant: id, Object: t},
		recorded: recorded,
	}
	of.make(domains, err)
	of.plan.Condition.Type = v1alpha1.ConditionKeystone
	of.plan.Condition.ObservedGeneration = t.Generation
	of.plan.Condition.Message = tenants.ConditionMessage(of.plan.Condition.Message)
	return of.plan
}

// planTenant creates the Tenant of a domain, if the settings specify it.
func (p *planner) planTenant(id tenant.ID, domains []keystone.Domain) *Plan {
	if !p.settings.CreateTenants || len(domains) != 1 || !domains[0].Enabled || !tenants.IsKeystoneID(domains[0].ID) {
		return nil
	}
	return &Plan{
		Tenant: id,
		More:   true, // the projects follow when the Tenant exists
		Changes: []Change{{
			Action: CreateTenant,
			Name:   id.ObjectName(),
			Why:    "the domain " + domains[0].ID + " maps to it",
		}},
	}
}
