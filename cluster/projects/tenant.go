// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// tenantPlan makes the plan of one tenant whose Tenant exists.
type tenantPlan struct {
	*planner
	plan     *Plan
	recorded *tenants.Keystone
	domain   keystone.Domain
	// namespaces has the namespace of each project, keyed by project ID.
	namespaces map[string]projectNamespace
	// duplicates has the namespaces of projects that also have an older namespace. No roles are
	// bound in duplicates.
	duplicates []projectNamespace
	// problems describes problems with individual projects. They do not prevent changes for other
	// projects.
	problems []string
	// keepsLostRoles specifies whether roles whose assignments are missing in Keystone remain
	// bound.
	keepsLostRoles bool
}

type projectNamespace struct {
	ns       *corev1.Namespace
	recorded *tenants.Keystone
}

// build adds the changes to the plan and sets its condition. wrong is the error from decoding the
// Tenant's annotation, or nil if the annotation is valid.
func (t *tenantPlan) build(domains []keystone.Domain, wrong error) {
	if !t.hasDomain(domains, wrong) {
		t.updateFound()
		return
	}
	t.findNamespaces()
	projects := t.domainProjects()
	missing, all := t.missingProjects(projects)
	t.detectLostRoles(projects)
	t.revokeDuplicates()
	t.update(projects)
	limit := maxMissing(all)
	removable := missing
	if len(missing) > limit {
		removable = nil
	}
	t.plan.missing = append(t.plan.missing, removable...)
	for _, id := range missing {
		if !t.dropUnmapped(id) && slices.Contains(removable, id) {
			t.remove(id)
		}
	}
	t.updateTenant() // after the changes of namespaces, so that a conflict about the Tenant does not delay them
	t.create(projects)
	t.conclude(missing, limit, all)
}

