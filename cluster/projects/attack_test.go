// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestProjectsDeletedOverTime checks that each deleted project loses its rights, although the
// namespaces of projects that were deleted earlier remain. These namespaces must not be treated
// as missing projects, because many missing projects retain their rights.
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

// TestDuplicateNamespaceHasNoRoles checks that a second namespace with the annotation of a
// project has no roles until the first namespace is deleted.
func TestDuplicateNamespaceHasNoRoles(t *testing.T) {
	c := newCluster(t).synced()
	c.now = c.now.Add(time.Minute)
	c.namespace("acme--old-p1", "acme", c.annotation("acme--web-p1").String())
	c.settings.Roles = map[string]string{"member": "view"}
	c.expect("younger", []string{"acme ProjectsSkipped"}, "update namespace acme--old-p1", "update namespace acme--web-p1")
	c.expectRoles("younger", "acme--old-p1", "")
	c.expectRoles("older", "acme--web-p1", "role-id:p1:m=view")
	delete(c.namespaces, "acme--web-p1")
	c.expect("alone", synced, "update namespace acme--old-p1")
	c.expectRoles("alone", "acme--old-p1", "role-id:p1:m=view")
}

// TestMissingSinceInFuture checks that the rights of a missing project remain for at most
// [missingFor], even if the clock was ahead when the project became missing.
func TestMissingSinceInFuture(t *testing.T) {
	c := newCluster(t).synced()
	ahead := &metav1.Time{Time: c.now.Add(1000 * time.Hour)}
	of := c.annotation("acme--web-p1")
	of.MissingSince = ahead
	c.namespace("acme--web-p1", "acme", of.String())
	c.contents.Projects, c.contents.Assignments = nil, nil
	c.expect("missing", synced, "update namespace acme--web-p1")
	c.readsFor(missingReads, missingFor)
	c.expectRoles("after 24 hours", "acme--web-p1", "")

	c = newCluster(t)
	c.projects(4)
	c.synced()
	c.tenant("acme", (&tenants.Keystone{Domain: "d1", MissingSince: ahead}).String())
	c.contents.Assignments = nil
	c.expect("missing roles", []string{"acme RolesMissing"}, "update Tenant acme")
	c.readsFor(missingReads, missingFor)
	if c.bound() != 0 {
		t.Errorf("%d roles after 24 hours", c.bound())
	}
}

// TestSyncerIsFairToTenants checks that a tenant with many changed projects does not delay the
// writes for other tenants, even if one of its writes fails.
func TestSyncerIsFairToTenants(t *testing.T) {
	const n = 4 * maxWrites
	for name, broken := range map[string]string{"all succeed": "", "one fails": "acme--p000"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				_, err := s.dynamic.Resource(resource).Create(t.Context(), tenantObject("globex"), metav1.CreateOptions{})
				s.must(err)
				add := func(ns, of, domain, project string) {
					k := &tenants.Keystone{Domain: domain, Project: project}
					_, err := s.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
						Name:        ns,
						Labels:      map[string]string{tenant.Label: of},
						Annotations: map[string]string{tenant.KeystoneAnnotation: k.String()},
					}}, metav1.CreateOptions{})
					s.must(err)
				}
				c := newCluster(t)
				c.projects(n)
				for _, p := range c.contents.Projects {
					add("acme--"+p.ID, "acme", "d1", p.ID)
				}
				add("globex--g1", "globex", "d2", "g1")
				s.contents = c.contents
				s.contents.Domains = append(s.contents.Domains, keystone.Domain{ID: "d2", Name: "globex", Enabled: true})
				s.contents.Projects = append(s.contents.Projects, keystone.Project{ID: "g1", DomainID: "d2", Enabled: true})
				s.contents.Assignments = append(s.contents.Assignments, keystone.Assignment{RoleID: "m", ProjectID: "g1"})
				s.fail("patch", "namespaces", func(name string) error {
					if name == broken {
						return apierrors.NewForbidden(corev1.Resource("namespaces"), name, errors.New("refused"))
					}
					return nil
				})
				s.writes()
				s.run()
				all := s.writes()
				if at := slices.Index(all, "patch namespaces globex--g1"); at < 0 || at > maxWrites+10 {
					t.Errorf("the other tenant's write is number %d of %d", at, len(all))
				}
				time.Sleep(s.settings.Interval / 2)
				synctest.Wait()
				all = append(all, s.writes()...)
				if last := fmt.Sprintf("patch namespaces acme--p%03d", n-1); !slices.Contains(all, last) {
					t.Errorf("%s is not in %d writes", last, len(all))
				}
			})
		})
	}
}

// TestSettingsChangeWithoutDomain checks that, while no usable domain maps to a tenant, only the
// roles that the settings no longer bind are removed.
func TestSettingsChangeWithoutDomain(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"disabled":  func(c *cluster) { c.contents.Domains[0].Enabled = false },
		"missing":   func(c *cluster) { c.contents.Domains, c.contents.Projects, c.contents.Assignments = nil, nil, nil },
		"changed":   func(c *cluster) { c.contents.Domains[0].ID = "d2" },
		"ambiguous": func(c *cluster) { c.contents.Domains = slices.Repeat(c.contents.Domains, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.contents.Assignments = append(c.contents.Assignments, keystone.Assignment{RoleID: "r", ProjectID: "p1"},
				keystone.Assignment{RoleID: "m", DomainID: "d1"}, keystone.Assignment{RoleID: "r", DomainID: "d1"})
			c.synced()
			change(c)
			c.readsFor(2, time.Hour)
			c.expectRoles("before", "acme--web-p1", "role-id:p1:m=edit role-id:p1:r=view")
			c.expectRoles("before", "acme", "role-id:domain:d1:m=edit role-id:domain:d1:r=view")
			delete(c.settings.Roles, "member")
			if changes, _ := c.read(); len(changes) != 2 {
				t.Errorf("changes %q", changes)
			}
			c.expectRoles("after", "acme--web-p1", "role-id:p1:r=view")
			c.expectRoles("after", "acme", "role-id:domain:d1:r=view")
		})
	}
}

// TestSyncerBusyNamespace checks that another client that writes to a namespace continuously does
// not prevent changes of the tenant's other namespaces.
func TestSyncerBusyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		c := newCluster(t)
		c.projects(3)
		s.contents = c.contents
		s.run()
		s.expectReason("at first", "Synced")
		s.fail("patch", "namespaces", func(name string) error {
			if name == "acme--p000" {
				return apierrors.NewConflict(corev1.Resource("namespaces"), name, errors.New("modified"))
			}
			return nil
		})
		s.writes()
		s.keystone(func(s *server) {
			s.contents.Assignments = []keystone.Assignment{{RoleID: "r", DomainID: "d1"}}
			s.contents.Projects = append(s.contents.Projects, project("p009", ""))
		})
		s.later()
		got := s.writes()
		for _, want := range []string{"patch namespaces acme--p001", "patch namespaces acme--p002"} {
			if !slices.Contains(got, want) {
				t.Errorf("%s is not in %q", want, got[:min(len(got), 5)])
			}
		}
		if slices.Contains(got, "patch tenants acme") {
			t.Error("the Tenant was written before its namespaces")
		}
		if len(got) > 2*maxConflicts {
			t.Errorf("%d writes in one interval", len(got))
		}
		s.expectReason("busy", "WriteFailed")
	})
}
