package projects

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cluster/tenants"
)

// TestProjectsDeletedOverTime checks that the namespaces that remain of deleted projects do not hold the
// rights of a project that is deleted later.
func TestProjectsDeletedOverTime(t *testing.T) {
	c := newCluster(t)
	c.projects(8)
	c.synced()
	for left := 7; left > 0; left-- {
		c.contents.Projects, c.contents.Assignments = c.contents.Projects[1:], c.contents.Assignments[1:]
		c.readsFor(missingReads+2, 2*missingFor)
		if c.bound() != left {
			t.Fatalf("%d roles, want %d, message %q", c.bound(), left, c.message())
		}
	}
	c.expect("the end", synced)
	c.settings.DeleteNamespaces = true
	if changes := c.readsFor(missingReads, missingFor); len(changes) > 0 || len(c.namespaces) != 8 {
		t.Errorf("with Delete: changes %q, %d namespaces", changes, len(c.namespaces))
	}
}

// TestYoungerNamespace checks that a second namespace of a project has no rights of it, and gets them
// when the first one is gone.
func TestYoungerNamespace(t *testing.T) {
	c := newCluster(t).synced()
	c.now = c.now.Add(time.Minute)
	c.namespace("acme--old-p1", "acme", c.of("acme--web-p1").String())
	c.settings.Roles = map[string]string{"member": "view"}
	c.expect("younger", []string{"acme ProjectsSkipped"}, "update namespace acme--old-p1", "update namespace acme--web-p1")
	c.expectRoles("younger", "acme--old-p1", "")
	c.expectRoles("older", "acme--web-p1", "role-id:p1:m=view")
	delete(c.namespaces, "acme--web-p1")
	c.expect("alone", synced, "update namespace acme--old-p1")
	c.expectRoles("alone", "acme--old-p1", "role-id:p1:m=view")
}

// TestMissingInTheFuture checks that a clock that was ahead when a project went missing does not keep its
// rights for longer than [missingFor].
func TestMissingInTheFuture(t *testing.T) {
	c := newCluster(t).synced()
	ahead := &metav1.Time{Time: c.now.Add(1000 * time.Hour)}
	of := c.of("acme--web-p1")
	of.MissingSince = ahead
	c.namespace("acme--web-p1", "acme", of.String())
	c.contents.Projects, c.contents.Assignments = nil, nil
	c.expect("missing", synced, "update namespace acme--web-p1")
	c.readsFor(missingReads, missingFor)
	c.expectRoles("after the end", "acme--web-p1", "")

	c = newCluster(t)
	c.projects(4)
	c.synced()
	c.tenant("acme", (&tenants.Keystone{Domain: "d1", MissingSince: ahead}).String())
	c.contents.Assignments = nil
	c.expect("missing roles", []string{"acme RolesMissing"}, "update Tenant acme")
	c.readsFor(missingReads, missingFor)
	if c.bound() != 0 {
		t.Errorf("%d roles after the end", c.bound())
	}
}
