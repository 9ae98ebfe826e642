// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
)

// readsFor reads Keystone n times at equal intervals within a period. It returns all changes.
func (c *cluster) readsFor(n int, period time.Duration) (all []string) {
	c.tb.Helper()
	for range n {
		c.now = c.now.Add(period / time.Duration(n))
		changes, _ := c.read()
		all = append(all, changes...)
	}
	return all
}

// bound returns the total number of project roles in all namespaces.
func (c *cluster) bound() (n int) {
	c.tb.Helper()
	for name := range c.namespaces {
		if is := c.annotation(name); is != nil {
			n += len(is.Roles)
		}
	}
	return n
}

// TestMissingProjects checks that missing projects lose their rights after 24 hours. They retain
// their rights if too many projects of the tenant are missing at the same time.
func TestMissingProjects(t *testing.T) {
	for _, test := range []struct {
		had, missing int
		believed     bool
	}{
		{1, 1, true},
		{3, 3, true},
		{4, 3, true},
		{4, 4, false},
		{100, 10, true},
		{100, 11, false},
		{100, 100, false},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.missing, test.had), func(t *testing.T) {
			c := newCluster(t)
			c.projects(test.had)
			c.synced()
			c.contents.Projects = c.contents.Projects[test.missing:]
			c.contents.Assignments = c.contents.Assignments[test.missing:]
			changes, conditions := c.read()
			wantChanges, wantConditions := test.missing, synced
			if !test.believed {
				wantChanges, wantConditions = 0, []string{"acme ProjectsMissing"}
				if want := fmt.Sprintf("lacks %d of %d projects", test.missing, test.had); !strings.Contains(c.message(), want) {
					t.Errorf("message %q, want %q", c.message(), want)
				}
			}
			if len(changes) != wantChanges || !slices.Equal(conditions, wantConditions) || c.bound() != test.had {
				t.Errorf("%d changes, conditions %q, %d roles", len(changes), conditions, c.bound())
			}
			c.readsFor(missingReads, missingFor-time.Second)
			if c.bound() != test.had {
				t.Errorf("%d roles before %v", c.bound(), missingFor)
			}
			c.readsFor(1, time.Second)
			wantBound := test.had
			if test.believed {
				wantBound -= test.missing
			}
			if c.bound() != wantBound || len(c.namespaces) != test.had {
				t.Errorf("%d roles in %d namespaces, want %d", c.bound(), len(c.namespaces), wantBound)
			}
			if changes := c.readsFor(missingReads, missingFor); len(changes) > 0 {
				t.Errorf("changes of namespaces without a project: %q", changes)
			}
		})
	}
}

// TestFewReads checks that a missing project retains its rights until it is missing in enough
// successive reads.
func TestFewReads(t *testing.T) {
	c := newCluster(t).synced()
	had := c.contents.Projects
	c.contents.Projects, c.contents.Assignments = nil, nil
	c.expect("missing", synced, "update namespace acme--web-p1")
	if since := c.annotation("acme--web-p1").MissingSince; since == nil || !since.Time.Equal(start) {
		t.Fatalf("missing since %v", since)
	}
	c.now = c.now.Add(missingFor)
	for i := 2; i < missingReads; i++ {
		c.expect("too few reads", synced)
	}
	c.absent = map[string]int{} // another process becomes the leader
	for i := 1; i < missingReads; i++ {
		c.expect("too few reads of the next leader", synced)
	}
	c.expectRoles("before the last read", "acme--web-p1", "role-id:p1:m=edit")
	c.expect("enough reads", synced, "update namespace acme--web-p1")
	c.expectRoles("enough reads", "acme--web-p1", "")
	c.contents.Projects = had
	c.contents.Assignments = []keystone.Assignment{{RoleID: "r", ProjectID: "p1"}}
	c.expect("found again", synced, "update namespace acme--web-p1")
	c.expectRoles("found again", "acme--web-p1", "role-id:p1:r=view")
	if c.annotation("acme--web-p1").MissingSince != nil {
		t.Error("missingSince is still set")
	}
}