// missingProjects returns the IDs of the projects that have a namespace but are missing in
// Keystone, and the number of all projects with a namespace. Both omit missing projects for which
// [tenantPlan.hasEnded] returns true.
func (t *tenantPlan) missingProjects(projects map[string]keystone.Project) (missing []string, all int) {
	for id, f := range t.namespaces {
		switch _, ok := projects[id]; {
		case ok:
			all++
		case !t.hasEnded(f.recorded):
			all++
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	return missing, all
}

// hasEnded reports whether a project has been missing for missingFor and nothing is left to
// remove. This is the case if no roles are bound and the settings do not delete namespaces.
func (t *tenantPlan) hasEnded(recorded *tenants.Keystone) bool {
	return !t.settings.DeleteNamespaces && len(recorded.Roles) == 0 && t.isPast(recorded.MissingSince)
}

// domainProjects returns the projects in the tenant's domain, keyed by project ID.
func (t *tenantPlan) domainProjects() map[string]keystone.Project {
	projects := map[string]keystone.Project{}
	for _, project := range t.projects[t.domain.ID] {
		projects[project.ID] = project
	}
	return projects
}

// updateFound adds the changes that are safe while no usable domain maps to the tenant. It
// records that missing projects exist again, so that they retain their rights for the whole
// duration missingFor if they are missing again later. It also removes roles that the settings no
// longer bind.
func (t *tenantPlan) updateFound() {
	if t.recorded == nil {
		return
	}
	t.domain = keystone.Domain{ID: t.recorded.Domain}
	t.findNamespaces()
	projects := t.domainProjects()
	for _, id := range slices.Sorted(maps.Keys(t.namespaces)) {
		f := t.namespaces[id]
		if t.dropUnmapped(id) || f.ns.DeletionTimestamp != nil {
			continue
		}
		if _, ok := projects[id]; ok && f.recorded.MissingSince != nil {
			to := *f.recorded
			to.MissingSince = nil
			t.change(f, &to, "Keystone has project "+id+" again")
		}
	}
	if to := *t.recorded; len(t.mappedRoles(to.Roles)) < len(to.Roles) {
		to.Roles = t.mappedRoles(to.Roles)
		t.add(Change{
			Action: UpdateTenant,
			Name:   t.plan.Object.Name,
			Why:    "the settings no longer bind roles of the domain",
			To:     &to,
		})
	}
}

// mappedRoles returns the roles that the settings still bind.
func (t *tenantPlan) mappedRoles(roles []tenants.KeystoneRole) []tenants.KeystoneRole {
	return slices.DeleteFunc(slices.Clone(roles), func(r tenants.KeystoneRole) bool { return !t.isMapped(&r) })
}

// maxMissing returns how many of all projects or roles may be missing at the same time. If more
// are missing, the content that Keystone returns may be wrong.
func maxMissing(all int) int { return max(3, all/10) }

// fail sets the condition of a tenant without a usable domain. It always returns false.
func (t *tenantPlan) fail(reason, format string, args ...any) bool {
	t.plan.Condition.Status, t.plan.Condition.Reason = metav1.ConditionFalse, reason
	t.plan.Condition.Message = "nothing was changed: " + fmt.Sprintf(format, args...)
	return false
}

// hasDomain reports whether exactly one domain maps to the tenant, and whether this domain is
// enabled and is the recorded domain, if one is recorded. If not, hasDomain sets the condition.
func (t *tenantPlan) hasDomain(domains []keystone.Domain, wrong error) bool {
	switch {
	case wrong != nil:
		return t.fail(v1alpha1.ReasonKeystoneFailed, "%v. Set it to \"\" so that the server writes it again", wrong)
	case len(domains) == 0:
		return t.fail(v1alpha1.ReasonDomainMissing, "no Keystone domain maps to the tenant. Before, the domain %s "+
			"mapped to it. If the domain was renamed, add its new name to tenantMap of the source", t.recorded.Domain)
	case len(domains) > 1:
		return t.fail(v1alpha1.ReasonDomainAmbiguous, "%d Keystone domains map to the tenant. "+
			"Change tenantMap of the source so that only one domain maps to it", len(domains))
	}
	t.domain = domains[0]
	switch {
	case !tenants.IsKeystoneID(t.domain.ID):
		return t.fail(v1alpha1.ReasonKeystoneFailed, "the ID of the Keystone domain has unexpected characters")
	case t.recorded != nil && t.recorded.Domain != t.domain.ID:
		return t.fail(v1alpha1.ReasonDomainChanged, "the Keystone domain %s maps to the tenant. Before, the domain %s "+
			"mapped to it. To accept the new domain, run: kubectl annotate tenants.kubetenant.dev %s "+
			"kubetenant.dev/keystone= --overwrite",
			t.domain.ID, t.recorded.Domain, t.plan.Object.Name)
	case !t.domain.Enabled:
		return t.fail(v1alpha1.ReasonDomainDisabled, "the Keystone domain is disabled")
	}
	return true
}

// findNamespaces sets namespaces and duplicates to the namespaces of the domain's projects.
func (t *tenantPlan) findNamespaces() {
	t.namespaces = map[string]projectNamespace{}
	owned := t.owned[t.plan.Tenant]
	slices.SortFunc(owned, func(a, b *corev1.Namespace) int { // oldest first, others are duplicates
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, ns := range owned {
		record, err := tenants.KeystoneOf(ns)
		if err != nil {
			t.problem("namespace %s: %v", ns.Name, err)
			continue
		}
		if record == nil || record.Project == "" || record.Domain != t.domain.ID {
			continue
		}
		if t.namespaces[record.Project].ns != nil {
			t.problem(
				"namespaces %s and %s both belong to project %s",
				ns.Name,
				t.namespaces[record.Project].ns.Name,
				record.Project,
			)
			t.duplicates = append(t.duplicates, projectNamespace{ns, record})
			continue
		}
		t.namespaces[record.Project] = projectNamespace{ns, record}
	}
}

func (t *tenantPlan) problem(format string, args ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// detectLostRoles sets keepsLostRoles if so many role assignments are missing in Keystone that
// the list of assignments may be incomplete. The lost roles remain bound until the assignments
// have been missing for missingFor.
func (t *tenantPlan) detectLostRoles(projects map[string]keystone.Project) {
	all, lost := 0, 0
	compare := func(was, is []tenants.KeystoneRole) {
		all += len(was)
		lost += len(t.lostRoles(was, is))
	}
	for id, f := range t.namespaces {
		if _, is := projects[id]; is {
			compare(f.recorded.Roles, t.projectRoles(id))
		}
	}
	if t.recorded != nil {
		compare(t.recorded.Roles, t.domainRoles(t.domain.ID))
	}
	if lost <= maxMissing(all) {
		return
	}
	key := rolesKey(t.plan.Tenant)
	t.plan.missing = append(t.plan.missing, key)
	t.keepsLostRoles = t.recorded == nil || !t.isExpired(t.recorded.MissingSince, key)
}

// isExpired reports whether a project or the roles of a tenant have been missing for missingFor,
// and in enough successive reads.
func (t *tenantPlan) isExpired(since *metav1.Time, key string) bool {
	return t.isPast(since) && t.confirmed(key)
}

func (t *tenantPlan) isPast(since *metav1.Time) bool {
	return since != nil && t.now.Sub(since.Time) >= missingFor
}

// missingSince returns the recorded time at which a project or roles were first missing, or the
// current time if none is recorded. A recorded time in the future was set by a wrong clock and is
// ignored.
func (t *tenantPlan) missingSince(recorded *metav1.Time) *metav1.Time {
	if recorded == nil || recorded.After(t.now.Time) {
		return &t.now
	}
	return recorded
}

// roles returns the roles to bind. If keepsLostRoles is set, it includes the recorded roles that
// are missing in Keystone.
func (t *tenantPlan) roles(recorded *tenants.Keystone, current []tenants.KeystoneRole) []tenants.KeystoneRole {
	if !t.keepsLostRoles || recorded == nil {
		return current
	}
	out := append(slices.Clone(current), t.lostRoles(recorded.Roles, current)...)
	sortRoles(out)
	return out
}

// updateTenant adds a change that records the domain and its roles on the Tenant.
func (t *tenantPlan) updateTenant() {
	to := &tenants.Keystone{Domain: t.domain.ID, Roles: t.roles(t.recorded, t.domainRoles(t.domain.ID))}
	if t.keepsLostRoles {
		to.MissingSince = &t.now
		if t.recorded != nil {
			to.MissingSince = t.missingSince(t.recorded.MissingSince)
		}
	}
	if !to.Equal(t.recorded) {
		why := "the roles of the domain changed"
		if t.recorded == nil {
			why = "the domain " + t.domain.ID + " maps to the tenant"
		}
		t.add(Change{
			Action: UpdateTenant,
			Name:   t.plan.Object.Name,
			Why:    why,
			To:     to,
		})
	}
}

func (t *tenantPlan) add(c Change) { t.plan.Changes = append(t.plan.Changes, c) }

// change adds a change of the annotation on a project's namespace.
func (t *tenantPlan) change(f projectNamespace, to *tenants.Keystone, why string) {
	t.add(Change{
		Action:    UpdateNamespace,
		Name:      f.ns.Name,
		Why:       why,
		To:        to,
		namespace: f.ns,
	})
}

// revokeDuplicates removes the roles from the duplicate namespaces of projects. Otherwise, these
// roles would remain after the project loses them.
func (t *tenantPlan) revokeDuplicates() {
	for _, f := range t.duplicates {
		to := &tenants.Keystone{Domain: f.recorded.Domain, Project: f.recorded.Project}
		if f.ns.DeletionTimestamp == nil && !to.Equal(f.recorded) {
			t.change(f, to, "project "+f.recorded.Project+" has an older namespace")
		}
	}
}

// update updates the roles in the namespaces of existing projects.
func (t *tenantPlan) update(projects map[string]keystone.Project) {
	for _, id := range slices.Sorted(maps.Keys(t.namespaces)) {
		f := t.namespaces[id]
		if _, ok := projects[id]; !ok || f.ns.DeletionTimestamp != nil {
			continue
		}
		to := &tenants.Keystone{Domain: t.domain.ID, Project: id, Roles: t.roles(f.recorded, t.projectRoles(id))}
		if to.Equal(f.recorded) {
			continue
		}
		why := "the roles of project " + id + " changed"
		if f.recorded.MissingSince != nil {
			why = "Keystone has project " + id + " again"
		}
		t.change(f, to, why)
	}
}

// dropUnmapped removes the roles of a project that the settings no longer bind. It reports
// whether it removed a role.
func (t *tenantPlan) dropUnmapped(id string) bool {
	f := t.namespaces[id]
	to := *f.recorded
	to.Roles = t.mappedRoles(to.Roles)
	if len(to.Roles) == len(f.recorded.Roles) || f.ns.DeletionTimestamp != nil {
		return false
	}
	t.change(f, &to, "sync.roles no longer lists roles of project "+id)
	return true
}

// remove records when a project was first missing. After missingFor, it removes the project's roles
// or deletes its namespace.
func (t *tenantPlan) remove(id string) {
	f := t.namespaces[id]
	if f.ns.DeletionTimestamp != nil {
		return
	}
	to := *f.recorded
	switch expired := t.isExpired(f.recorded.MissingSince, id); {
	case t.missingSince(f.recorded.MissingSince) != f.recorded.MissingSince:
		to.MissingSince = t.missingSince(nil)
		end := "Its RoleBindings end after "
		if t.settings.DeleteNamespaces {
			end = "The namespace is deleted after "
		}
		t.change(f, &to, "Keystone no longer has project "+id+". "+end+missingText)
	case expired && t.settings.DeleteNamespaces:
		t.add(Change{
			Action:    DeleteNamespace,
			Name:      f.ns.Name,
			Why:       "Keystone has not had project " + id + " for " + missingText,
			namespace: f.ns,
		})
	case expired && len(f.recorded.Roles) > 0:
		to.Roles = nil
		t.change(f, &to, "Keystone has not had project "+id+" for "+missingText)
	}
}

// create adds changes that create the namespaces of new, enabled projects.
func (t *tenantPlan) create(projects map[string]keystone.Project) {
	created := 0
	for _, id := range slices.Sorted(maps.Keys(projects)) {
		project := projects[id]
		if t.namespaces[id].ns != nil || !project.Enabled {
			continue
		}
		name := namespaceName(t.plan.Tenant, id, project.Name)
		switch {
		case !tenants.IsKeystoneID(id):
			t.problem("the ID of a project has unexpected characters")
		case name == "":
			t.problem("no namespace can be named after project %s. The ID of the tenant must be a DNS label of at most 53 "+
				"characters without \"--\", and the ID of the project must contain a letter or a digit", id)
		case t.exists[name]:
			t.problem("namespace %s exists, but it does not belong to project %s. Delete the namespace, or rename the "+
				"project", name, id)
		case created == maxCreations:
			t.plan.More = true
		default:
			created++
			t.exists[name] = true
			t.add(Change{
				Action: CreateNamespace,
				Name:   name,
				Why:    "Keystone has project " + id,
				To:     &tenants.Keystone{Domain: t.domain.ID, Project: id, Roles: t.projectRoles(id)},
			})
		}
	}
}

// conclude sets the condition of a tenant with a usable domain.
func (t *tenantPlan) conclude(missing []string, limit, all int) {
	c := &t.plan.Condition
	c.Status = metav1.ConditionFalse
	switch {
	case len(missing) > limit:
		names := make([]string, 0, maxNamed)
		for _, id := range missing[:min(maxNamed, len(missing))] {
			names = append(names, t.namespaces[id].ns.Name)
		}
		c.Reason = v1alpha1.ReasonProjectsMissing
		c.Message = fmt.Sprintf("Keystone lacks %d of %d projects, so nothing was removed. If they were deleted, delete "+
			"their namespaces (%s)", len(missing), all, strings.Join(names, ", "))
	case t.keepsLostRoles:
		c.Reason = v1alpha1.ReasonRolesMissing
		c.Message = fmt.Sprintf("Keystone lacks many role assignments of the tenant, so the RoleBindings remain for %s",
			missingText)
	case len(t.problems) > 0:
		c.Reason = v1alpha1.ReasonProjectsSkipped
		c.Message = strings.Join(t.problems[:min(maxNamed, len(t.problems))], "; ")
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonSynced
		c.Message = "every enabled project of the domain has a namespace"
	}
}

// maxNamed is the maximum number of namespaces or problems in a condition.
const maxNamed = 5
