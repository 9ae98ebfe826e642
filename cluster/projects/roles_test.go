// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"testing"

	"github.com/kubetenant/kubetenant/authn/keystone"
)

// TestRoles checks which roles are bound for assignments, including inherited and implied roles.
// It checks the roles in the namespaces of the projects p1, p2 below p1 and p3 below p2, and the
// roles of the Tenant acme.
func TestRoles(t *testing.T) {
	type assignments = []keystone.Assignment
	for name, test := range map[string]struct {
		assignments assignments
		change      func(c *keystone.Contents)
		want        map[string]string // the roles, keyed by the name of the namespace or Tenant
	}{
		"a project": {
			assignments{{RoleID: "m", ProjectID: "p1"}, {RoleID: "r", ProjectID: "p2"}},
			nil,
			map[string]string{"acme--web-p1": "role-id:p1:m=edit", "acme--p2": "role-id:p2:r=view"},
		},
		"duplicate assignment": {
			assignments{{RoleID: "r", ProjectID: "p1"}, {RoleID: "m", ProjectID: "p1"}, {RoleID: "r", ProjectID: "p1"}},
			nil,
			map[string]string{"acme--web-p1": "role-id:p1:m=edit role-id:p1:r=view"},
		},
		"not mapped":      {assignments{{RoleID: "a", ProjectID: "p1"}, {RoleID: "a", DomainID: "d1"}}, nil, nil},
		"unknown project": {assignments{{RoleID: "m", ProjectID: "p9"}}, nil, nil},
		"unknown role":    {assignments{{RoleID: "x", ProjectID: "p1"}}, nil, nil},
		"no target":       {assignments{{RoleID: "m"}, {RoleID: "m", Inherited: true}}, nil, nil},
		"another domain": {
			assignments{{RoleID: "m", DomainID: "d2"}, {RoleID: "m", DomainID: "d2", Inherited: true}}, nil, nil,
		},
		"a role called cluster-admin": {assignments{{RoleID: "ca", ProjectID: "p1"}}, func(c *keystone.Contents) {
			c.Roles = append(c.Roles, keystone.Role{ID: "ca", Name: "cluster-admin"})
		}, nil},
		"a role with the name of a ClusterRole": {assignments{{RoleID: "e", ProjectID: "p1"}}, func(c *keystone.Contents) {
			c.Roles = append(c.Roles, keystone.Role{ID: "e", Name: "edit"})
		}, nil},
		"a role in another case": {assignments{{RoleID: "M", ProjectID: "p1"}}, func(c *keystone.Contents) {
			c.Roles = append(c.Roles, keystone.Role{ID: "M", Name: "Member"})
		}, nil},
		"a domain's own role": {
			assignments{{RoleID: "own", ProjectID: "p1"}, {RoleID: "own", DomainID: "d1"}},
			func(c *keystone.Contents) {
				c.Roles = append(c.Roles, keystone.Role{ID: "own", Name: "member", DomainID: "d1"})
			}, nil,
		},
		"a role with an invalid ID": {assignments{{RoleID: "m:1", ProjectID: "p1"}}, func(c *keystone.Contents) {
			c.Roles = append(c.Roles, keystone.Role{ID: "m:1", Name: "member"})
		}, nil},
		"a domain": {
			assignments{{RoleID: "m", DomainID: "d1"}},
			nil,
			map[string]string{"acme": "role-id:domain:d1:m=edit"},
		},
		"inherited from the domain": {
			assignments{{RoleID: "m", DomainID: "d1", Inherited: true}},
			nil,
			map[string]string{
				"acme--web-p1": "role-id:p1:m=edit", "acme--p2": "role-id:p2:m=edit", "acme--p3": "role-id:p3:m=edit",
			},
		},
		"inherited from a project": {
			assignments{{RoleID: "m", ProjectID: "p1", Inherited: true}},
			nil,
			map[string]string{"acme--p2": "role-id:p2:m=edit", "acme--p3": "role-id:p3:m=edit"},
		},
		"inherited from a project without children": {
			assignments{{RoleID: "m", ProjectID: "p3", Inherited: true}}, nil, nil,
		},
		"inherited in a cycle": {
			assignments{{RoleID: "m", ProjectID: "p2", Inherited: true}},
			func(c *keystone.Contents) { c.Projects[1].ParentID = "p3" },
			map[string]string{"acme--p2": "role-id:p2:m=edit", "acme--p3": "role-id:p3:m=edit"},
		},
		"inherited from itself": {
			assignments{{RoleID: "m", ProjectID: "p3", Inherited: true}},
			func(c *keystone.Contents) { c.Projects[2].ParentID = "p3" },
			map[string]string{"acme--p3": "role-id:p3:m=edit"},
		},
		"implied": {
			assignments{{RoleID: "m", ProjectID: "p1"}, {RoleID: "m", DomainID: "d1"}},
			func(c *keystone.Contents) { c.Implied = []keystone.Implication{{RoleID: "m", ImpliedID: "r"}} },
			map[string]string{
				"acme--web-p1": "role-id:p1:m=edit role-id:p1:r=view",
				"acme":         "role-id:domain:d1:m=edit role-id:domain:d1:r=view",
			},
		},
		"implied by a role that is not mapped": {
			assignments{{RoleID: "a", ProjectID: "p1"}},
			func(c *keystone.Contents) {
				c.Implied = []keystone.Implication{{RoleID: "a", ImpliedID: "m"}, {RoleID: "m", ImpliedID: "r"}}
			},
			map[string]string{"acme--web-p1": "role-id:p1:m=edit role-id:p1:r=view"},
		},
		"implied in a cycle": {
			assignments{{RoleID: "r", ProjectID: "p1"}},
			func(c *keystone.Contents) {
				c.Implied = []keystone.Implication{
					{RoleID: "r", ImpliedID: "m"},
					{RoleID: "m", ImpliedID: "a"},
					{RoleID: "a", ImpliedID: "r"},
					{RoleID: "r", ImpliedID: "r"},
				}
			},
			map[string]string{"acme--web-p1": "role-id:p1:m=edit role-id:p1:r=view"},
		},
		"implied and inherited": {
			assignments{{RoleID: "m", ProjectID: "p2", Inherited: true}},
			func(c *keystone.Contents) { c.Implied = []keystone.Implication{{RoleID: "m", ImpliedID: "r"}} },
			map[string]string{"acme--p3": "role-id:p3:m=edit role-id:p3:r=view"},
		},
		"implication in one direction": {
			assignments{{RoleID: "r", ProjectID: "p1"}},
			func(c *keystone.Contents) { c.Implied = []keystone.Implication{{RoleID: "m", ImpliedID: "r"}} },
			map[string]string{"acme--web-p1": "role-id:p1:r=view"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.contents.Projects = append(c.contents.Projects, project("p2", ""), project("p3", ""))
			c.contents.Projects[1].ParentID, c.contents.Projects[2].ParentID = "p1", "p2"
			c.contents.Assignments = test.assignments
			if test.change != nil {
				test.change(&c.contents)
			}
			c.synced()
			for _, object := range []string{"acme--web-p1", "acme--p2", "acme--p3", "acme"} {
				c.expectRoles(name, object, test.want[object])
			}
			c.synced()
		})
	}
}

// TestGroupsPrefix checks that groups have the prefix of the source.
func TestGroupsPrefix(t *testing.T) {
	c := newCluster(t)
	c.settings.GroupsPrefix = "keystone:"
	c.contents.Assignments = append(c.contents.Assignments, keystone.Assignment{RoleID: "r", DomainID: "d1"})
	c.synced()
	c.expectRoles("prefix", "acme--web-p1", "keystone:role-id:p1:m=edit")
	c.expectRoles("prefix", "acme", "keystone:role-id:domain:d1:r=view")
}