// TestDeletedNamespaces checks that, with onProjectDeleted: Delete, the namespace of a missing
// project is deleted after 24 hours.
func TestDeletedNamespaces(t *testing.T) {
	c := newCluster(t)
	c.settings.DeleteNamespaces = true
	c.synced()
	c.contents.Projects = nil
	c.expect("missing", synced, "update namespace acme--web-p1")
	if changes := c.readsFor(missingReads, missingFor-time.Second); len(changes) > 0 {
		t.Errorf("changes before %v: %q", missingFor, changes)
	}
	c.now = c.now.Add(time.Second)
	c.expect("after 24 hours", synced, "delete namespace acme--web-p1")
	c.expect("deleted", synced)
}

// TestDeletedTerminating checks that a terminating namespace is not deleted again.
func TestDeletedTerminating(t *testing.T) {
	c := newCluster(t)
	c.settings.DeleteNamespaces = true
	c.synced()
	c.contents.Projects = nil
	c.readsFor(missingReads, missingFor-time.Hour)
	c.namespaces["acme--web-p1"].DeletionTimestamp = &metav1.Time{Time: c.now}
	if changes := c.readsFor(2, 3*time.Hour); len(changes) > 0 {
		t.Errorf("changes %q", changes)
	}
}

// TestMissingRoles checks that roles are removed only after 24 hours if many role assignments are
// missing at the same time. The threshold depends on the total number of the tenant's
// assignments.
func TestMissingRoles(t *testing.T) {
	for name, test := range map[string]struct {
		had, missing int
		held         bool
	}{
		"three of three":  {3, 3, false},
		"all of four":     {4, 4, true},
		"half of 20":      {20, 10, true},
		"three of 20":     {20, 3, false},
		"a tenth of 50":   {50, 5, false},
		"more than tenth": {50, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.projects(test.had)
			c.synced()
			c.contents.Assignments = c.contents.Assignments[test.missing:]
			left := test.had - test.missing
			if !test.held {
				if changes, is := c.read(); len(changes) != test.missing || c.bound() != left || !slices.Equal(is, synced) {
					t.Errorf("%d changes, %d roles, conditions %q", len(changes), c.bound(), is)
				}
				return
			}
			held := []string{"acme RolesMissing"}
			c.expect("missing", held, "update Tenant acme")
			c.readsFor(missingReads, missingFor-time.Second)
			c.expect("before 24 hours", held)
			if c.bound() != test.had {
				t.Errorf("%d roles before %v", c.bound(), missingFor)
			}
			c.now = c.now.Add(time.Second)
			if _, is := c.read(); c.bound() != left || !slices.Equal(is, synced) || c.annotation("acme").MissingSince != nil {
				t.Errorf("%d roles, conditions %q, Tenant %s", c.bound(), is, c.annotation("acme"))
			}
		})
	}
}

// TestMissingRolesReturn checks that roles are retained for 24 hours each time that they are
// missing, and that new roles are bound during this time.
func TestMissingRolesReturn(t *testing.T) {
	c := newCluster(t)
	c.projects(4)
	c.synced()
	all := c.contents.Assignments
	c.contents.Assignments = []keystone.Assignment{{RoleID: "r", ProjectID: "p000"}, {RoleID: "r", DomainID: "d1"}}
	c.expect("missing", []string{"acme RolesMissing"}, "update namespace acme--p000", "update Tenant acme")
	c.expectRoles("missing", "acme--p000", "role-id:p000:m=edit role-id:p000:r=view")
	c.expectRoles("missing", "acme", "role-id:domain:d1:r=view")
	c.contents.Assignments = all
	c.readsFor(missingReads, missingFor)
	c.expectRoles("again", "acme--p000", "role-id:p000:m=edit")
	c.contents.Assignments = nil
	c.expect("missing again", []string{"acme RolesMissing"}, "update Tenant acme")
	c.readsFor(missingReads, missingFor-time.Second)
	if c.bound() != 4 {
		t.Errorf("%d roles", c.bound())
	}
}

// TestRetainedRolesEndDespiteConflict checks that retained roles are removed after 24 hours even
// if a conflict interrupts the changes.
func TestRetainedRolesEndDespiteConflict(t *testing.T) {
	c := newCluster(t)
	c.projects(20)
	c.synced()
	c.contents.Assignments = nil
	c.expect("missing", []string{"acme RolesMissing"}, "update Tenant acme")
	c.readsFor(missingReads, missingFor-time.Second)
	c.now = c.now.Add(time.Second)
	plan := c.plans()[0]
	if last := plan.Changes[len(plan.Changes)-1]; len(plan.Changes) != 21 || last.Action != UpdateTenant {
		t.Fatalf("%d changes, the last is %s", len(plan.Changes), last.Action)
	}
	for i := range 5 { // the next change has a conflict
		c.apply(&plan, &plan.Changes[i])
	}
	c.read()
	if c.bound() != 0 {
		t.Errorf("%d roles remain", c.bound())
	}
}

// TestSettingsChange checks that a change of the settings takes effect immediately, even for
// roles and projects that are missing in Keystone.
func TestSettingsChange(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *Settings)
		want   string // the group and the ClusterRole of p000
	}{
		"not mapped":          {func(s *Settings) { delete(s.Roles, "member") }, ""},
		"another role":        {func(s *Settings) { s.Roles["member"] = "view" }, "role-id:p000:m=view"},
		"another ClusterRole": {func(s *Settings) { s.Roles = map[string]string{"x": "edit"} }, ""},
		"a prefix":            {func(s *Settings) { s.GroupsPrefix = "ks:" }, "ks:role-id:p000:m=edit"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.projects(20)
			c.synced()
			test.change(&c.settings)
			if changes, is := c.read(); len(changes) != 20 || !slices.Equal(is, synced) {
				t.Errorf("%d changes, conditions %q", len(changes), is)
			}
			c.expectRoles(name, "acme--p000", test.want)
		})
		t.Run(name+", without assignments", func(t *testing.T) {
			c := newCluster(t)
			c.projects(20)
			c.synced()
			c.contents.Assignments = nil
			test.change(&c.settings)
			c.read()
			if c.bound() != 0 {
				t.Errorf("%d roles remain", c.bound())
			}
		})
		for _, missing := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s, %d of 20 projects are missing", name, missing), func(t *testing.T) {
				c := newCluster(t)
				c.projects(20)
				c.synced()
				c.contents.Projects = c.contents.Projects[missing:]
				c.contents.Assignments = c.contents.Assignments[missing:]
				c.read()
				c.expectRoles(name, "acme--p000", "role-id:p000:m=edit")
				test.change(&c.settings)
				c.read()
				c.expectRoles(name, "acme--p000", "")
			})
		}
	}
}

// TestDeletedRole checks that an incomplete list of roles does not remove rights immediately.
func TestDeletedRole(t *testing.T) {
	c := newCluster(t)
	c.projects(4)
	c.synced()
	c.contents.Roles, c.contents.Assignments = nil, nil
	c.expect("no roles", []string{"acme RolesMissing"}, "update Tenant acme")
	if c.bound() != 4 {
		t.Errorf("%d roles", c.bound())
	}
	c.readsFor(missingReads, missingFor)
	if c.bound() != 0 {
		t.Errorf("%d roles after %v", c.bound(), missingFor)
	}
}

// TestNothingIsRemoved checks that namespaces and roles remain unless exactly one enabled domain
// with the recorded ID maps to the tenant.
func TestNothingIsRemoved(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"disabled":  func(c *cluster) { c.contents.Domains[0].Enabled = false },
		"missing":   func(c *cluster) { c.contents.Domains = nil },
		"renamed":   func(c *cluster) { c.contents.Domains[0].Name = "other" },
		"changed":   func(c *cluster) { c.contents.Domains[0].ID = "d2" },
		"ambiguous": func(c *cluster) { c.contents.Domains = slices.Repeat(c.contents.Domains, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.settings.DeleteNamespaces = true
			c.synced()
			change(c)
			c.contents.Projects, c.contents.Assignments = nil, nil
			if changes := c.readsFor(2*missingReads, 2*missingFor); len(changes) > 0 {
				t.Errorf("changes %q", changes)
			}
			c.expectRoles(name, "acme--web-p1", "role-id:p1:m=edit")
		})
	}
}

// TestFoundInDisabledDomain checks that a project retains its rights for the whole duration
// missingFor if it reappeared while the domain was disabled.
func TestFoundInDisabledDomain(t *testing.T) {
	c := newCluster(t).synced()
	had := c.contents.Projects
	c.contents.Projects = nil
	c.expect("missing", synced, "update namespace acme--web-p1")
	c.contents.Projects, c.contents.Domains[0].Enabled = had, false
	c.expect("disabled", []string{"acme DomainDisabled"}, "update namespace acme--web-p1")
	c.now = c.now.Add(2 * missingFor)
	c.contents.Projects, c.contents.Domains[0].Enabled = nil, true
	c.readsFor(missingReads+1, time.Hour)
	c.expectRoles("missing again", "acme--web-p1", "role-id:p1:m=edit")
}

// history records, for each project ID, the time of the last read in which the project existed.
type history struct {
	*cluster
	seen map[string]time.Time
}

// mutate changes Keystone at random.
func (h *history) mutate(r *rand.Rand) {
	contents := &h.contents
	switch r.IntN(10) {
	case 0:
		contents.Domains[0].Enabled = !contents.Domains[0].Enabled
	case 1:
		contents.Domains[0].Name = []string{"acme", "acme", "globex"}[r.IntN(3)]
	case 2, 3:
		id := fmt.Sprint("p", r.IntN(12))
		if !slices.ContainsFunc(contents.Projects, func(p keystone.Project) bool { return p.ID == id }) {
			contents.Projects = append(contents.Projects, project(id, []string{"", "a", "B"}[r.IntN(3)]))
		}
	case 4, 5, 6:
		if n := len(contents.Projects); n > 0 {
			i := r.IntN(n)
			contents.Projects = slices.Delete(slices.Clone(contents.Projects), i, min(n, i+1+r.IntN(2)))
		}
	case 7:
		contents.Assignments = append(contents.Assignments, keystone.Assignment{
			RoleID:    []string{"m", "r", "a"}[r.IntN(3)],
			ProjectID: fmt.Sprint("p", r.IntN(12)),
		})
	case 8:
		contents.Assignments = contents.Assignments[:r.IntN(len(contents.Assignments)+1)]
	case 9:
		h.absent = map[string]int{} // another process becomes the leader
	}
}

// check checks that a read did not remove the rights of a project too early. before has the
// annotations of the namespaces before the read.
func (h *history) check(before map[string]*tenants.Keystone) {
	h.tb.Helper()
	for name, was := range before {
		last, seen := h.seen[was.Project]
		if !seen || h.now.Sub(last) >= missingFor {
			continue
		}
		if h.namespaces[name] == nil {
			h.tb.Errorf("namespace %s was deleted %v after a read had its project", name, h.now.Sub(last))
			continue
		}
		if last != h.now && len(h.annotation(name).Roles) < len(was.Roles) {
			h.tb.Errorf("namespace %s lost roles %v after a read had its project", name, h.now.Sub(last))
		}
	}
}

// TestPlansConverge checks random histories of Keystone. The plans for one read must converge.
// They must not remove rights of a project within 24 hours of the last read in which it existed.
func TestPlansConverge(t *testing.T) {
	removed := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 49))
		h := &history{newCluster(t), map[string]time.Time{}}
		h.settings.DeleteNamespaces = seed%2 == 0
		h.projects(r.IntN(12))
		for range 150 {
			h.now = h.now.Add(time.Duration(r.IntN(4)) * time.Hour)
			if r.IntN(4) == 0 {
				h.mutate(r)
			}
			before := map[string]*tenants.Keystone{}
			for name := range h.namespaces {
				before[name] = h.annotation(name)
			}
			for _, p := range h.contents.Projects {
				h.seen[p.ID] = h.now
			}
			changes, _ := h.read()
			h.check(before)
			for _, c := range changes {
				if strings.HasPrefix(c, string(DeleteNamespace)) {
					removed++
				}
			}
			for _, plan := range h.plans() {
				if len(plan.Changes) > 0 {
					t.Errorf("a further plan has changes: %+v", plan.Changes)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d failed at %v", seed, h.now.Sub(start))
			}
		}
	}
	if removed == 0 {
		t.Error("no history deleted a namespace")
	}
}

// TestOtherTenantsProjects checks that missing projects of one tenant do not affect another tenant.
func TestOtherTenantsProjects(t *testing.T) {
	c := newCluster(t)
	c.projects(50)
	c.tenant("globex", "")
	c.contents.Domains = append(c.contents.Domains, keystone.Domain{ID: "d2", Name: "globex", Enabled: true})
	c.contents.Projects = append(c.contents.Projects, keystone.Project{ID: "g1", DomainID: "d2", Enabled: true})
	c.read()
	c.contents.Projects = c.contents.Projects[:50]
	c.expect("one of one", []string{"acme Synced", "globex Synced"}, "update namespace globex--g1")
	c.contents.Projects = nil
	c.expect("all", []string{"acme ProjectsMissing", "globex Synced"})
}
